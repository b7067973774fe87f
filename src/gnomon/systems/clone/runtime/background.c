/* Threads that work by the clock: they clean up, count, or look after others. */
#include <pthread.h>
#include <sys/mman.h>
#include <time.h>

#include "runtime.h"
#include "system.h"

_Atomic uint32_t gnc_served;

static void *run(void *argument) {
    const gnc_background *mine = argument;
    uint32_t seen = 0;
    void *memory = mmap(NULL, gnc_the_model.data_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) gnc_fail("no memory for the edges");
    gnc_edges_begin(memory);
    while (!gnc_stopping) {
        mine->edge(0, 0, 0);
        uint32_t now = atomic_load_explicit(&gnc_served, memory_order_relaxed);
        uint64_t us = now != seen ? mine->busy_us : mine->idle_us;
        struct timespec time = {(time_t)(us / 1000000), (long)(us % 1000000 * 1000)};
        seen = now;
        GNC_SYSTEM(SYS_clock_nanosleep, CLOCK_REALTIME, 0, &time, NULL);
    }
    return NULL;
}

void gnc_begin_background(void) {
    sigset_t all, old;
    sigfillset(&all); /* signals are for the workers */
    pthread_sigmask(SIG_SETMASK, &all, &old);
    for (uint32_t i = 0; i < gnc_the_model.backgrounds; i++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, run, (void *)&gnc_the_model.background[i]) != 0) gnc_fail("no thread");
        pthread_detach(thread);
    }
    pthread_sigmask(SIG_SETMASK, &old, NULL);
}
