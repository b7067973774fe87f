/* New connections: accepted by the worker that serves them, or by the main thread, which hands them over. */
#include <pthread.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "runtime.h"
#include "system.h"

int gnc_hands_over;

static const gnc_step *find(uint32_t from, enum gnc_call call) {
    const gnc_script *script = &gnc_the_model.on_accept;
    for (uint32_t i = from, count = gnc_steps(script); i < count; i++)
        if (script->steps[i].call == call) return &script->steps[i];
    return NULL;
}

/* The first step that is the worker's where the main thread accepts. */
static uint32_t first_of_worker(void) {
    const gnc_script *script = &gnc_the_model.on_accept;
    const gnc_step *s = find(0, GNC_EVENTFD_WRITE);
    if (s) return (uint32_t)(s - script->steps) + 1;
    if (!(s = find(0, GNC_EVENTFD_READ))) s = find(0, GNC_EPOLL_CTL);
    return s ? (uint32_t)(s - script->steps) : gnc_steps(script);
}

void gnc_listen(gnc_worker *w) {
    w->paused = w->freed = 0;
    /* Else one connection wakes them all. */
    uint32_t exclusive = gnc_worker_count > 1 && !gnc_hands_over ? (uint32_t)EPOLLEXCLUSIVE : 0;
    gnc_watch(w, EPOLL_CTL_ADD, w->listener, EPOLLIN | exclusive);
}

static int accept_one(gnc_worker *w, const gnc_step *s) {
    struct sockaddr_storage peer;
    socklen_t bytes = sizeof peer;
    if (s) gnc_enter(w, s->key, s->clocks);
    int flags = SOCK_CLOEXEC | (gnc_the_model.wait == GNC_BLOCKING ? 0 : SOCK_NONBLOCK);
    int fd = (int)GNC_SYSTEM(SYS_accept4, w->listener, &peer, &bytes, flags);
    if (fd == -EMFILE || fd == -ENFILE || fd == -ENOBUFS || fd == -ENOMEM) {
        gnc_watch(w, EPOLL_CTL_DEL, w->listener, 0); /* or the wait would return at once, again and again */
        w->paused = 1;
        w->freed = 0;
    }
    return fd;
}

static gnc_connection *open_connection(gnc_worker *w, int fd) {
    gnc_connection *c = gnc_connections[fd];
    if (!c) c = gnc_connections[fd] = gnc_allocate(sizeof *c);
    *c = (gnc_connection){.fd = fd, .open = 1, .owner = w, .in = c->in, .in_room = c->in_room, .out = c->out,
                          .out_room = c->out_room};
    return c;
}

static void hand_over(gnc_worker *w, int fd) {
    uint64_t one = 1;
    w->next_worker = w->next_worker + 1 < gnc_worker_count ? w->next_worker + 1 : 0;
    gnc_worker *other = gnc_workers[w->next_worker];
    uint32_t put = atomic_load_explicit(&other->ring_put, memory_order_relaxed);
    other->ring[put % GNC_FD_LIMIT] = fd; /* never full: there are not more descriptors */
    atomic_store_explicit(&other->ring_put, put + 1, memory_order_release);
    GNC_SYSTEM(SYS_write, other->fd[GNC_EVENT], &one, sizeof one);
}

/* Steps from `from` on, up to `to`; without `c` those of the main thread, which hands the descriptor over. Returns one
 * more connection that a later accept of the script found, or -1. */
static int set_up(gnc_worker *w, gnc_connection *c, int fd, uint32_t from, uint32_t to) {
    const gnc_step *first_accept = find(0, GNC_ACCEPT);
    int another = -1, is_handed = 0;
    w->fd[GNC_CONNECTION] = fd;
    for (const gnc_step *s = gnc_the_model.on_accept.steps + from; from < to; from++, s++) {
        int is_data = s->target == GNC_CONNECTION && s->call >= GNC_READ && s->call <= GNC_SENDFILE;
        int is_add = c && !c->watched && s->call == GNC_EPOLL_CTL && s->target == GNC_CONNECTION;
        if (s->call == GNC_ACCEPT) {
            int may_wait = gnc_the_model.wait == GNC_BLOCKING; /* for the next client, while this one is not served */
            if (s != first_accept && another < 0 && !may_wait) another = accept_one(w, s);
        } else if (is_add) {
            gnc_enter(w, s->key, s->clocks);
            gnc_watch_connection(w, c, EPOLL_CTL_ADD, EPOLLIN);
        } else if (!c && s->call == GNC_EVENTFD_WRITE) {
            gnc_enter(w, s->key, s->clocks);
            hand_over(w, fd);
            is_handed = 1;
        } else if (is_data) {
            gnc_enter(w, s->key, s->clocks); /* requests and replies are left to their scripts */
        } else if (!gnc_hands_over || s->call != GNC_EVENTFD_READ) {
            gnc_do(w, s, w->scratch, s->bytes);
        }
    }
    if (!c && !is_handed) hand_over(w, fd);
    if (c && !c->watched) gnc_watch_connection(w, c, EPOLL_CTL_ADD, EPOLLIN);
    return another;
}

void gnc_accept(gnc_worker *w) {
    uint32_t to = gnc_hands_over ? first_of_worker() : gnc_steps(&gnc_the_model.on_accept);
    int fd = accept_one(w, find(0, GNC_ACCEPT));
    while (fd >= 0) fd = set_up(w, gnc_hands_over ? NULL : open_connection(w, fd), fd, 0, to);
}

void gnc_take_over(gnc_worker *w) {
    uint32_t from = first_of_worker(), to = gnc_steps(&gnc_the_model.on_accept);
    const gnc_step *s = find(from, GNC_EVENTFD_READ);
    uint64_t count;
    if (s) gnc_do(w, s, NULL, 0);
    else GNC_SYSTEM(SYS_read, w->fd[GNC_EVENT], &count, sizeof count);
    uint32_t put = atomic_load_explicit(&w->ring_put, memory_order_acquire);
    for (; w->ring_got != put; w->ring_got++) {
        int fd = w->ring[w->ring_got % GNC_FD_LIMIT];
        set_up(w, open_connection(w, fd), fd, from, to);
    }
}

static pthread_mutex_t idle_lock = PTHREAD_MUTEX_INITIALIZER;
static gnc_worker *idle;

static void *serve_one(void *argument) {
    gnc_worker *w = argument;
    gnc_connection *c = w->only;
    gnc_memory_begin(w);
    while (c->open && !gnc_stopping) {
        gnc_ready(w, c);
        if (w->later_count) gnc_phases(w);
    }
    pthread_mutex_lock(&idle_lock);
    w->idle = idle;
    idle = w;
    pthread_mutex_unlock(&idle_lock);
    return NULL;
}

static gnc_worker *idle_worker(void) {
    static uint32_t made = 1;
    pthread_mutex_lock(&idle_lock);
    gnc_worker *w = idle;
    if (w) idle = w->idle;
    pthread_mutex_unlock(&idle_lock);
    if (w) return w;
    w = gnc_worker_new(made++, GNC_BLOCKING);
    gnc_worker_begin(w, -1, 0);
    return w;
}

/* A thread for each connection. Accepting blocks too; the end of the clone ends it by a shutdown of the socket. */
void gnc_accept_blocking(gnc_worker *w) {
    pthread_attr_t detached;
    pthread_attr_init(&detached);
    pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
    while (!gnc_stopping) {
        int fd = accept_one(w, find(0, GNC_ACCEPT));
        if (fd == -EINVAL) break;
        if (fd < 0 && w->paused) nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
        if (fd < 0) continue;
        gnc_worker *other = idle_worker();
        other->only = open_connection(other, fd);
        other->only->watched = 1;
        set_up(w, other->only, fd, 0, gnc_steps(&gnc_the_model.on_accept));
        pthread_t thread;
        if (pthread_create(&thread, &detached, serve_one, other) != 0) gnc_hang_up(other, other->only);
    }
    pthread_attr_destroy(&detached);
}
