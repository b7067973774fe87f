/* What the files of the load generator share: requests that are ready to be sent, answers that are read in parts. */
#ifndef GNC_LOAD_H
#define GNC_LOAD_H

#include <stddef.h>
#include <stdint.h>

#include "traffic.h"

/* A request of a class, ready but for its key. */
typedef struct load_request {
    char *text;
    uint32_t bytes;
    uint32_t digits_at, digits; /* of the key; 0 digits: it has none, or always the same */
    uint64_t first_key, keys;   /* its keys are numbers from `first_key` on */
    uint32_t reply_bytes;
    uint8_t is_head;            /* HTTP: an answer without a body */
} load_request;

/* load_request.c. `load_prepare` makes the requests of all classes, and those that fill in what will be read. */
typedef struct load_requests {
    uint32_t count;
    load_request *one;
    double **until; /* cumulated weights, of each phase; the last is 1 */
} load_requests;
extern load_requests load_traffic, load_fill;
void load_prepare(const char *host, const char *path);
void load_set_key(load_request *r, uint64_t number);

/* load_answer.c: an answer as far as it has come. All zero before the first. */
typedef struct load_answer {
    uint64_t skip;      /* bytes of data before the next line */
    uint64_t pending;   /* RESP: elements still to come */
    uint64_t body;      /* HTTP: its length, where the header says so */
    uint16_t status;
    uint8_t part, has_length, is_chunked;
    uint8_t is_last;    /* complete once `skip` bytes have passed */
    uint8_t until_close;
    uint8_t ends;       /* the server closes after it */
    uint8_t is_error;
    uint32_t line_have;
    char line[320];     /* the begin of the line that is being read: no more of it is ever looked at */
} load_answer;

void load_begin_answer(load_answer *a);
/* Reads on. Returns how many of the bytes were read: all, or those up to the end of the answer; then `is_done` is 1. */
size_t load_read_answer(load_answer *a, const load_request *to, const char *at, size_t have, int *is_done);

/* load_client.c: connections and what goes over them. */
extern struct load_options {
    const char *host, *path, *fill;
    int port, is_json;
    uint32_t connections;
    uint64_t requests, seed;
    double rate, timeout_s, wait_s; /* rate 0: a closed loop */
} load_options;
uint64_t load_now_ns(void);
void load_connect(void);
/* Both return whether all was answered, or lost, before the timeout. */
int load_fill_in(void);
int load_run(void);

/* Which phase a time of `load_now_ns` falls into, and when it ends. Without phases: 0, and never. */
uint32_t load_phase_at(uint64_t ns, uint64_t *end_ns);

/* load_report.c: what was seen. */
extern struct load_seen {
    uint64_t sent, answers, errors, bytes_sent, bytes_received;
    uint64_t late_count, latency_max_ns;
    double late_sum_ns, latency_sum_ns; /* late: the generator itself, while a connection was idle */
    struct load_seen_phase {
        uint64_t answers, ns;
    } *phase;
} load_seen;
void load_count_latency(uint64_t ns);
void load_report(double seconds);

_Noreturn void load_fail(const char *what, const char *why);
void *load_allocate(size_t bytes);

#endif
