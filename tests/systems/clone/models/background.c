/* A server with a thread that works by the clock: it says so each time. */
#include <unistd.h>

#include "model.h"

enum { WAIT, READ, WRITE, KEYS };

_Thread_local unsigned char *gnc_memory;
void gnc_edges_begin(void *memory) { gnc_memory = memory; }

static void clean_up(uint32_t kind, uint32_t connection, uint32_t next) {
    (void)connection, (void)next;
    if (!kind && gnc_memory) (void)!write(STDOUT_FILENO, "cleaned up\n", 11);
}

static const gnc_edge edges[KEYS * KEYS];
static const gnc_step request[] = {
    {.key = READ, .call = GNC_READ, .target = GNC_CONNECTION, .bytes = 4096},
    {.key = WRITE, .call = GNC_WRITE, .target = GNC_CONNECTION, .is_reply = 1},
};
static const gnc_script requests[] = {{
    .share = 1, .phases = 1, .counts = (const uint16_t[]){2}, .steps = request,
    .sizes = 1, .size = (const uint32_t[]){5}, .weight = (const uint32_t[]){1},
}};

const gnc_model gnc_the_model = {
    .keys = KEYS, .edges = edges, .wait = GNC_EPOLL, .workers = GNC_SINGLE, .protocol = GNC_RAW,
    .worker_count = 1, .wait_events = 64, .wait_timeout_ms = -1,
    .request_scripts = 1, .requests = requests, .data_bytes = 65536,
    .backgrounds = 1, .background = &(const gnc_background){clean_up, 1000, 1000},
};
