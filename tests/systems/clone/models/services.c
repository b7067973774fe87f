/* A server that behaves as its second word says; it answers whatever it reads, one connection after the other. */
#include <arpa/inet.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

static void on_term(int number) {
    (void)number;
    exit(0);
}

int main(int words, char **word) {
    const char *how = words > 2 ? word[2] : "";
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(word[1]))};
    struct sockaddr_un path = {.sun_family = AF_UNIX};
    int is_unix = !strcmp(how, "unix"), on = 1, answered = 0;
    int listener = socket(is_unix ? AF_UNIX : AF_INET, strcmp(how, "udp") ? SOCK_STREAM : SOCK_DGRAM, 0);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (!strcmp(how, "daemon") && daemon(1, 1)) return 1;
    if (!strcmp(how, "replaces-itself") && !getenv("AGAIN")) {
        setenv("AGAIN", "1", 1);
        execv("/proc/self/exe", word);
    }
    if (strcmp(how, "deaf")) signal(SIGTERM, on_term);
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    strncpy(path.sun_path, word[1], sizeof path.sun_path - 1);
    if (is_unix ? bind(listener, (struct sockaddr *)&path, sizeof path)
                : bind(listener, (struct sockaddr *)&address, sizeof address)) return 1;
    if (!strcmp(how, "udp")) pause();
    if (listen(listener, 64)) return 1;
    if (!strcmp(how, "fork") && fork() > 0) {
        wait(NULL);
        return 0;
    }
    for (;;) {
        char buffer[4096];
        int connection = accept(listener, NULL, NULL);
        while (read(connection, buffer, sizeof buffer) > 0) {
            if (!strcmp(how, "dies") && ++answered == 100) abort();
            if (write(connection, "hello there\n", 12) != 12) break;
        }
        close(connection);
    }
}
