/* A server whose cost is known: every byte that is read is a request, and is answered by a byte.
 *
 *     counted PORT ITERATIONS LINES TICK_MS FORKS
 *
 * A request executes a loop of two instructions ITERATIONS times, and loads one byte of each of LINES cache lines.
 * Every TICK_MS milliseconds, if not 0, the loop runs a hundred times as long. FORKS: a child serves. */
#include <arpa/inet.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static volatile sig_atomic_t ended;
static char memory[1 << 20];

static void end(int signal) {
    (void)signal;
    ended = 1;
}

static void spin(long iterations) {
    if (iterations) __asm__ volatile("1: dec %0\n\tjnz 1b" : "+r"(iterations) : : "cc");
}

static void work(long iterations, long lines) {
    spin(iterations);
    for (long i = 0; i < lines; i++) (void)*(volatile char *)&memory[64 * i];
}

static long now_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

int main(int count, char **a) {
    if (count < 6) return 2;
    long iterations = atol(a[2]), lines = atol(a[3]), tick = atol(a[4]), forks = atol(a[5]);
    struct sigaction action = {.sa_handler = end};
    sigaction(SIGTERM, &action, NULL);
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((unsigned short)atoi(a[1]))};
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    struct pollfd fds[128] = {{.fd = socket(AF_INET, SOCK_STREAM, 0), .events = POLLIN}};
    int yes = 1, used = 1;
    setsockopt(fds[0].fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (bind(fds[0].fd, (struct sockaddr *)&at, sizeof at)) {
        fprintf(stderr, "starting\nthe port is taken\n");
        return 1;
    }
    listen(fds[0].fd, 128);
    pid_t child = forks ? fork() : 0;
    if (child) {
        while (!ended) pause();
        kill(child, SIGTERM);
        waitpid(child, NULL, 0);
        return 0;
    }
    if (forks) prctl(PR_SET_PDEATHSIG, SIGKILL);
    long next = now_ms() + tick;
    while (!ended) {
        if (poll(fds, (nfds_t)used, tick ? (int)tick : -1) < 0) continue;
        if (tick && now_ms() >= next) {
            spin(100 * iterations);
            next += tick;
        }
        for (int i = used - 1; i > 0; i--) {
            if (!fds[i].revents) continue;
            char text[64];
            ssize_t n = read(fds[i].fd, text, 1);
            if (n == 1) {
                work(iterations, lines);
                n = write(fds[i].fd, text, 1);
            }
            if (n < 1) {
                close(fds[i].fd);
                fds[i] = fds[--used];
            }
        }
        if (fds[0].revents && used < 128) fds[used++] = (struct pollfd){.fd = accept(fds[0].fd, NULL, NULL), .events = POLLIN};
    }
    return 0;
}
