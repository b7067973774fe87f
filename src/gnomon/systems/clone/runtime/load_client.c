/* Connections, what is sent over them and when, and what comes back. One thread waits for answers and for the time. */
#include <errno.h>
#include <math.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include "load.h"

enum { READ_BYTES = 1 << 18, EVENTS = 512, DECK = 256, FILL_AT_ONCE = 32, FILL_BYTES = 1 << 16, MOST_FAILURES = 200 };

enum state { CLOSED, CONNECTING, IDLE, BUSY };

typedef struct connection {
    int fd;
    enum state state;
    uint8_t is_queued;             /* among those that are idle, or were */
    uint8_t waits;                 /* for room to send */
    uint32_t owed, first;          /* answers, and the request that the next is to */
    const load_request **asked;    /* in a ring of as many as are sent at once */
    uint64_t due_ns;
    char *out;
    size_t out_done, out_have, out_room;
    load_answer answer;
} connection;

static struct sockaddr_storage address;
static socklen_t address_bytes;
static connection *connections;
static uint32_t *idle, idle_first, idle_count;
static int epoll, timer;
static uint64_t random_state, deadline_ns;
static uint32_t failures;                 /* since the last answer */
static char *read_buffer;

/* One run: filling one kind of data in, or the load itself. */
static load_request *filling;             /* NULL: the load */
static uint64_t total, sent, finished, fill_failures, next_due_ns;
static uint32_t at_once;
static double gap_ns;                     /* mean, of what is sent at once; 0: a closed loop */

uint64_t load_now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static uint64_t draw(void) {
    uint64_t x = random_state += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

uint32_t load_phase_at(uint64_t ns, uint64_t *end_ns) {
    static uint64_t cycle_ns, begin_ns; /* of a cycle, by the clock that `ns` is read from */
    const gnc_traffic *traffic = &gnc_the_traffic;
    *end_ns = UINT64_MAX;
    if (!traffic->phases) return 0;
    if (!cycle_ns) {
        struct timespec now;
        clock_gettime(CLOCK_REALTIME, &now);
        for (uint32_t i = 0; i < traffic->phases; i++) cycle_ns += traffic->phase[i].ns;
        uint64_t at = ((uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec) % cycle_ns;
        begin_ns = load_now_ns() % cycle_ns + cycle_ns - at;
    }
    uint64_t at = (ns + cycle_ns - begin_ns % cycle_ns) % cycle_ns;
    uint32_t i = 0;
    for (; at >= traffic->phase[i].ns; i++) at -= traffic->phase[i].ns;
    *end_ns = ns + traffic->phase[i].ns - at;
    return i;
}

/* When the next is due: `gap_ns` later at the usual rate. */
static uint64_t later(uint64_t ns, double gap_ns) {
    for (;;) {
        uint64_t end_ns;
        uint32_t phase = load_phase_at(ns, &end_ns);
        double rate = gnc_the_traffic.phases ? gnc_the_traffic.phase[phase].rate : 1;
        if (gap_ns <= rate * (double)(end_ns - ns)) return ns + (uint64_t)(gap_ns / rate);
        gap_ns -= rate * (double)(end_ns - ns);
        ns = end_ns;
    }
}

static double draw_share(void) { return (double)(draw() >> 11) * 0x1p-53; }

static double draw_gap(void) {
    const gnc_traffic *traffic = &gnc_the_traffic;
    return traffic->gaps ? traffic->gap[draw() % traffic->gaps] : -log(1 - draw_share());
}

/* Classes by their weights, dealt out like cards: each comes as often as it should in every DECK requests, so that
 * short runs can be compared. */
static uint32_t draw_class(uint32_t phase) {
    static uint32_t deck[DECK], left, phase_of_deck;
    if (!left || phase != phase_of_deck) {
        double first = draw_share(), *until = load_traffic.until[phase_of_deck = phase];
        left = 0;
        for (uint32_t class = 0; left < DECK; left++) {
            while (class + 1 < load_traffic.count && (first + left) / DECK >= until[class]) class++;
            deck[left] = class;
        }
        for (uint32_t i = DECK - 1; i; i--) {
            uint32_t j = (uint32_t)(draw() % (i + 1)), swapped = deck[i];
            deck[i] = deck[j];
            deck[j] = swapped;
        }
    }
    return deck[--left];
}

/* The next request, due at a time, with its key. */
static load_request *next_request(uint64_t due_ns) {
    load_request *r = filling;
    uint64_t end_ns;
    if (r) {
        if (r->digits) load_set_key(r, r->first_key + sent);
        return r;
    }
    r = &load_traffic.one[draw_class(load_phase_at(due_ns, &end_ns))];
    if (r->digits && r->keys) load_set_key(r, r->first_key + draw() % r->keys);
    return r;
}

/* --- connections -------------------------------------------------------------------------------------------------- */

static void watch(connection *c, int op, uint32_t events) {
    struct epoll_event event = {.events = events, .data.ptr = c};
    epoll_ctl(epoll, op, c->fd, &event);
}

static int open_socket(void) {
    int one = 1, fd = socket(address.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) load_fail("socket", strerror(errno));
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (connect(fd, (struct sockaddr *)&address, address_bytes) == 0 || errno == EINPROGRESS) return fd;
    int why = errno;
    close(fd);
    errno = why;
    return -1;
}

/* Waits for a connection. Returns it, or -1 with errno set. */
static int connect_now(void) {
    int fd = open_socket(), why = 0;
    socklen_t bytes = sizeof why;
    if (fd < 0) return -1;
    struct pollfd one = {.fd = fd, .events = POLLOUT};
    uint64_t now = load_now_ns();
    if (poll(&one, 1, now < deadline_ns ? (int)((deadline_ns - now) / 1000000 + 1) : 0) < 1) why = ETIMEDOUT;
    else getsockopt(fd, SOL_SOCKET, SO_ERROR, &why, &bytes);
    if (!why) return fd;
    close(fd);
    errno = why;
    return -1;
}

static void find_server(void) {
    char port[8], where[300];
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found = NULL;
    uint64_t until = load_now_ns() + (uint64_t)(load_options.wait_s * 1e9);
    snprintf(port, sizeof port, "%d", load_options.port);
    snprintf(where, sizeof where, "%.200s:%d", load_options.host, load_options.port);
    for (;;) {
        int error = getaddrinfo(load_options.host, port, &hints, &found), fd = -1;
        for (struct addrinfo *one = found; !error && one && fd < 0; one = one->ai_next) {
            memcpy(&address, one->ai_addr, one->ai_addrlen);
            address_bytes = one->ai_addrlen;
            fd = connect_now();
        }
        int why = errno;
        if (!error) freeaddrinfo(found);
        if (fd >= 0) {
            close(fd);
            return;
        }
        if (load_now_ns() >= until) load_fail(where, error ? gai_strerror(error) : strerror(why));
        nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
    }
}

static void set_idle(connection *c) {
    c->state = IDLE;
    if (c->is_queued) return;
    c->is_queued = 1;
    idle[(idle_first + idle_count++) % load_options.connections] = (uint32_t)(c - connections);
}

static connection *take_idle(void) {
    while (idle_count) {
        connection *c = &connections[idle[idle_first]];
        idle_first = (idle_first + 1) % load_options.connections;
        idle_count--;
        c->is_queued = 0;
        if (c->state == IDLE) return c;
    }
    return NULL;
}

static void open_connections(void) {
    connections = load_allocate(load_options.connections * sizeof *connections);
    idle = load_allocate(load_options.connections * sizeof *idle);
    uint32_t most = gnc_the_traffic.pipeline > FILL_AT_ONCE ? gnc_the_traffic.pipeline : FILL_AT_ONCE;
    for (uint32_t i = 0; i < load_options.connections; i++) {
        connection *c = &connections[i];
        c->asked = load_allocate(most * sizeof *c->asked);
        if ((c->fd = connect_now()) < 0) load_fail("cannot connect", strerror(errno));
        watch(c, EPOLL_CTL_ADD, EPOLLIN);
        set_idle(c);
    }
}

static _Noreturn void give_up(void) {
    if (load_seen.answers) load_fail("the server does not take connections any more", NULL);
    load_fail("the server closes connections, and load_seen.answers nothing", "does it speak this protocol?");
}

/* Begins a new connection in its place; load_seen.answers that are owed are lost. */
static void reopen(connection *c) {
    if (++failures > MOST_FAILURES + 2 * load_options.connections) give_up();
    if (!filling) load_seen.errors += c->owed;
    finished += c->owed;
    c->owed = 0;
    c->waits = 0;
    c->out_done = c->out_have = 0;
    load_begin_answer(&c->answer);
    if (c->state != CLOSED) close(c->fd);
    c->state = CLOSED;
    while ((c->fd = open_socket()) < 0) {
        if (++failures > MOST_FAILURES + 2 * load_options.connections || load_now_ns() > deadline_ns) give_up();
        nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
    }
    c->state = CONNECTING;
    watch(c, EPOLL_CTL_ADD, EPOLLOUT);
}

static void connected(connection *c) {
    int why = 0;
    socklen_t bytes = sizeof why;
    getsockopt(c->fd, SOL_SOCKET, SO_ERROR, &why, &bytes);
    if (why) {
        nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL); /* nobody else is served either */
        reopen(c);
        return;
    }
    watch(c, EPOLL_CTL_MOD, EPOLLIN);
    set_idle(c);
}

/* --- sending ------------------------------------------------------------------------------------------------------ */

static void keep(connection *c, const char *at, size_t bytes) {
    if (c->out_have + bytes > c->out_room) {
        c->out_room = 2 * (c->out_have + bytes);
        c->out = realloc(c->out, c->out_room);
        if (!c->out) load_fail("out of memory", NULL);
    }
    memcpy(c->out + c->out_have, at, bytes);
    c->out_have += bytes;
}

/* Returns how many bytes were sent, or -1 when the connection was lost, and is a new one. */
static long send_bytes(connection *c, const char *at, size_t bytes) {
    ssize_t done = send(c->fd, at, bytes, MSG_NOSIGNAL);
    if (done < 0 && errno != EAGAIN && errno != EINTR) return reopen(c), -1;
    if (done < 0) done = 0;
    load_seen.bytes_sent += (uint64_t)done;
    return done;
}

static void flush(connection *c) {
    long done = send_bytes(c, c->out + c->out_done, c->out_have - c->out_done);
    if (done < 0) return;
    c->out_done += (size_t)done;
    int waits = c->out_done < c->out_have;
    if (!waits) c->out_done = c->out_have = 0;
    if (waits != c->waits) watch(c, EPOLL_CTL_MOD, waits ? EPOLLIN | EPOLLOUT : EPOLLIN);
    c->waits = (uint8_t)waits;
}

static void send_requests(connection *c, uint64_t due_ns) {
    uint64_t count = total - sent < at_once ? total - sent : at_once;
    c->state = BUSY;
    c->due_ns = due_ns;
    c->first = 0;
    c->owed = (uint32_t)count;
    load_begin_answer(&c->answer);
    for (uint32_t i = 0; i < count; i++, sent++) {
        load_request *r = next_request(due_ns);
        c->asked[i] = r;
        if (count > 1) {
            keep(c, r->text, r->bytes);
            continue;
        }
        sent++;
        long done = send_bytes(c, r->text, r->bytes);
        if (done < 0 || (size_t)done == r->bytes) return;
        keep(c, r->text + done, r->bytes - (size_t)done);
        break;
    }
    flush(c);
}

/* --- answers ------------------------------------------------------------------------------------------------------ */

static void answered(connection *c) {
    failures = 0;
    finished++;
    c->owed--;
    c->first++;
    if (filling) {
        fill_failures += c->answer.is_error;
        return;
    }
    load_seen.answers++;
    if (c->answer.is_error) load_seen.errors++;
    uint64_t now = load_now_ns(), end_ns;
    load_count_latency(now - c->due_ns);
    if (load_seen.phase) load_seen.phase[load_phase_at(now, &end_ns)].answers++;
}

/* Returns whether the connection can be used on. */
static int take(connection *c, const char *at, size_t have) {
    while (have) {
        int is_done;
        if (!c->owed) return gnc_the_traffic.protocol == GNC_TRAFFIC_RAW; /* bytes that nobody asked for */
        size_t used = load_read_answer(&c->answer, c->asked[c->first], at, have, &is_done);
        at += used;
        have -= used;
        if (!is_done) continue;
        int ends = c->answer.ends;
        answered(c);
        load_begin_answer(&c->answer);
        if (ends) return 0;
    }
    return 1;
}

static void receive(connection *c) {
    ssize_t got = recv(c->fd, read_buffer, READ_BYTES, 0);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (got <= 0) {
        if (got == 0 && c->owed && c->answer.until_close) answered(c);
        reopen(c);
        return;
    }
    load_seen.bytes_received += (uint64_t)got;
    if (!take(c, read_buffer, (size_t)got)) reopen(c);
    else if (!c->owed && c->state == BUSY) set_idle(c);
}

void load_connect(void) {
    deadline_ns = load_now_ns() + (uint64_t)(load_options.timeout_s * 1e9);
    random_state = load_options.seed;
    read_buffer = load_allocate(READ_BYTES);
    epoll = epoll_create1(EPOLL_CLOEXEC);
    timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    struct epoll_event event = {.events = EPOLLIN | (uint32_t)EPOLLET};
    if (epoll < 0 || timer < 0 || epoll_ctl(epoll, EPOLL_CTL_ADD, timer, &event) < 0)
        load_fail("epoll", strerror(errno));
    find_server();
    open_connections();
}

/* --- the loop ----------------------------------------------------------------------------------------------------- */

/* Sends all that is due on connections that are idle. Returns whether an idle one waits for the next; `is_waiting` is
 * what it returned last. */
static int send_due(int is_waiting) {
    uint64_t now = load_now_ns();
    while (sent < total) {
        if (gap_ns > 0 && next_due_ns > now && next_due_ns > (now = load_now_ns())) return idle_count > 0;
        connection *c = take_idle();
        if (!c) return 0;
        if (!(gap_ns > 0)) {
            send_requests(c, load_now_ns());
            continue;
        }
        if (is_waiting) { /* else it was the server that kept the request waiting */
            load_seen.late_sum_ns += (double)(now - next_due_ns);
            load_seen.late_count++;
            is_waiting = 0;
        }
        send_requests(c, next_due_ns);
        next_due_ns = later(next_due_ns, gap_ns * draw_gap());
    }
    return 0;
}

static void set_timer(uint64_t at_ns) {
    struct itimerspec when = {.it_value = {(time_t)(at_ns / 1000000000u), (long)(at_ns % 1000000000u)}};
    timerfd_settime(timer, TFD_TIMER_ABSTIME, &when, NULL);
}

/* Returns whether all was answered, or lost, in time. */
static int run(load_request *fill, uint64_t count) {
    struct epoll_event events[EVENTS];
    int is_waiting = 0;
    filling = fill;
    total = count;
    sent = finished = 0;
    gap_ns = fill || load_options.rate <= 0 ? 0 : 1e9 * at_once / load_options.rate;
    next_due_ns = later(load_now_ns(), gap_ns * draw_gap());
    while (finished < total) {
        uint64_t now = load_now_ns();
        if (now >= deadline_ns) return 0;
        if ((is_waiting = send_due(is_waiting))) set_timer(next_due_ns);
        uint64_t left_ms = (deadline_ns - now) / 1000000 + 1;
        int ready = epoll_wait(epoll, events, EVENTS, left_ms < 1000 ? (int)left_ms : 1000);
        for (int i = 0; i < ready; i++) {
            connection *c = events[i].data.ptr;
            if (!c) continue; /* the timer: edge-triggered, and not to be read */
            if (c->state == CONNECTING) {
                connected(c);
                continue;
            }
            int fd = c->fd;
            if (c->waits && events[i].events & EPOLLOUT) flush(c);
            if (c->fd == fd && c->state != CONNECTING && events[i].events & (EPOLLIN | EPOLLERR | EPOLLHUP)) receive(c);
        }
    }
    return 1;
}

int load_fill_in(void) {
    for (uint32_t i = 0; i < load_fill.count; i++) {
        load_request *r = &load_fill.one[i];
        at_once = FILL_BYTES / r->bytes < FILL_AT_ONCE ? FILL_BYTES / r->bytes + 1 : FILL_AT_ONCE;
        if (!run(r, r->digits ? r->keys : 1)) return 0;
    }
    if (fill_failures)
        fprintf(stderr, "load: the server refused %llu of the values that will be read\n",
                (unsigned long long)fill_failures);
    return 1;
}

int load_run(void) {
    at_once = gnc_the_traffic.pipeline ? gnc_the_traffic.pipeline : 1;
    load_seen.bytes_sent = load_seen.bytes_received = 0;
    uint32_t phases = gnc_the_traffic.phases;
    uint64_t ns = load_now_ns();
    if (phases) load_seen.phase = load_allocate(phases * sizeof *load_seen.phase);
    int is_done = run(NULL, load_options.requests);
    for (uint64_t end_ns, now = load_now_ns(); phases && ns < now; ns = end_ns) {
        uint32_t phase = load_phase_at(ns, &end_ns);
        load_seen.phase[phase].ns += (end_ns < now ? end_ns : now) - ns;
    }
    load_seen.sent = sent;
    if (!is_done) load_seen.errors += sent - finished;
    return is_done;
}
