/* Where an answer ends in the bytes that arrive, however they are cut. */
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "load.h"

/* Parts of an answer in HTTP. */
enum { STATUS, HEADER, CHUNK, CHUNK_END, TRAILER };

void load_begin_answer(load_answer *a) { memset(a, 0, offsetof(load_answer, line)); }

static int begins(const load_answer *a, const char *with) { return strncasecmp(a->line, with, strlen(with)) == 0; }

static uint64_t number_at(const load_answer *a, uint32_t at, int base) {
    long long value = at < a->line_have ? strtoll(a->line + at, NULL, base) : 0;
    return value < 0 ? 0 : (uint64_t)value;
}

/* Bytes that make no sense: neither does what follows. */
static int refuse(load_answer *a) {
    a->is_error = a->ends = 1;
    return 1;
}

/* Functions that are given a line return whether it ends the answer, but for the bytes to skip. */
static int resp_line(load_answer *a) {
    if (a->pending) a->pending--;
    switch (a->line[0]) {
        case '$':
        case '!':
        case '=':
            if (a->line[1] != '-') a->skip = number_at(a, 1, 10) + 2;
            break;
        case '*':
        case '~':
        case '>': a->pending += number_at(a, 1, 10); break;
        case '%': a->pending += 2 * number_at(a, 1, 10); break;
        case '-': a->is_error = 1; break;
        case '+':
        case ':':
        case ',':
        case '_':
        case '#':
        case '(': break;
        default: return refuse(a);
    }
    return a->pending == 0;
}

/* Any number of values, and one line. */
static int memcached_line(load_answer *a) {
    if (begins(a, "VALUE ")) {
        uint32_t at = 6; /* of the length, after the key and the flags */
        for (int spaces = 0; at < a->line_have && spaces < 2; at++) spaces += a->line[at] == ' ';
        a->skip = number_at(a, at, 10) + 2;
        return 0;
    }
    a->is_error = begins(a, "ERROR") || begins(a, "CLIENT_ERROR") || begins(a, "SERVER_ERROR");
    return !begins(a, "STAT ");
}

static int http_body(load_answer *a, const load_request *to) {
    if (a->status >= 100 && a->status < 200) { /* the header itself is still to come */
        a->part = STATUS;
        return 0;
    }
    if (a->status < 200 || a->status >= 400) a->is_error = 1;
    if (to->is_head || a->status == 204 || a->status == 304) return 1;
    if (a->is_chunked) {
        a->part = CHUNK;
        return 0;
    }
    if (!a->has_length) {
        a->until_close = 1;
        a->ends = 1;
        a->skip = UINT64_MAX;
        return 0;
    }
    a->skip = a->body;
    return 1;
}

static int http_line(load_answer *a, const load_request *to) {
    int is_blank = !a->line_have || a->line[0] == '\r';
    switch (a->part) {
        case STATUS:
            if (!begins(a, "HTTP/1.")) return refuse(a);
            a->status = (uint16_t)number_at(a, 9, 10);
            a->ends = a->line[7] == '0';
            a->part = HEADER;
            return 0;
        case HEADER:
            if (is_blank) return http_body(a, to);
            if (begins(a, "content-length:")) a->body = number_at(a, 15, 10), a->has_length = 1;
            else if (begins(a, "transfer-encoding:")) a->is_chunked = strstr(a->line, "chunked") != NULL;
            else if (begins(a, "connection:")) a->ends = strstr(a->line, "close") != NULL;
            return 0;
        case CHUNK:
            a->skip = number_at(a, 0, 16);
            a->part = a->skip ? CHUNK_END : TRAILER;
            return 0;
        case CHUNK_END: a->part = CHUNK; return 0;
        default: return is_blank;
    }
}

/* Puts bytes into the line, up to its end. Returns how many there were. */
static size_t gather(load_answer *a, const char *at, size_t have, int *is_line) {
    const char *end = memchr(at, '\n', have);
    size_t bytes = end ? (size_t)(end - at) : have, room = sizeof a->line - 1 - a->line_have;
    memcpy(a->line + a->line_have, at, bytes < room ? bytes : room);
    a->line_have += (uint32_t)(bytes < room ? bytes : room);
    a->line[a->line_have] = 0;
    *is_line = end != NULL;
    return bytes + *is_line;
}

static size_t read_line(load_answer *a, const load_request *to, const char *at, size_t have) {
    int is_line;
    size_t bytes = gather(a, at, have, &is_line);
    if (!is_line) return bytes;
    switch (gnc_the_traffic.protocol) {
        case GNC_TRAFFIC_RESP: a->is_last = (uint8_t)resp_line(a); break;
        case GNC_TRAFFIC_MEMCACHED: a->is_last = (uint8_t)memcached_line(a); break;
        default: a->is_last = (uint8_t)http_line(a, to);
    }
    a->line_have = 0;
    return bytes;
}

size_t load_read_answer(load_answer *a, const load_request *to, const char *at, size_t have, int *is_done) {
    size_t done = 0;
    if (gnc_the_traffic.protocol == GNC_TRAFFIC_RAW && !a->is_last) {
        a->skip = to->reply_bytes ? to->reply_bytes : have;
        a->is_last = 1;
    }
    while (done < have && !(a->is_last && !a->skip)) {
        if (gnc_the_traffic.protocol == GNC_TRAFFIC_LENGTH && !a->is_last) {
            a->body = a->body << 8 | (unsigned char)at[done++];
            if (++a->part == 4) a->skip = a->body, a->is_last = 1;
        } else if (a->skip) {
            size_t passed = have - done < a->skip ? have - done : (size_t)a->skip;
            a->skip -= passed;
            done += passed;
        } else {
            done += read_line(a, to, at + done, have - done);
        }
    }
    *is_done = a->is_last && !a->skip;
    return done;
}
