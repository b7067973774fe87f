/* gnomon threads: functions that can be preempted within microseconds, and a pool that schedules them.
 *
 * Two levels. A thread that attaches to a preemption source launches and resumes functions by itself:
 *
 *     gnt_source *source = gnt_source_open("safepoint", NULL, 0);
 *     gnt_attach(source);
 *     gnt_context *context = gnt_context_new(0);
 *     int status = gnt_launch(context, work, &argument, 10000);          // 10 us at most
 *     while (status == GNT_PREEMPTED) status = gnt_resume(context, 10000);
 *
 * A pool has workers, a scheduling policy and a quantum, and does that for you:
 *
 *     gnt_pool_options options = GNT_POOL_OPTIONS;
 *     gnt_pool *pool = gnt_pool_start(&options, error, sizeof error);
 *     gnt_job job = {.function = scan, .argument = request, .kind = 1, .on_done = reply};
 *     gnt_submit(pool, &job, NULL);
 *     gnt_pool_stop(pool, 1);
 *
 * Times are nanoseconds of CLOCK_MONOTONIC. Functions return 0 or a positive status; what is negative is
 * an error (`gnt_error`). What a preempted function must not do, and how it is kept from it: "Safety" below. */
#ifndef GNOMON_THREADS_H
#define GNOMON_THREADS_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define GNT_API __attribute__((visibility("default")))
#define GNT_NEVER INT64_MAX

enum { /* of a launched function */
    GNT_COMPLETED = 0,
    GNT_PREEMPTED = 1, /* its limit passed */
    GNT_YIELDED = 2,   /* it called gnt_yield */
    GNT_CANCELLED = 3,
};

enum {
    GNT_EINVAL = -1,   /* an argument is wrong */
    GNT_ENOMEM = -2,   /* no memory, or the pool is full */
    GNT_ESTATE = -3,   /* not attached, not launched, already running, inside a guard */
    GNT_EFORKED = -4,  /* the process has forked: threads of the parent do not exist here */
    GNT_ESOURCE = -5,  /* this machine does not have the source */
    GNT_ESTOPPED = -6, /* the pool is being stopped */
    GNT_ESTATIC = -7,  /* libc is part of the program: gnt_allow_range says what may be preempted */
};
GNT_API const char *gnt_error(int code);

/* The library's clock. */
GNT_API int64_t gnt_now(void);

/* ---- Preemption sources ----------------------------------------------------------------------
 *
 *  safepoint    a thread that spins raises a flag, which the function polls (gnt_poll)
 *  clock        the function polls the clock: no thread, 20 to 40 ns a poll
 *  signal       a thread that spins sends a signal: functions need not poll
 *  sleeper      a thread that sleeps sends a signal: no core is burnt, later by some 20 us
 *  posix_timer  a timer of the kernel sends a signal: no thread
 *  uintr        user interrupts (Sapphire Rapids and later, with a kernel that has them)
 *  none         nothing is preempted
 *  auto         those of this machine are measured for some 0.2 s, and the cheapest is taken */
typedef struct gnt_source gnt_source;

/* NULL if it cannot be had; `why` then says why, else, for `auto`, why this one. May be NULL. */
GNT_API gnt_source *gnt_source_open(const char *name, char *why, size_t size);
/* `auto` for functions that do not poll. */
GNT_API gnt_source *gnt_source_open_auto(int polls, char *why, size_t size);
GNT_API const char *gnt_source_name(const gnt_source *source);
/* After every thread has detached; before, it does nothing. */
GNT_API void gnt_source_close(gnt_source *source);

/* ---- Preemptible functions ------------------------------------------------------------------- */

typedef intptr_t (*gnt_function)(void *argument);
typedef struct gnt_context gnt_context;

/* The calling thread can launch functions from now on. */
GNT_API int gnt_attach(gnt_source *source);
GNT_API int gnt_detach(void);

/* A stack of at most 64 MiB above a guard of 64 KiB; 0: 64 KiB. NULL: no memory, or too large. Compile functions with
 * larger frames with -fstack-clash-protection: they would step over the guard. */
GNT_API gnt_context *gnt_context_new(size_t stack_bytes);
GNT_API void gnt_context_free(gnt_context *context);

/* Runs the function until it ends, yields, or is preempted `limit_ns` from now. With a limit of 0 it is only made
 * ready for `gnt_resume`. A context whose function has ended can be launched again. */
GNT_API int gnt_launch(gnt_context *context, gnt_function function, void *argument, int64_t limit_ns);
/* On the thread that launched it. */
GNT_API int gnt_resume(gnt_context *context, int64_t limit_ns);
/* Drops a function that is not running. Its stack is used again: nothing is unwound. */
GNT_API int gnt_cancel(gnt_context *context);
GNT_API int gnt_completed(const gnt_context *context);
GNT_API intptr_t gnt_result(const gnt_context *context);

/* Inside a function: */
GNT_API int gnt_yield(void);
GNT_API int gnt_rearm(int64_t limit_ns); /* a new limit from now on */
GNT_API int gnt_is_cancelled(void);      /* somebody wants this task of a pool to end */

/* ---- Safety ------------------------------------------------------------------------------------
 *
 * A function is preempted at a poll, or by a signal anywhere in code that may be: modules that were allowed. The
 * module of a launched function is, unless it is libc or another run-time library; so a function is never cut inside
 * them. A module that was allowed stays loaded. Locks of your own are another matter: whoever takes a lock that a preempted function holds waits for ever.
 * Guard what must not be cut; guards nest. */

GNT_API int gnt_allow_module(const void *address_inside);
GNT_API int gnt_allow_range(const void *begin, const void *end);
/* Everything may be cut, but for what guards protect: link or preload the guard library, which guards malloc, stdio,
 * mutexes, pthread_once and the making of function-local statics. */
GNT_API void gnt_allow_everything(int is_allowed);

/* What the inline functions below look at; the rest of a thread's state is not public. */
typedef struct gnt_lane {
    uint32_t flag;              /* raised: call gnt_poll_slow */
    volatile uint32_t depth;    /* guards */
    volatile uint32_t deferred; /* a preemption waits for the last guard to end */
} gnt_lane;
extern GNT_API __thread gnt_lane *gnt_self __attribute__((tls_model("initial-exec")));
GNT_API void gnt_poll_slow(void);

static inline void gnt_poll(void) {
    gnt_lane *self = gnt_self;
    if (__builtin_expect(self != NULL && __atomic_load_n(&self->flag, __ATOMIC_RELAXED) != 0, 0)) gnt_poll_slow();
}

static inline void gnt_guard_enter(void) {
    gnt_lane *self = gnt_self;
    if (self != NULL) self->depth = self->depth + 1;
    __asm__ volatile("" ::: "memory");
}

static inline void gnt_guard_leave(void) {
    __asm__ volatile("" ::: "memory");
    gnt_lane *self = gnt_self;
    if (self == NULL || self->depth == 0) return;
    self->depth = self->depth - 1;
    __asm__ volatile("" ::: "memory");
    if (__builtin_expect(self->depth == 0 && self->deferred != 0, 0)) gnt_poll_slow();
}

/* ---- Pools --------------------------------------------------------------------------------------
 *
 * A queue a worker; a task goes to the shortest, and a worker without work takes tasks that have not begun from
 * others. A task stays on the worker that began it. */

enum { /* policies; quantum_ns is for those marked with q */
    GNT_FCFS = 0,               /* first come, first served, to the end */
    GNT_ROUND_ROBIN = 1,        /* q */
    GNT_TWO_QUEUE = 2,          /* q: new tasks before those that were preempted */
    GNT_LEAST_ATTAINED = 3,     /* q */
    GNT_SHORTEST_REMAINING = 4, /* by hint_ns */
    GNT_EARLIEST_DEADLINE = 5,
    GNT_KIND_PRIORITY = 6, /* q: kind 0 first */
    GNT_RESERVED = 7,      /* `reserved` workers for kind 0 alone */
    GNT_BEST_EFFORT = 8,   /* q: kind 0 first, others in what is left and in `share_pct` of the time */
};

enum { GNT_CONTROL_OFF = 0, GNT_CONTROL_PAPER = 1, GNT_CONTROL_COST = 2 };

typedef struct gnt_pool gnt_pool;

typedef struct gnt_pool_options {
    size_t size; /* sizeof(gnt_pool_options) */
    unsigned workers;
    unsigned policy;
    int64_t quantum_ns, hard_quantum_ns, patience_ns;
    unsigned reserved, share_pct;
    const char *source; /* a name; NULL: auto for functions that poll */
    unsigned max_tasks; /* waiting and running */
    size_t stack_bytes;
    int64_t spin_ns;     /* a worker without work spins so long before it sleeps */
    const int *cpus;     /* of the workers, one each; NULL: not pinned */
    int timer_cpu;       /* -1: not pinned */
    int realtime;        /* SCHED_FIFO priority; 0: none */
    void (*poll)(void *); /* called again and again by the timer's thread, or one of its own: a dispatcher */
    void *poll_argument;
    unsigned control; /* GNT_CONTROL_...: the quantum follows the load */
    int64_t control_period_ns;
} gnt_pool_options;

#define GNT_POOL_OPTIONS                                                                                              \
    {                                                                                                                  \
        sizeof(gnt_pool_options), 1, GNT_TWO_QUEUE, 10000, 500000, GNT_NEVER, 1, 5, NULL, 4096, 0, 50000, NULL, -1, 0, \
            NULL, NULL, GNT_CONTROL_OFF, 100000000                                                                     \
    }

/* How a task ended; lives as long as the call of on_done. */
typedef struct gnt_report {
    uint64_t task;
    int status; /* GNT_COMPLETED or GNT_CANCELLED */
    int kind;
    intptr_t result;
    void *argument;
    int64_t arrival_ns, begun_ns, ended_ns;
    int64_t attained_ns; /* time on a worker */
    unsigned preemptions, worker;
} gnt_report;

typedef struct gnt_job {
    gnt_function function;
    void *argument;
    int kind;                              /* of request, such as GET and SCAN: 0 is the most urgent */
    int64_t hint_ns, deadline_ns;          /* 0: not known */
    int64_t arrival_ns;                    /* 0: now */
    void (*on_done)(const gnt_report *, void *); /* on the worker, not preempted; may submit; may be NULL */
    void *user;
} gnt_job;

GNT_API gnt_pool *gnt_pool_start(const gnt_pool_options *options, char *error, size_t size);
/* From any thread, and from inside tasks. GNT_ENOMEM: try again later. */
GNT_API int gnt_submit(gnt_pool *pool, const gnt_job *job, uint64_t *task);
/* A task that has not begun, or was preempted, ends without running again, as soon as its worker is free; a running one
 * at its next preemption. GNT_EINVAL: it has ended already. */
GNT_API int gnt_cancel_task(gnt_pool *pool, uint64_t task);
/* Waits for tasks to end, and for those that they submit meanwhile, or cancels them. Not from a worker or `poll`
 * (GNT_ESTATE); no other thread submits any more. */
GNT_API int gnt_pool_stop(gnt_pool *pool, int drain);

typedef struct gnt_pool_stats {
    uint64_t submitted, completed, cancelled, stolen;
    uint64_t preemptions; /* tasks that were switched away */
    uint64_t stale;       /* ticks for a slice that was over */
    uint64_t kept;        /* ticks after which the policy let the task go on */
    uint64_t guarded;     /* ticks that waited for a guard */
    uint64_t outside;     /* ticks in code that may not be cut */
    uint64_t no_realtime; /* threads that were refused SCHED_FIFO */
    int64_t quantum_ns;   /* now; GNT_NEVER: no preemption */
    int64_t busy_ns;      /* of all workers */
} gnt_pool_stats;
GNT_API void gnt_pool_read_stats(const gnt_pool *pool, gnt_pool_stats *stats);
GNT_API const char *gnt_pool_source(const gnt_pool *pool);
GNT_API int gnt_pool_set_quantum(gnt_pool *pool, int64_t quantum_ns);

/* ---- Names of the LibPreemptible paper ---------------------------------------------------------- */
#ifdef GNT_PAPER_NAMES
#define utimer_init(name) gnt_source_open(name, NULL, 0)
#define utimer_register(source) gnt_attach(source)
#define utimer_unregister() gnt_detach()
#define utimer_arm_deadline(deadline_ns) gnt_rearm((deadline_ns) - gnt_now())
#define fn_launch(function, argument, context, limit_ns) gnt_launch(context, function, argument, limit_ns)
#define fn_resume(context, limit_ns) gnt_resume(context, limit_ns)
#define fn_completed(context) gnt_completed(context)
#endif

#ifdef __cplusplus
}
#endif
#endif
