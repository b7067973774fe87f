/* Options, the scratch directory, the listening socket, and starting the workers. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime.h"

volatile sig_atomic_t gnc_stopping;
int gnc_stop_fd;
gnc_worker **gnc_workers;
uint32_t gnc_worker_count;
char gnc_file_path[PATH_MAX], gnc_log_path[PATH_MAX];

static char scratch_path[PATH_MAX - 8];
static int listener;
static gnc_worker *acceptor, *ticker; /* beside gnc_workers: one accepts for others, one only runs timers */

static void stop(int signal) {
    (void)signal;
    int kept = errno;
    uint64_t one = 1;
    gnc_stopping = 1;
    if (write(gnc_stop_fd, &one, sizeof one) < 0) {} /* full: it is readable already */
    if (gnc_the_model.wait == GNC_BLOCKING) shutdown(listener, SHUT_RDWR);
    errno = kept;
}

static void remove_scratch(void) {
    unlink(gnc_file_path);
    unlink(gnc_log_path);
    rmdir(scratch_path);
}

static _Noreturn void fail(const char *what) {
    perror(what);
    exit(1);
}

static void make_scratch(void) {
    const char *parent = getenv("TMPDIR");
    snprintf(scratch_path, sizeof scratch_path, "%s/clone-XXXXXX", parent && *parent ? parent : "/tmp");
    if (!mkdtemp(scratch_path)) fail(scratch_path);
    snprintf(gnc_file_path, sizeof gnc_file_path, "%s/file", scratch_path);
    snprintf(gnc_log_path, sizeof gnc_log_path, "%s/log", scratch_path);
    int file = open(gnc_file_path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    int log = open(gnc_log_path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    char text[4096];
    memset(text, 'x', sizeof text);
    for (uint32_t left = gnc_the_model.file_bytes; file >= 0 && left;) { /* written: holes have no pages */
        ssize_t written = write(file, text, left < sizeof text ? left : sizeof text);
        if (written <= 0) fail(gnc_file_path);
        left -= (uint32_t)written;
    }
    if (file < 0 || log < 0) fail(scratch_path);
    close(file);
    close(log);
}

static void listen_on(const char *host, int port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    socklen_t bytes = sizeof address;
    int on = 1, is_blocking = gnc_the_model.wait == GNC_BLOCKING;
    inet_pton(AF_INET, host, &address.sin_addr);
    listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | (is_blocking ? 0 : SOCK_NONBLOCK), 0);
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    setsockopt(listener, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on); /* connections inherit it, without a call each */
    if (bind(listener, (struct sockaddr *)&address, bytes) < 0 || listen(listener, 1024) < 0 ||
        getsockname(listener, (struct sockaddr *)&address, &bytes) < 0)
        fail(host);
    dprintf(STDOUT_FILENO, "ready on %s:%d\n", host, ntohs(address.sin_port));
}

static void limit_descriptors(void) {
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    rlim_t most = gnc_the_model.wait == GNC_SELECT ? FD_SETSIZE : GNC_FD_LIMIT;
    limit.rlim_cur = limit.rlim_max < most ? limit.rlim_max : most; /* tables are by descriptor */
    setrlimit(RLIMIT_NOFILE, &limit);
}

/* Timers run in one place: where connections are accepted for all, or by the first worker. */
static void work(gnc_worker *w, int is_first) {
    gnc_worker_begin(w, gnc_hands_over ? -1 : listener, is_first && !gnc_hands_over);
    gnc_loop(w);
}

static void *run_thread(void *argument) {
    work(argument, argument == gnc_workers[0]);
    return NULL;
}

static void *run_ticker(void *unused) {
    gnc_worker_begin(ticker, -1, 1);
    gnc_loop(ticker);
    return unused;
}

static void run_blocking(void) {
    pthread_t thread;
    acceptor = gnc_worker_new(0, GNC_BLOCKING);
    gnc_worker_begin(acceptor, listener, 0);
    if (gnc_the_model.timers) {
        ticker = gnc_worker_new(UINT16_MAX, GNC_POLL);
        if (pthread_create(&thread, NULL, run_ticker, NULL) != 0) fail("thread");
    }
    gnc_accept_blocking(acceptor);
    if (ticker) pthread_join(thread, NULL);
}

static void run_threads(void) {
    pthread_t threads[gnc_worker_count];
    for (uint32_t i = 0; i < gnc_worker_count; i++)
        if (pthread_create(&threads[i], NULL, run_thread, gnc_workers[i]) != 0) fail("thread");
    if (gnc_hands_over) {
        acceptor = gnc_worker_new(gnc_worker_count - 1, gnc_the_model.wait);
        gnc_worker_begin(acceptor, listener, 1);
        gnc_loop(acceptor);
    }
    for (uint32_t i = 0; i < gnc_worker_count; i++) pthread_join(threads[i], NULL);
}

/* The stop descriptor is shared, so that a signal to one process ends all. */
static int run_processes(void) {
    pid_t parent = getpid();
    for (uint32_t i = 0; i < gnc_worker_count; i++) {
        pid_t child = fork();
        if (child < 0) fail("fork");
        if (child) continue;
        prctl(PR_SET_PDEATHSIG, SIGTERM);
        if (getppid() != parent) _exit(1);
        if (i == 0) gnc_begin_background();
        if (gnc_the_model.wait == GNC_BLOCKING) run_blocking();
        else work(gnc_workers[i], i == 0);
        _exit(0);
    }
    int status, result = 0;
    for (pid_t ended; (ended = waitpid(-1, &status, 0)) > 0 || errno == EINTR;) {
        if (ended < 0 || gnc_stopping || status == 0) continue;
        result = 1;
        stop(0); /* a worker died: half a clone would be measured as a whole one */
    }
    return result;
}

static int run(int kind) {
    gnc_hands_over = kind == GNC_THREADS && gnc_the_model.accepts == GNC_ACCEPT_MAIN;
    if (kind != GNC_PROCESSES) gnc_begin_background();
    if (gnc_the_model.wait == GNC_BLOCKING && kind != GNC_PROCESSES) return run_blocking(), 0;
    gnc_workers = gnc_allocate(gnc_worker_count * sizeof *gnc_workers);
    for (uint32_t i = 0; i < gnc_worker_count; i++) gnc_workers[i] = gnc_worker_new(i, gnc_the_model.wait);
    if (kind == GNC_PROCESSES) return run_processes();
    if (kind == GNC_THREADS) run_threads();
    else work(gnc_workers[0], 1);
    return 0;
}

static _Noreturn void refuse(const char *option, const char *wanted) {
    fprintf(stderr, "clone: %s: %s\nusage: clone [--host 127.0.0.1] [--port 7000] [--workers N]\n", option, wanted);
    exit(2);
}

static int number(const char *option, const char *text, int least, int most) {
    char *end;
    long value = text ? strtol(text, &end, 10) : -1;
    if (!text || !*text || *end || value < least || value > most) refuse(option, "a number is missing or out of range");
    return (int)value;
}

int main(int count, char **arguments) {
    const char *host = "127.0.0.1";
    int port = 7000, kind = gnc_the_model.workers, workers = gnc_the_model.worker_count;
    struct in_addr unused;
    for (int i = 1; i < count; i += 2) {
        const char *value = i + 1 < count ? arguments[i + 1] : NULL;
        if (!strcmp(arguments[i], "--port")) port = number("--port", value, 0, 65535);
        else if (!strcmp(arguments[i], "--workers")) workers = number("--workers", value, 1, 1024);
        else if (!strcmp(arguments[i], "--host") && value && inet_pton(AF_INET, value, &unused) == 1) host = value;
        else refuse(arguments[i], "not an option, or not an IPv4 address");
    }
    if (kind == GNC_SINGLE && workers > 1) kind = GNC_THREADS;
    gnc_worker_count = kind == GNC_SINGLE || workers < 1 ? 1 : (uint32_t)workers;
    gnc_plan();
    limit_descriptors();
    gnc_stop_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    struct sigaction action = {.sa_handler = stop};
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGINT, &action, NULL);
    signal(SIGPIPE, SIG_IGN);
    atexit(remove_scratch);
    make_scratch();
    listen_on(host, port);
    return run(kind);
}
