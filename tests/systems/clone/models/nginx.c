/* As NGINX serves a small file: two processes, which open the file for each request and log it. */
#include "model.h"

enum { WAIT, RECEIVE, STAT, OPEN, FSTAT, HEADER, BODY, LOG, CLOSE_FILE, ACCEPT, ADD, CLOSE, KEYS };

static void spin(uint32_t kind, uint32_t connection, uint32_t next) {
    (void)connection, (void)next;
    (void)kind;
    for (int i = 0; i < 1000; i++) __asm__ volatile("");
}

static const gnc_edge edges[KEYS * KEYS] = {
    [WAIT * KEYS + RECEIVE] = spin, [RECEIVE * KEYS + STAT] = spin, [FSTAT * KEYS + HEADER] = spin,
    [BODY * KEYS + LOG] = spin,     [CLOSE_FILE * KEYS + WAIT] = spin,
};
_Thread_local unsigned char *gnc_memory;
void gnc_edges_begin(void *memory) { (void)memory; }

static const gnc_step request[] = {
    {.key = RECEIVE, .call = GNC_RECVFROM, .target = GNC_CONNECTION, .bytes = 1024},
    {.key = STAT, .call = GNC_STAT},
    {.key = OPEN, .call = GNC_OPEN},
    {.key = FSTAT, .call = GNC_FSTAT, .target = GNC_FILE},
    {.key = HEADER, .call = GNC_WRITEV, .target = GNC_CONNECTION, .bytes = 238, .is_reply = 1},
    {.key = BODY, .call = GNC_SENDFILE, .target = GNC_CONNECTION, .bytes = 612, .is_reply = 1},
    {.key = LOG, .call = GNC_WRITE, .target = GNC_LOG, .bytes = 90},
    {.key = CLOSE_FILE, .call = GNC_CLOSE, .target = GNC_FILE},
};
static const gnc_script requests[] = {{
    .share = 1, .phases = 1, .counts = (const uint16_t[]){8}, .steps = request,
    .sizes = 1, .size = (const uint32_t[]){850}, .weight = (const uint32_t[]){1},
}};
static const gnc_step accepting[] = {
    {.key = ACCEPT, .call = GNC_ACCEPT},
    {.key = ADD, .call = GNC_EPOLL_CTL, .target = GNC_CONNECTION},
};
static const gnc_step closing[] = {{.key = CLOSE, .call = GNC_CLOSE, .target = GNC_CONNECTION}};

const gnc_model gnc_the_model = {
    .keys = KEYS, .edges = edges, .wait = GNC_EPOLL, .workers = GNC_PROCESSES, .protocol = GNC_HTTP,
    .worker_count = 2, .wait_events = 512, .wait_timeout_ms = -1, .wait_clocks = 1,
    .on_accept = {.phases = 1, .counts = (const uint16_t[]){2}, .steps = accepting},
    .on_close = {.phases = 1, .counts = (const uint16_t[]){1}, .steps = closing},
    .request_scripts = 1, .requests = requests, .file_bytes = 612, .data_bytes = 65536,
};
