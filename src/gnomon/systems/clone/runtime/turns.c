/* Memories and copies of the code, where a clone is to have more of them than its original.
 *
 * Twice the data is two memories: one request works on the first, the next on the second. A line is then touched again
 * after twice as many others, whatever the service does with it. Two copies of the code do the same to lines of code.
 * Phases are told by the clock, so that a load generator elsewhere has the same. A thread waits for their ends:
 * requests pay nothing for it. */
#include <pthread.h>

#include "runtime.h"

enum { ALIGNED = 1 << 16 };

static _Atomic uint32_t memories = 1; /* in use */

/* An odd number: memories do not meet in the same sets of larger caches. */
static size_t stride(void) { return ALIGNED * (((gnc_the_model.data_bytes + ALIGNED - 1) / ALIGNED) | 1u); }

size_t gnc_data_bytes(void) {
    if (!gnc_the_model.turns) return gnc_the_model.data_bytes ? gnc_the_model.data_bytes : 1;
    return gnc_the_model.turns->memories * stride();
}

static void *follow_phases(void *unused) {
    const gnc_turns *turns = gnc_the_model.turns;
    uint64_t cycle_ns = 0;
    for (uint32_t i = 0; i < turns->phases; i++) cycle_ns += turns->phase[i].ns;
    for (;;) {
        struct timespec now;
        clock_gettime(CLOCK_REALTIME, &now);
        uint64_t now_ns = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec, at = now_ns % cycle_ns;
        const gnc_phase *phase = turns->phase;
        for (; at >= phase->ns; phase++) at -= phase->ns;
        atomic_store_explicit(&memories, phase->memories, memory_order_relaxed);
        uint64_t end_ns = now_ns + phase->ns - at;
        struct timespec end = {(time_t)(end_ns / 1000000000u), (long)(end_ns % 1000000000u)};
        clock_nanosleep(CLOCK_REALTIME, TIMER_ABSTIME, &end, NULL);
    }
    return unused;
}

static void begin_phases(void) {
    pthread_t thread;
    sigset_t all, before;
    atomic_store(&memories, gnc_the_model.turns->phase[0].memories);
    if (gnc_the_model.turns->phases == 1) return;
    sigfillset(&all); /* signals are for the workers */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    if (pthread_create(&thread, NULL, follow_phases, NULL)) gnc_fail("no thread for the phases");
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

void gnc_memory_begin(gnc_worker *w) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    const gnc_turns *turns = gnc_the_model.turns;
    if (!turns) {
        gnc_edges_begin(w->memory);
        return;
    }
    if (!w->memories) w->memories = gnc_allocate(turns->memories * sizeof *w->memories);
    for (uint32_t i = 0; i < turns->memories; i++) {
        gnc_edges_begin((char *)w->memory + i * stride());
        w->memories[i] = gnc_memory;
        ((uint64_t *)gnc_memory)[1] *= 2 * i + 1; /* the state of its generator: they draw different paths */
    }
    gnc_memory = w->memories[w->turn];
    pthread_once(&once, begin_phases);
}

void gnc_turn(gnc_worker *w) {
    uint32_t kinds = gnc_the_model.kinds > GNC_WAKEUPS ? gnc_the_model.kinds : GNC_WAKEUPS;
    w->copy = w->copy + kinds < gnc_the_model.turns->copies * kinds ? w->copy + kinds : 0;
    w->turn = w->turn + 1 < atomic_load_explicit(&memories, memory_order_relaxed) ? w->turn + 1 : 0;
    gnc_memory = w->memories[w->turn];
}
