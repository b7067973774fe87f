/* Valid replies of given sizes.
 *
 * A reply is composed in place: the worker's buffer is full of printable bytes from the start, so that only what the
 * protocol puts before and after the data is written. Remains of former replies inside the data do no harm, as all data
 * is sent with its length. */
#include <string.h>

#include "runtime.h"

static uint32_t digit_count(uint32_t value) {
    uint32_t count = 1;
    for (; value > 9; value /= 10) count++;
    return count;
}

static char *put_number(char *at, uint32_t value) {
    char *end = at + digit_count(value);
    for (char *digit = end; digit > at; value /= 10) *--digit = (char)('0' + value % 10);
    return end;
}

static char *put(char *at, const char *text, size_t bytes) { return (char *)memcpy(at, text, bytes) + bytes; }
#define PUT(at, text) put(at, text, sizeof text - 1)

/* The length of data that has `both` bytes together with its digits, or one less: 9 and 10 are two apart. */
static uint32_t fit(uint32_t both) {
    uint32_t digits = 1, limit = 10;
    while (both - digits >= limit && digits < 9) digits++, limit *= 10;
    return both - digits;
}

static void send_text(gnc_worker *w, const char *text, uint32_t bytes) {
    w->from = text;
    w->left = bytes;
}

/* All that follow return the bytes of the reply that is now in the worker's buffer. */
static uint32_t resp(char *at, uint32_t bytes) {
    if (bytes < 3) bytes = 3;
    uint32_t data = bytes < 6 ? 0 : fit(bytes - 5);
    if (5 + digit_count(data) + data != bytes) { /* no bulk string is that long: a simple one can be */
        *at = '+';
        memset(at + 1, 'x', bytes - 3);
    } else {
        *at = '$';
        PUT(put_number(at + 1, data), "\r\n");
    }
    PUT(at + bytes - 2, "\r\n");
    return bytes;
}

static uint32_t memcached(char *start, const gnc_request *r, uint32_t data) {
    char *at = PUT(start, "VALUE ") + r->key_bytes;
    at = put_number(PUT(at, " 0 "), data);
    if (r->has_version) at = PUT(at, " 1");
    at = PUT(PUT(at, "\r\n") + data, "\r\nEND\r\n");
    return (uint32_t)(at - start);
}

/* Header and body have `bytes`; the header alone `head_bytes`, unless that is 0 or too small. */
static uint32_t http(char *start, uint32_t bytes, uint32_t head_bytes, int ends, uint32_t *head) {
    char *at = PUT(start, "HTTP/1.1 200 OK\r\nConnection: ");
    at = ends ? PUT(at, "close\r\n") : PUT(at, "keep-alive\r\n");
    uint32_t least = (uint32_t)(at - start) + sizeof "Content-Length: \r\n\r\n" - 1, body = 0, spaces = 0;
    if (head_bytes && bytes >= head_bytes && head_bytes >= least + digit_count(bytes - head_bytes)) {
        body = bytes - head_bytes;
        spaces = head_bytes - least - digit_count(body);
    } else if (bytes > least) {
        body = fit(bytes - least);
        spaces = bytes - least - digit_count(body) - body;
    }
    if (spaces >= sizeof "X-Pad: \r\n" - 1) {
        spaces -= sizeof "X-Pad: \r\n" - 1;
        at = PUT(at, "X-Pad: ");
        memset(at, 'x', spaces);
        at = PUT(at + spaces, "\r\n");
        spaces = 0;
    }
    at = PUT(at, "Content-Length: ");
    memset(at, ' ', spaces); /* allowed there, and any number of them */
    at = PUT(put_number(at + spaces, body), "\r\n\r\n");
    *head = (uint32_t)(at - start);
    return *head + body;
}

static uint32_t length_prefixed(char *at, uint32_t bytes) {
    uint32_t data = bytes < 4 ? 0 : bytes - 4;
    for (int i = 0; i < 4; i++) at[i] = (char)(data >> (24 - 8 * i));
    return data + 4;
}

static void compose_new(gnc_worker *w, const gnc_request *r, uint32_t bytes, uint32_t head_bytes, uint32_t around) {
    w->composed_head = 0;
    switch (gnc_the_model.protocol) {
        case GNC_RESP: w->composed_bytes = resp(w->reply, bytes); break;
        case GNC_MEMCACHED: w->composed_bytes = memcached(w->reply, r, fit(bytes - around)); break;
        case GNC_HTTP: w->composed_bytes = http(w->reply, bytes, head_bytes, r->ends, &w->composed_head); break;
        case GNC_RAW: w->composed_bytes = bytes; break;
        default: w->composed_bytes = length_prefixed(w->reply, bytes);
    }
}

void gnc_compose(gnc_worker *w, const gnc_request *r, uint32_t bytes, uint32_t head_bytes) {
    uint32_t around = 18 + r->key_bytes + 2u * r->has_version; /* of memcached data */
    w->head = 0;
    if (r->text) return send_text(w, r->text, r->text_bytes);
    if (gnc_the_model.protocol == GNC_RESP) {
        if (bytes == 4) return send_text(w, ":1\r\n", 4);
        if (bytes == 5) return send_text(w, r->is_get ? "$-1\r\n" : "+OK\r\n", 5);
        if (bytes == 7) return send_text(w, "+PONG\r\n", 7);
    } else if (gnc_the_model.protocol == GNC_MEMCACHED) {
        if (r->key_bytes > 250 || bytes == 8 || bytes <= around) return send_text(w, "END\r\n", 5);
        memcpy(w->reply + 6, r->key, r->key_bytes);
    }
    /* Most often the last reply was the same, but for the key. */
    uint64_t wanted = (uint64_t)bytes << 32 | (uint64_t)head_bytes << 12 | around << 2 | r->has_version << 1 | r->ends;
    if (w->composed != wanted) compose_new(w, r, bytes, head_bytes, around);
    w->composed = wanted;
    w->head = w->composed_head;
    send_text(w, w->reply, r->is_head ? w->head : w->composed_bytes);
}
