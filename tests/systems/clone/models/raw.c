/* Of no known protocol: what one read brings is a request; short ones and long ones are answered each in their way. */
#include "model.h"

enum { WAIT, READ, WRITE, ACCEPT, ADD, CLOSE, KEYS };
enum { SHORT, LONG, KINDS };

static void spin(uint32_t kind, uint32_t connection, uint32_t next) {
    (void)connection, (void)next;
    if (kind >= KINDS) __builtin_trap();
    for (int i = 0; i < 1000; i++) __asm__ volatile("");
}

static void wake(uint32_t kind, uint32_t connection, uint32_t next) {
    if (kind >= GNC_WAKEUPS) __builtin_trap();
    spin(0, connection, next);
}

static const gnc_edge edges[KEYS * KEYS] = {[WAIT * KEYS + READ] = wake, [READ * KEYS + WRITE] = spin};
_Thread_local unsigned char *gnc_memory;
void gnc_edges_begin(void *memory) { (void)memory; }

static const gnc_step request[] = {
    {.key = READ, .call = GNC_READ, .target = GNC_CONNECTION, .bytes = 4096},
    {.key = WRITE, .call = GNC_WRITE, .target = GNC_CONNECTION, .is_reply = 1},
};
static const gnc_script requests[] = {{
    .share = 1, .phases = 1, .counts = (const uint16_t[]){2}, .steps = request,
    .sizes = 1, .size = (const uint32_t[]){1}, .weight = (const uint32_t[]){1},
}};
static const gnc_step accepting[] = {
    {.key = ACCEPT, .call = GNC_ACCEPT},
    {.key = ADD, .call = GNC_EPOLL_CTL, .target = GNC_CONNECTION},
};
static const gnc_step closing[] = {{.key = CLOSE, .call = GNC_CLOSE, .target = GNC_CONNECTION}};
static const gnc_kind_of_request kinds[KINDS] = {
    [SHORT] = {0, 8, 1, (const uint32_t[]){10}, (const uint32_t[]){1}},
    [LONG] = {0, 1000, 2, (const uint32_t[]){500, 700}, (const uint32_t[]){3, 1}},
};

const gnc_model gnc_the_model = {
    .keys = KEYS, .edges = edges, .wait = GNC_EPOLL, .workers = GNC_SINGLE, .protocol = GNC_RAW,
    .worker_count = 1, .wait_events = 64, .wait_timeout_ms = -1,
    .on_accept = {.phases = 1, .counts = (const uint16_t[]){2}, .steps = accepting},
    .on_close = {.phases = 1, .counts = (const uint16_t[]){1}, .steps = closing},
    .request_scripts = 1, .requests = requests, .kinds = KINDS, .kind = kinds, .data_bytes = 65536,
};
