/* As memcached serves GET: the main thread accepts, two threads read and send. */
#include "model.h"

enum { WAIT, READ, SEND, ACCEPT, HAND_OVER, TAKE_OVER, ADD, CLOSE, KEYS };

static void spin(uint32_t kind, uint32_t connection, uint32_t next) {
    (void)connection, (void)next;
    (void)kind;
    for (int i = 0; i < 1000; i++) __asm__ volatile("");
}

static const gnc_edge edges[KEYS * KEYS] = {
    [WAIT * KEYS + READ] = spin, [READ * KEYS + SEND] = spin, [SEND * KEYS + READ] = spin, [SEND * KEYS + WAIT] = spin,
};
_Thread_local unsigned char *gnc_memory;
void gnc_edges_begin(void *memory) { (void)memory; }

static const gnc_step request[] = {
    {.key = READ, .call = GNC_READ, .target = GNC_CONNECTION, .bytes = 16384},
    {.key = SEND, .call = GNC_SENDMSG, .target = GNC_CONNECTION, .is_reply = 1},
};
static const gnc_script requests[] = {{
    .share = 1, .phases = 1, .counts = (const uint16_t[]){2}, .steps = request,
    .sizes = 3, .size = (const uint32_t[]){1064, 5, 8}, .weight = (const uint32_t[]){90, 5, 5},
}};
static const gnc_step accepting[] = {
    {.key = ACCEPT, .call = GNC_ACCEPT},
    {.key = HAND_OVER, .call = GNC_EVENTFD_WRITE, .target = GNC_EVENT},
    {.key = TAKE_OVER, .call = GNC_EVENTFD_READ, .target = GNC_EVENT},
    {.key = ADD, .call = GNC_EPOLL_CTL, .target = GNC_CONNECTION},
};
static const gnc_step closing[] = {{.key = CLOSE, .call = GNC_CLOSE, .target = GNC_CONNECTION}};

const gnc_model gnc_the_model = {
    .keys = KEYS, .edges = edges, .wait = GNC_EPOLL, .workers = GNC_THREADS, .accepts = GNC_ACCEPT_MAIN,
    .protocol = GNC_MEMCACHED, .worker_count = 2, .wait_events = 32, .wait_timeout_ms = -1,
    .on_accept = {.phases = 1, .counts = (const uint16_t[]){4}, .steps = accepting},
    .on_close = {.phases = 1, .counts = (const uint16_t[]){1}, .steps = closing},
    .request_scripts = 1, .requests = requests, .file_bytes = 0, .data_bytes = 65536,
};
