/* What the files of the runtime share: a worker, a connection, and who does what with them. */
#ifndef GNC_RUNTIME_H
#define GNC_RUNTIME_H

#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sys/epoll.h>
#include <sys/poll.h>
#include <sys/select.h>
#include <time.h>

#include "model.h"

enum { GNC_FD_LIMIT = 65536, GNC_REQUEST_LIMIT = 64 << 20, GNC_OPEN_FILES = 8 };

/* A complete request in the buffer of its connection, as far as the reply depends on it. */
typedef struct gnc_request {
    uint32_t bytes;
    uint32_t word;         /* as in gnc_kind_of_request */
    uint32_t key_bytes;
    const char *key;       /* memcached echoes it */
    const char *text;      /* the whole reply, for requests outside the model; NULL: of a size that is drawn */
    uint32_t text_bytes;   /* 0: no reply */
    uint8_t is_get, has_version, is_head, ends;
} gnc_request;

/* What a step of a request script is about. */
enum gnc_kind {
    GNC_STEP_PLAIN,
    GNC_STEP_RECEIVE,
    GNC_STEP_SEND,
    GNC_STEP_SEND_LAST, /* all that is left of the reply */
    GNC_STEP_CLOSE,
    GNC_STEP_SHUTDOWN,
    GNC_STEP_WAIT, /* for what may not be waited for here: whether there is more to do */
};

/* A request script, with what would otherwise be looked up for every request. */
typedef struct gnc_variant {
    const gnc_script *script;
    uint32_t until;        /* cumulated share, of 2^32 */
    uint32_t head_bytes;   /* of an HTTP reply whose header is sent by a call of its own; 0: not so */
    uint8_t *kinds;        /* of the steps, as gnc_kind */
    uint8_t closes;        /* the connection, when it has answered: the reply says so */
    uint32_t *size_until;  /* cumulated weights, of 2^32 */
} gnc_variant;

typedef struct gnc_worker gnc_worker;

typedef struct gnc_connection {
    int fd;
    uint8_t open, watched;
    uint8_t owed;      /* `request` has a reply that is not composed yet */
    uint8_t blocked;   /* `out` waits for the socket */
    uint8_t drained;   /* the last read found nothing */
    uint8_t ends;      /* to be closed when all is sent */
    uint8_t later;     /* in the worker's list for the next phase */
    uint16_t next;     /* step of the next phase */
    uint32_t size;     /* of the reply that is owed */
    const gnc_variant *variant;
    gnc_worker *owner; /* an event that a former owner still holds is not for it */
    char *in, *out;    /* kept for the next connection with this descriptor */
    uint32_t in_room, in_done, in_have;
    uint32_t out_room, out_done, out_have;
    gnc_request request;
} gnc_connection;

struct gnc_worker {
    uint32_t previous;           /* key of the last call */
    uint32_t connection;         /* descriptor of the last call on one */
    uint32_t wakeup;             /* kind of the last wake-up, by how many events it had */
    uint32_t kind;               /* of the last request, */
    uint32_t kind_word, kind_bytes; /* and what it was told by */
    int fd[GNC_EVENT + 1];       /* by gnc_target, of what is being handled */
    uint64_t random;
    uint64_t now_ns;             /* when the clock was last read */
    const char *from;            /* the reply being sent, */
    uint32_t left, head;         /* what is left of it, and of its HTTP header */
    char *reply, *scratch;       /* replies are composed in one, files read into the other */
    uint64_t composed;           /* which reply `reply` holds, and how long that and its HTTP header are */
    uint32_t composed_bytes, composed_head;
    int opened[GNC_OPEN_FILES], depth, standing_file;
    uint32_t file_at, logged;
    gnc_connection **later;      /* with steps in the next phase */
    uint32_t later_count;
    uint8_t read_ahead;          /* a step other than the first of a script has read something */
    uint8_t wait;                /* as gnc_model.wait; a worker with one connection blocks */
    int epoll;
    uint32_t event_room;
    struct epoll_event *events;
    struct pollfd *polls;        /* by descriptor */
    int polled;                  /* highest descriptor + 1 */
    fd_set reads, writes;
    uint64_t *due_ns, first_due_ns; /* by timer; none: this worker runs none */
    int listener;                /* -1: others accept */
    uint8_t paused, freed;       /* out of descriptors; one was closed since */
    uint32_t next_worker;        /* that is handed a connection or woken */
    int *ring;                   /* descriptors that the main thread hands over */
    _Atomic uint32_t ring_put, ring_got;
    void *memory;                /* of the edges */
    unsigned char **memories;    /* in it, that requests take turns with, */
    uint32_t turn, copy;         /* whose turn it is, and the first kind of the copy whose turn it is */
    gnc_connection *only;        /* where each connection has its thread, */
    gnc_worker *idle;            /* and the next in the list of those without one */
};

extern volatile sig_atomic_t gnc_stopping;
extern int gnc_stop_fd;                    /* readable, and never read, once the clone is to end */
extern gnc_worker **gnc_workers;
extern uint32_t gnc_worker_count;
extern int gnc_hands_over;                 /* the main thread accepts, workers serve */
extern gnc_connection *gnc_connections[GNC_FD_LIMIT];
extern char gnc_file_path[], gnc_log_path[];

/* calls.c: one step. `at` and `bytes` are what is read into or sent; calls without data ignore them. */
void gnc_clocks(gnc_worker *w, uint32_t count);
static inline void gnc_enter(gnc_worker *w, uint32_t key, uint32_t clocks) {
    if (clocks) gnc_clocks(w, clocks);
    gnc_edge edge = gnc_the_model.edges[w->previous * gnc_the_model.keys + key];
    uint32_t kind = w->previous ? w->kind : w->wakeup; /* key 0 is the wait */
    w->previous = key;
    if (edge) edge(kind + w->copy, w->connection, (uint32_t)w->fd[GNC_CONNECTION]);
}
long gnc_do(gnc_worker *w, const gnc_step *s, void *at, size_t bytes);
uint32_t gnc_steps(const gnc_script *script);

/* request.c, reply.c: the protocol. gnc_parse: 1 a request, 0 not complete, -1 not of this protocol. */
int gnc_parse(const char *at, uint32_t have, gnc_request *r);
void gnc_compose(gnc_worker *w, const gnc_request *r, uint32_t bytes, uint32_t head_bytes);

/* plan.c: which script, which size. */
void gnc_plan(void);
enum gnc_kind gnc_kind_of(const gnc_step *s);
const gnc_variant *gnc_draw_variant(gnc_worker *w);
uint32_t gnc_draw_size(gnc_worker *w, const gnc_variant *v);
void gnc_tell_kind(gnc_worker *w, const gnc_request *r);

/* turns.c: the memory of edges. */
size_t gnc_data_bytes(void);
void gnc_memory_begin(gnc_worker *w);
void gnc_turn(gnc_worker *w);

/* script.c: requests. */
void gnc_ready(gnc_worker *w, gnc_connection *c);
void gnc_phases(gnc_worker *w);
void gnc_hang_up(gnc_worker *w, gnc_connection *c);

/* loop.c: events. */
void gnc_watch(gnc_worker *w, int op, int fd, uint32_t events);
void gnc_watch_connection(gnc_worker *w, gnc_connection *c, int op, uint32_t events);
void gnc_loop(gnc_worker *w);
void gnc_look(gnc_worker *w, const gnc_step *s);

/* background.c: threads that work by the clock, and not for requests. */
void gnc_begin_background(void);
extern _Atomic uint32_t gnc_served; /* counts requests, for them */

/* accept.c: new connections. */
void gnc_listen(gnc_worker *w);
void gnc_accept(gnc_worker *w);
void gnc_take_over(gnc_worker *w);
void gnc_accept_blocking(gnc_worker *w);

/* worker.c: made by the main thread, begun by its own. */
gnc_worker *gnc_worker_new(uint32_t index, enum gnc_wait wait);
void gnc_worker_begin(gnc_worker *w, int listener, int runs_timers);
void *gnc_allocate(size_t bytes);
_Noreturn void gnc_fail(const char *what);

#endif
