/* What a clone does, as data: filled in by the generated model.c, carried out by the runtime.
 *
 * A worker waits for events. A connection that is ready is handled by a script: system calls in the order in which the
 * original made them. Between two system calls the worker executes an edge: generated code with the instructions, memory
 * accesses and branches that the original had there. Nothing of the original is in here but counts and sizes. */
#ifndef GNC_MODEL_H
#define GNC_MODEL_H

#include <stdint.h>

/* System calls that scripts are made of; GNC_OTHER is a call that is only counted. */
enum gnc_call {
    GNC_WAIT,      /* for events: as model.wait says */
    GNC_ACCEPT,    /* accept4 */
    GNC_READ,      /* from the connection or a file */
    GNC_RECVFROM,
    GNC_RECVMSG,
    GNC_WRITE,     /* to the connection, a log or a file */
    GNC_WRITEV,
    GNC_SENDTO,
    GNC_SENDMSG,
    GNC_SENDFILE,  /* from the last opened file to the connection */
    GNC_OPEN,      /* a scratch file */
    GNC_CLOSE,     /* the connection or the last opened file */
    GNC_STAT,      /* newfstatat with a path */
    GNC_FSTAT,
    GNC_LSEEK,
    GNC_PREAD,
    GNC_PWRITE,
    GNC_FSYNC,
    GNC_FDATASYNC,
    GNC_EPOLL_CTL,
    GNC_SETSOCKOPT,
    GNC_GETSOCKNAME,
    GNC_GETPEERNAME,
    GNC_FCNTL,
    GNC_IOCTL,
    GNC_MADVISE,
    GNC_GETPID,
    GNC_SHUTDOWN,
    GNC_EVENTFD_WRITE, /* to another worker */
    GNC_EVENTFD_READ,
    GNC_OTHER,
};

enum gnc_target { GNC_NONE, GNC_CONNECTION, GNC_FILE, GNC_LOG, GNC_EVENT };

/* One system call. `key` names it among the model's calls: edges are between keys. */
typedef struct gnc_step {
    uint16_t key;
    uint8_t call, target;
    uint32_t bytes;   /* asked for, or to be sent where `is_reply` is 0 */
    uint8_t is_reply; /* to the connection: the size comes from the reply sizes of the script */
    uint8_t clocks;   /* reads of the clock before it: these enter no kernel natively */
} gnc_step;

/* What is done for one request, or at a timer, or for a new connection. Steps of phase 0 are carried out for a ready
 * connection at once; those of phase 1 after phase 0 of all that were ready, and so on. A phase that begins with GNC_WAIT is
 * of a later wake-up. The first step of phase 0 of a request script is the one that reads the request. */
typedef struct gnc_script {
    double share;            /* among scripts of its kind */
    uint16_t phases;         /* 1 or more; 0: no such script */
    const uint16_t *counts;  /* of steps, one each phase */
    const gnc_step *steps;   /* of all phases */
    uint32_t sizes;          /* reply sizes: total bytes that a request sends to its connection, */
    const uint32_t *size;    /* and how often each was seen */
    const uint32_t *weight;
} gnc_script;

typedef struct gnc_timer {
    double period_s;
    gnc_script script;
} gnc_timer;

enum gnc_wait { GNC_EPOLL, GNC_POLL, GNC_SELECT, GNC_BLOCKING };
enum gnc_workers { GNC_SINGLE, GNC_THREADS, GNC_PROCESSES };   /* who serves */
enum gnc_accepts { GNC_ACCEPT_EACH, GNC_ACCEPT_MAIN };         /* every worker, or the main thread, which hands over */
enum gnc_protocol { GNC_RESP, GNC_MEMCACHED, GNC_HTTP, GNC_LENGTH, GNC_RAW };

/* Requests that the original handled in a way of their own. */
typedef struct gnc_kind_of_request {
    uint32_t word;         /* the first four letters of the command, small; 0: the protocol has none */
    uint32_t bytes;
    uint32_t sizes;        /* of replies, */
    const uint32_t *size;
    const uint32_t *weight; /* and how often each was seen */
} gnc_kind_of_request;

enum { GNC_WAKEUPS = 18 }; /* kinds of wake-ups */

/* After a wait, `kind` is that of the wake-up. */
typedef void (*gnc_edge)(uint32_t kind, uint32_t connection, uint32_t next);

/* A thread that sleeps and works in turns: for how long it sleeps while requests come, and while none do. */
typedef struct gnc_background {
    gnc_edge edge;
    uint32_t busy_us, idle_us;
} gnc_background;
/* What requests take turns with, in a clone with other data or code than its original's. */
typedef struct gnc_phase {
    uint64_t ns;
    uint32_t memories;
} gnc_phase;

typedef struct gnc_turns {
    uint32_t memories;       /* of `data_bytes` each, a worker: as many as the phase with most of them uses */
    uint32_t copies;         /* of the code: edges know kind k of copy c as c * K + k, K being `kinds` or GNC_WAKEUPS */
    uint32_t phases;         /* 1 or more; a cycle that began when 1970 did */
    const gnc_phase *phase;
} gnc_turns;

typedef struct gnc_model {
    uint16_t keys;                 /* GNC_WAIT has key 0 */
    const gnc_edge *edges;         /* [from * keys + to]; NULL: nothing to execute */
    uint8_t wait, workers, accepts, protocol;
    uint16_t worker_count;
    uint16_t wait_events;          /* that one call of wait may return */
    int32_t wait_timeout_ms;       /* -1: none */
    uint8_t wait_clocks;           /* reads of the clock after it returned */
    uint8_t reads_on;              /* from a connection that it has answered, until EAGAIN */
    gnc_script on_accept, on_close; /* besides accept4 and close themselves */
    uint16_t request_scripts;
    const gnc_script *requests;
    uint16_t timers;
    const gnc_timer *timer;
    uint16_t backgrounds;
    const gnc_background *background;
    uint16_t kinds;                /* of requests; 0: all are alike */
    const gnc_kind_of_request *kind;
    uint32_t file_bytes;           /* of the scratch file that requests open */
    uint32_t data_bytes;           /* that edges work on, a worker */
    const gnc_turns *turns;        /* NULL: one memory, one copy */
} gnc_model;

extern const gnc_model gnc_the_model;

/* The memory that edges work on, set up by the generated code for each worker before its first edge. Begin makes it
 * `gnc_memory`; another that was begun before may take its place between two edges. */
extern void gnc_edges_begin(void *memory);
extern _Thread_local unsigned char *gnc_memory;

#endif
