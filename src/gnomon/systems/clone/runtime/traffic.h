/* What the clients of a service send, as data: filled in by the generated traffic.c, sent by the program `load`.
 *
 * A request is made up from its class: a word of the protocol, and its size. Keys and values are made up, too. */
#ifndef GNC_TRAFFIC_H
#define GNC_TRAFFIC_H

#include <stdint.h>

/* GNC_TRAFFIC_RAW: any bytes; the answer is as long as its class says, or what one read brings. */
enum gnc_traffic_protocol {
    GNC_TRAFFIC_RESP,
    GNC_TRAFFIC_MEMCACHED,
    GNC_TRAFFIC_HTTP,
    GNC_TRAFFIC_LENGTH,
    GNC_TRAFFIC_RAW,
};

typedef struct gnc_request_class {
    double weight;          /* among the classes */
    const char *verb;       /* a word of the protocol, or "OTHER" */
    uint32_t request_bytes; /* on the wire, all of it */
    uint32_t reply_bytes;   /* likewise; what is read is filled in beforehand so that the original answers so */
} gnc_request_class;

/* A part of a cycle that began when 1970 did: by the clock, so that the clone has the same. */
typedef struct gnc_load_phase {
    uint64_t ns;
    double rate;          /* a factor of --rate */
    const double *weight; /* of the classes */
} gnc_load_phase;

typedef struct gnc_traffic {
    enum gnc_traffic_protocol protocol;
    uint32_t classes;
    const gnc_request_class *requests;
    uint32_t keys;        /* distinct ones */
    uint32_t gaps;        /* between arrivals: each stands for an equal share of them; mean 1. None: exponential */
    const double *gap;
    uint32_t connections; /* that were open while it was recorded */
    uint32_t pipeline;    /* requests that a client sends at once */
    uint32_t phases;      /* 0: always the same */
    const gnc_load_phase *phase;
} gnc_traffic;

extern const gnc_traffic gnc_the_traffic;

#endif
