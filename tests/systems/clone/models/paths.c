/* Calls generated edges, each between two system calls of its own, so that the profiler keeps them apart.
 *
 *     paths BYTES EDGES KINDS TIMES [CONTROL]
 *
 * CONTROL is the profiler's: what happens before and after is not recorded. */
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

typedef void (*edge)(uint32_t kind, uint32_t connection, uint32_t next);
void gnc_edges_begin(void *memory);

#define EDGE(i) extern void gnc_edge_##i(uint32_t, uint32_t, uint32_t) __attribute__((weak));
EDGE(0) EDGE(1) EDGE(2)
static const edge edges[] = {gnc_edge_0, gnc_edge_1, gnc_edge_2};
static const long before[] = {SYS_getppid, SYS_getpgid}; /* by kind */
static const long after[] = {SYS_getuid, SYS_getgid, SYS_geteuid};

int main(int count, char **a) {
    if (count < 5) return 2;
    size_t bytes = strtoul(a[1], NULL, 10);
    unsigned char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    static uint32_t none;
    volatile uint32_t *control = &none;
    if (count > 5) control = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, open(a[5], O_RDWR), 0);
    if (memory == MAP_FAILED || control == MAP_FAILED) return 3;
    gnc_edges_begin(memory);
    alarm(20);
    *control = 1;
    for (long i = 0, times = atol(a[4]); i < times; i++)
        for (int e = 0; e < atoi(a[2]); e++)
            for (uint32_t kind = 0; kind < (uint32_t)atol(a[3]); kind++) {
                if (!edges[e]) continue;
                syscall(before[kind % 2], 0L);
                edges[e](kind, (uint32_t)i % 40, (uint32_t)(i + 1) % 40);
                syscall(after[e]);
            }
    *control = 0;
    return 7;
}
