/* A worker's loop: wait, handle what is ready phase by phase, run the timers that are due. */
#include <string.h>
#include <unistd.h>

#include "runtime.h"
#include "system.h"

/* `op` as of epoll_ctl, or 0 for a descriptor about to be closed: epoll forgets it by itself. */
void gnc_watch(gnc_worker *w, int op, int fd, uint32_t events) {
    if (w->wait == GNC_EPOLL) {
        struct epoll_event event = {.events = events, .data.fd = fd};
        if (op) GNC_SYSTEM(SYS_epoll_ctl, w->epoll, op, fd, &event);
    } else if (w->wait == GNC_POLL) {
        w->polls[fd] = (struct pollfd){.fd = events ? fd : -1, .events = (short)(events & (POLLIN | POLLOUT))};
    } else if (w->wait == GNC_SELECT) {
        if (events & EPOLLIN) FD_SET(fd, &w->reads); else FD_CLR(fd, &w->reads);
        if (events & EPOLLOUT) FD_SET(fd, &w->writes); else FD_CLR(fd, &w->writes);
    }
    if (fd >= w->polled) w->polled = fd + 1;
}

void gnc_watch_connection(gnc_worker *w, gnc_connection *c, int op, uint32_t events) {
    c->watched = 1;
    gnc_watch(w, op, c->fd, events);
}

static int wait_epoll(gnc_worker *w, int timeout_ms) {
#ifdef SYS_epoll_wait
    return (int)GNC_SYSTEM(SYS_epoll_wait, w->epoll, w->events, w->event_room, timeout_ms);
#else
    return (int)GNC_SYSTEM(SYS_epoll_pwait, w->epoll, w->events, w->event_room, timeout_ms, NULL, 0L);
#endif
}

static int wait_poll(gnc_worker *w, int timeout_ms) {
#ifdef SYS_poll
    long ready = GNC_SYSTEM(SYS_poll, w->polls, (long)w->polled, (long)timeout_ms);
#else
    struct timespec timeout = {timeout_ms / 1000, timeout_ms % 1000 * 1000000L};
    long ready = GNC_SYSTEM(SYS_ppoll, w->polls, (long)w->polled, timeout_ms < 0 ? NULL : &timeout, NULL, 0L);
#endif
    int count = 0;
    for (int fd = 0; count < ready; fd++)
        if (w->polls[fd].fd >= 0 && w->polls[fd].revents) w->events[count++].data.fd = fd;
    return count;
}

static int wait_select(gnc_worker *w, int timeout_ms) {
    fd_set reads = w->reads, writes = w->writes;
#ifdef SYS_select
    struct timeval timeout = {timeout_ms / 1000, timeout_ms % 1000 * 1000L};
    long ready = GNC_SYSTEM(SYS_select, w->polled, &reads, &writes, NULL, timeout_ms < 0 ? NULL : &timeout);
#else
    struct timespec timeout = {timeout_ms / 1000, timeout_ms % 1000 * 1000000L};
    long ready = GNC_SYSTEM(SYS_pselect6, w->polled, &reads, &writes, NULL, timeout_ms < 0 ? NULL : &timeout, NULL);
#endif
    int count = 0;
    for (int fd = 0; ready > 0 && fd < w->polled; fd++)
        if (FD_ISSET(fd, &reads) || FD_ISSET(fd, &writes)) w->events[count++].data.fd = fd;
    return count;
}

static int timeout_ms(const gnc_worker *w) {
    uint32_t timeout = (uint32_t)gnc_the_model.wait_timeout_ms; /* none is more than any other */
    if (w->due_ns) {
        uint64_t left = w->first_due_ns > w->now_ns ? (w->first_due_ns - w->now_ns + 999999) / 1000000 : 0;
        if (left < timeout) timeout = (uint32_t)left;
    }
    return (int)(w->paused && timeout > 100 ? 100 : timeout);
}

/* 1, 2, 3, 4 to 5, 6 to 7, 8 to 11 events and so on: how much is done for all of them at once depends on it. */
static uint32_t kind_of_wakeup(int count) {
    if (count < 2) return 0;
    uint32_t width = 31 - (uint32_t)__builtin_clz((uint32_t)count);
    uint32_t kind = 2 * width - 1 + ((uint32_t)count >> (width - 1) & 1);
    return kind < GNC_WAKEUPS ? kind : GNC_WAKEUPS - 1;
}

static int wait_as(gnc_worker *w, int timeout) {
    if (w->wait == GNC_EPOLL) return wait_epoll(w, timeout);
    if (w->wait == GNC_SELECT) return wait_select(w, timeout);
    return wait_poll(w, timeout);
}

/* The wait of a script, between a request and its answer. Whatever is ready is found again by the next real wait. */
void gnc_look(gnc_worker *w, const gnc_step *s) {
    gnc_enter(w, s->key, s->clocks);
    w->wakeup = kind_of_wakeup(wait_as(w, 0));
}

static int wait_for_events(gnc_worker *w) {
    int timeout = timeout_ms(w);
    gnc_enter(w, 0, 0);
    int count = wait_as(w, timeout);
    w->wakeup = kind_of_wakeup(count);
    gnc_clocks(w, gnc_the_model.wait_clocks ? gnc_the_model.wait_clocks : w->due_ns != NULL);
    return count;
}

static void dispatch(gnc_worker *w, int fd) {
    gnc_connection *c = gnc_connections[fd];
    if (c && c->open && c->owner == w) gnc_ready(w, c);
    else if (fd == w->listener) gnc_accept(w);
    else if (fd == w->fd[GNC_EVENT]) gnc_take_over(w);
    else if (fd == gnc_stop_fd) gnc_stopping = 1;
}

static void run_timers(gnc_worker *w) {
    w->first_due_ns = UINT64_MAX;
    for (uint32_t i = 0; i < gnc_the_model.timers; i++) {
        const gnc_timer *timer = &gnc_the_model.timer[i];
        if (w->now_ns >= w->due_ns[i]) {
            uint64_t period_ns = (uint64_t)(timer->period_s * 1e9);
            w->due_ns[i] += period_ns;
            if (w->due_ns[i] <= w->now_ns) w->due_ns[i] = w->now_ns + period_ns; /* no bursts after a pause */
            w->fd[GNC_CONNECTION] = -1;
            const gnc_step *s = timer->script.steps;
            for (uint32_t left = gnc_steps(&timer->script); left--; s++) gnc_do(w, s, w->scratch, s->bytes);
        }
        if (w->due_ns[i] < w->first_due_ns) w->first_due_ns = w->due_ns[i];
    }
}

void gnc_loop(gnc_worker *w) {
    while (!gnc_stopping) {
        int count = wait_for_events(w);
        for (int i = 0; i < count; i++) dispatch(w, w->events[i].data.fd);
        if (w->later_count) gnc_phases(w);
        if (w->due_ns && w->now_ns >= w->first_due_ns) run_timers(w);
        if (w->paused && (count == 0 || w->freed)) gnc_listen(w);
    }
}
