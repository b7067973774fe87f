/* A server that behaves as its second word says; it answers whatever it reads, one connection after the other. */
#include <arpa/inet.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

static void on_term(int number) {
    (void)number;
    exit(0);
}

/* Vector instructions fault where the stack is not aligned. */
static volatile double seconds;
static void on_alarm(int number) {
    char text[40];
    snprintf(text, sizeof text, "%.3f %d", seconds += 0.001, number);
}

static void watch(int epoll, int descriptor) {
    struct epoll_event event = {.events = EPOLLIN, .data.fd = descriptor};
    epoll_ctl(epoll, EPOLL_CTL_ADD, descriptor, &event);
}

/* For each request another service is asked, which answers at a later wake-up: here a socket pair. */
static void ask_others(int listener) {
    static int client_of[1024];
    struct epoll_event event;
    char buffer[4096];
    int epoll = epoll_create1(0);
    watch(epoll, listener);
    while (epoll_wait(epoll, &event, 1, -1) >= 0) {
        int from = event.data.fd, both[2];
        if (from == listener) {
            watch(epoll, accept(listener, NULL, NULL));
        } else if (client_of[from]) {
            if (recv(from, buffer, sizeof buffer, 0) < 0 || close(from)) return;
            if (send(client_of[from], "hello there\n", 12, 0) < 0) return;
            client_of[from] = 0;
        } else if (recv(from, buffer, sizeof buffer, 0) > 0) {
            if (socketpair(AF_UNIX, SOCK_STREAM, 0, both) || send(both[1], "what now?", 9, 0) < 0) return;
            close(both[1]);
            client_of[both[0]] = from;
            send(both[0], "question", 8, MSG_NOSIGNAL);
            watch(epoll, both[0]);
        } else {
            close(from);
        }
    }
}

/* A request is read in two parts, which arrive together: the second after another wait, or at once. */
static void read_twice(int listener, size_t first, int waits, const char *answer) {
    struct epoll_event event;
    char buffer[4096];
    int epoll = epoll_create1(0);
    watch(epoll, listener);
    while (epoll_wait(epoll, &event, 1, -1) >= 0) {
        int from = event.data.fd;
        if (from == listener) {
            watch(epoll, accept(listener, NULL, NULL));
        } else if (recv(from, buffer, first, 0) <= 0) {
            close(from);
        } else {
            if (waits) epoll_wait(epoll, &event, 1, 0);
            if (recv(from, buffer, sizeof buffer, 0) < 0) return;
            if (send(from, answer, strlen(answer), 0) < 0) return;
        }
    }
}

/* One thread reads requests and another answers them. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t is_more = PTHREAD_COND_INITIALIZER;
static int to_answer[1024], put, taken;

static void *answer(void *unused) {
    for (;;) {
        pthread_mutex_lock(&lock);
        while (taken == put) pthread_cond_wait(&is_more, &lock);
        int client = to_answer[taken++ % 1024];
        pthread_mutex_unlock(&lock);
        if (send(client, "hello there\n", 12, MSG_NOSIGNAL) != 12) return unused;
    }
}

static void hand_on(int listener) {
    struct epoll_event event;
    char buffer[4096];
    pthread_t thread;
    int epoll = epoll_create1(0);
    watch(epoll, listener);
    if (pthread_create(&thread, NULL, answer, NULL)) return;
    while (epoll_wait(epoll, &event, 1, -1) >= 0) {
        int from = event.data.fd;
        if (from == listener) {
            watch(epoll, accept(listener, NULL, NULL));
        } else if (recv(from, buffer, sizeof buffer, 0) <= 0) {
            close(from);
        } else {
            pthread_mutex_lock(&lock);
            to_answer[put++ % 1024] = from;
            pthread_cond_signal(&is_more);
            pthread_mutex_unlock(&lock);
        }
    }
}

/* Each request is handled on a stack of its own, which is left in the middle of a function and entered again. */
static ucontext_t waits, handles;
static char stack[65536];
static int client, work;

static int answer_at(int depth) {
    if (depth) return answer_at(depth - 1) + depth;
    swapcontext(&handles, &waits);
    return send(client, "hello there\n", 12, MSG_NOSIGNAL) == 12;
}

static void handle(void) {
    for (;;) work += answer_at(40);
}

static void switch_stacks(int listener) {
    char buffer[4096];
    getcontext(&handles);
    handles.uc_stack.ss_sp = stack;
    handles.uc_stack.ss_size = sizeof stack;
    makecontext(&handles, handle, 0);
    swapcontext(&waits, &handles);
    while ((client = accept(listener, NULL, NULL)) >= 0) {
        while (recv(client, buffer, sizeof buffer, 0) > 0) swapcontext(&waits, &handles);
        close(client);
    }
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
    if (!strcmp(how, "alarms")) {
        struct sigaction action = {.sa_handler = on_alarm, .sa_flags = SA_RESTART}, old;
        struct itimerval often = {{0, 1000}, {0, 1000}};
        if (sigaction(SIGALRM, &action, NULL) || sigaction(SIGALRM, NULL, &old)) return 1;
        if (old.sa_handler != on_alarm) return 1; /* what it has set is what it sees */
        setitimer(ITIMER_REAL, &often, NULL);
    }
    if (!strcmp(how, "asks")) ask_others(listener);
    if (!strcmp(how, "hands-on")) hand_on(listener);
    if (!strcmp(how, "switches")) switch_stacks(listener);
    if (!strcmp(how, "parts")) read_twice(listener, 4, 0, "hello there\n");
    if (!strcmp(how, "http")) read_twice(listener, 24, 1, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello");
    for (;;) {
        char buffer[4096];
        int connection = accept(listener, NULL, NULL);
        if (!strcmp(how, "late") && answered < 3) { /* it is not ready yet */
            answered += !close(connection);
            continue;
        }
        while (read(connection, buffer, sizeof buffer) > 0) {
            if (!strcmp(how, "dies") && ++answered == 100) abort();
            if (write(connection, "hello there\n", 12) != 12) break;
        }
        close(connection);
    }
}
