/* As Redis serves GET and SET: reads all that are ready, then writes all replies; a timer at 10 Hz looks at a file. */
#include "model.h"

enum { WAIT, READ, WRITE, ACCEPT, ADD, CLOSE, OPEN, READ_FILE, CLOSE_FILE, KEYS };

enum { SMALL_GET, LARGE_GET, SET, KINDS };

static void spin(uint32_t kind, uint32_t connection, uint32_t next) {
    (void)connection, (void)next;
    if (kind >= KINDS) __builtin_trap();
    for (int i = 0; i < 1000; i++) __asm__ volatile("");
}

static void wake(uint32_t kind, uint32_t connection, uint32_t next) {
    if (kind >= GNC_WAKEUPS) __builtin_trap();
    spin(0, connection, next);
}

static const gnc_edge edges[KEYS * KEYS] = {
    [WAIT * KEYS + READ] = wake,   [READ * KEYS + READ] = spin,  [READ * KEYS + WRITE] = spin,
    [WRITE * KEYS + WRITE] = spin, [WRITE * KEYS + WAIT] = spin,
};
_Thread_local unsigned char *gnc_memory;
void gnc_edges_begin(void *memory) { (void)memory; }

static const gnc_step request[] = {
    {.key = READ, .call = GNC_READ, .target = GNC_CONNECTION, .bytes = 16384},
    {.key = WRITE, .call = GNC_WRITE, .target = GNC_CONNECTION, .is_reply = 1, .clocks = 1},
};
static const gnc_script requests[] = {{
    .share = 1, .phases = 2, .counts = (const uint16_t[]){1, 1}, .steps = request,
    .sizes = 2, .size = (const uint32_t[]){264, 5}, .weight = (const uint32_t[]){98, 2},
}};
static const gnc_step accepting[] = {
    {.key = ACCEPT, .call = GNC_ACCEPT},
    {.key = ADD, .call = GNC_EPOLL_CTL, .target = GNC_CONNECTION},
    {.key = ACCEPT, .call = GNC_ACCEPT},
};
static const gnc_step closing[] = {{.key = CLOSE, .call = GNC_CLOSE, .target = GNC_CONNECTION}};
static const gnc_step tick[] = {
    {.key = OPEN, .call = GNC_OPEN},
    {.key = READ_FILE, .call = GNC_READ, .target = GNC_FILE, .bytes = 1024},
    {.key = CLOSE_FILE, .call = GNC_CLOSE, .target = GNC_FILE},
};

#define WORD(a, b, c) (a | b << 8 | c << 16 | ' ' << 24)
static const gnc_kind_of_request kinds[KINDS] = {
    [SMALL_GET] = {WORD('g', 'e', 't'), 20, 1, (const uint32_t[]){264}, (const uint32_t[]){1}},
    [LARGE_GET] = {WORD('g', 'e', 't'), 2000, 1, (const uint32_t[]){1064}, (const uint32_t[]){1}},
    [SET] = {WORD('s', 'e', 't'), 300, 1, (const uint32_t[]){5}, (const uint32_t[]){1}},
};

const gnc_model gnc_the_model = {
    .keys = KEYS, .edges = edges, .wait = GNC_EPOLL, .workers = GNC_SINGLE, .protocol = GNC_RESP,
    .worker_count = 1, .wait_events = 10128, .wait_timeout_ms = -1, .wait_clocks = 1,
    .on_accept = {.phases = 1, .counts = (const uint16_t[]){3}, .steps = accepting},
    .on_close = {.phases = 1, .counts = (const uint16_t[]){1}, .steps = closing},
    .request_scripts = 1, .requests = requests, .kinds = KINDS, .kind = kinds,
    .timers = 1, .timer = &(const gnc_timer){
        .period_s = 0.1, .script = {.share = 1, .phases = 1, .counts = (const uint16_t[]){3}, .steps = tick}},
    .file_bytes = 300, .data_bytes = 65536,
};
