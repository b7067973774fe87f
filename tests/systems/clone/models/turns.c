/* Of no known protocol. Its edge says on the standard output for which kind it was called, and on which memory. */
#include <stdio.h>

#include "model.h"

enum { WAIT, READ, WRITE, ACCEPT, ADD, CLOSE, KEYS };

_Thread_local unsigned char *gnc_memory;
static unsigned char *first;

void gnc_edges_begin(void *memory) {
    gnc_memory = memory;
    if (!first) first = memory;
}

static void tell(uint32_t kind, uint32_t connection, uint32_t next) {
    (void)connection, (void)next;
    printf("%u %zu\n", kind, (size_t)(gnc_memory - first) / gnc_the_model.data_bytes);
    fflush(stdout);
}

static const gnc_edge edges[KEYS * KEYS] = {[READ * KEYS + WRITE] = tell};
static const gnc_step request[] = {
    {.key = READ, .call = GNC_READ, .target = GNC_CONNECTION, .bytes = 4096},
    {.key = WRITE, .call = GNC_WRITE, .target = GNC_CONNECTION, .is_reply = 1},
};
static const gnc_script requests[] = {{
    .share = 1, .phases = 1, .counts = (const uint16_t[]){2}, .steps = request,
    .sizes = 1, .size = (const uint32_t[]){1}, .weight = (const uint32_t[]){1},
}};
static const gnc_kind_of_request kinds[2] = {
    {0, 1, 1, (const uint32_t[]){1}, (const uint32_t[]){1}},
    {0, 1000, 1, (const uint32_t[]){1}, (const uint32_t[]){1}},
};
static const gnc_phase phases[] = {{500000000u, 1}, {500000000u, 3}};

const gnc_model gnc_the_model = {
    .keys = KEYS, .edges = edges, .wait = GNC_EPOLL, .workers = GNC_SINGLE, .protocol = GNC_RAW,
    .worker_count = 1, .wait_events = 64, .wait_timeout_ms = -1,
    .request_scripts = 1, .requests = requests, .kinds = 2, .kind = kinds, .data_bytes = 65536,
    .turns = &(const gnc_turns){3, 2, 2, phases},
};
