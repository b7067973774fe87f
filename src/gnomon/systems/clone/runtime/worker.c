/* Making a worker: what it has of its own, and the descriptors that it watches. */
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "runtime.h"

gnc_connection *gnc_connections[GNC_FD_LIMIT];

_Noreturn void gnc_fail(const char *what) {
    fprintf(stderr, "clone: %s\n", what);
    exit(1);
}

void *gnc_allocate(size_t bytes) {
    void *memory = calloc(1, bytes);
    if (!memory) gnc_fail("out of memory");
    return memory;
}

static void widen(const gnc_script *script, size_t *step, size_t *reply) {
    for (uint32_t i = 0, count = gnc_steps(script); i < count; i++)
        if (script->steps[i].bytes > *step) *step = script->steps[i].bytes;
    for (uint32_t i = 0; i < script->sizes; i++)
        if (script->size[i] > *reply) *reply = script->size[i];
}

/* The most bytes that a step reads or writes, and that a reply has. */
static void find_sizes(size_t *step, size_t *reply) {
    const gnc_model *model = &gnc_the_model;
    widen(&model->on_accept, step, reply);
    widen(&model->on_close, step, reply);
    for (uint32_t i = 0; i < model->request_scripts; i++) widen(&model->requests[i], step, reply);
    for (uint32_t i = 0; i < model->kinds; i++)
        for (uint32_t k = 0; k < model->kind[i].sizes; k++)
            if (model->kind[i].size[k] > *reply) *reply = model->kind[i].size[k];
    for (uint32_t i = 0; i < model->timers; i++) widen(&model->timer[i].script, step, reply);
}

static char *printable(size_t bytes, uint64_t seed) {
    char *text = gnc_allocate(bytes);
    for (size_t i = 0; i < bytes; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        text[i] = (char)('!' + (seed >> 33) % 94);
    }
    return text;
}

gnc_worker *gnc_worker_new(uint32_t index, enum gnc_wait wait) {
    gnc_worker *w = gnc_allocate(sizeof *w);
    size_t step = 4096, reply = 4096, data = gnc_data_bytes();
    find_sizes(&step, &reply);
    w->wait = (uint8_t)wait;
    w->random = 0x9e3779b97f4a7c15u * (index + 1);
    w->next_worker = index;
    w->reply = printable(reply + 1024, index + 1); /* with room for a key that is echoed */
    w->scratch = printable(step, index + 1);
    w->memory = mmap(NULL, data, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    w->ring = gnc_hands_over ? gnc_allocate(GNC_FD_LIMIT * sizeof *w->ring) : NULL;
    w->event_room = wait == GNC_EPOLL && gnc_the_model.wait_events ? gnc_the_model.wait_events : 1024;
    if (wait == GNC_POLL) w->event_room = GNC_FD_LIMIT;
    w->events = gnc_allocate(w->event_room * sizeof *w->events);
    w->later = gnc_allocate(w->event_room * sizeof *w->later);
    w->fd[GNC_EVENT] = wait == GNC_BLOCKING ? -1 : eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    w->epoll = -1;
    if (w->memory == MAP_FAILED) gnc_fail("no memory for the edges");
    return w;
}

static int moves_data_elsewhere(const gnc_script *script) {
    for (uint32_t i = 0, count = gnc_steps(script); i < count; i++)
        if (script->steps[i].target == GNC_NONE && script->steps[i].call >= GNC_READ &&
            script->steps[i].call <= GNC_SENDMSG)
            return 1;
    return 0;
}

/* Stands for services that the original asked: a socket that is connected to itself. -1 if it asked none. */
static int itself(void) {
    int is_used = 0;
    for (uint32_t i = 0; i < gnc_the_model.request_scripts; i++)
        is_used |= moves_data_elsewhere(&gnc_the_model.requests[i]);
    if (!is_used) return -1;
    struct sockaddr_in name = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof name;
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&name, bytes) || getsockname(fd, (struct sockaddr *)&name, &bytes) ||
        connect(fd, (struct sockaddr *)&name, bytes))
        gnc_fail("no socket to stand for other services");
    return fd;
}

void gnc_worker_begin(gnc_worker *w, int listener, int runs_timers) {
    const gnc_model *model = &gnc_the_model;
    w->standing_file = open(gnc_file_path, O_RDWR | O_CLOEXEC);
    w->fd[GNC_NONE] = itself();
    w->fd[GNC_CONNECTION] = -1;
    w->fd[GNC_FILE] = w->standing_file;
    w->fd[GNC_LOG] = open(gnc_log_path, O_WRONLY | O_APPEND | O_CLOEXEC);
    w->listener = listener;
    if (w->wait == GNC_EPOLL && (w->epoll = epoll_create1(EPOLL_CLOEXEC)) < 0) gnc_fail("no epoll descriptor");
    if (w->wait == GNC_POLL) {
        w->polls = gnc_allocate(GNC_FD_LIMIT * sizeof *w->polls);
        for (int fd = 0; fd < GNC_FD_LIMIT; fd++) w->polls[fd].fd = -1;
    }
    if (w->wait != GNC_BLOCKING) {
        gnc_watch(w, EPOLL_CTL_ADD, gnc_stop_fd, EPOLLIN);
        gnc_watch(w, EPOLL_CTL_ADD, w->fd[GNC_EVENT], EPOLLIN);
        if (listener >= 0) gnc_listen(w);
    }
    gnc_clocks(w, 1);
    if (runs_timers && model->timers) { /* the first round sets when the next is due */
        w->due_ns = gnc_allocate(model->timers * sizeof *w->due_ns);
        for (uint32_t i = 0; i < model->timers; i++)
            w->due_ns[i] = w->now_ns + (uint64_t)(model->timer[i].period_s * 1e9);
    }
    gnc_memory_begin(w);
}
