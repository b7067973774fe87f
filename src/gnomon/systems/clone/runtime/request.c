/* Where a request ends in the bytes that arrived, and as much of its meaning as the reply needs. */
#include <string.h>
#include <strings.h>

#include "runtime.h"

/* Parts of a request that the next one of its form may have otherwise. */
enum { FREE_PARTS = 6, FORMS = 16, WORDS = 32 };
static _Thread_local struct {
    uint32_t count;
    struct {
        uint32_t at, bytes;
        int is_token; /* without spaces and ends of lines */
    } part[FREE_PARTS];
} loose;

static void leave_free(const char *start, const char *at, uint64_t bytes, int is_token) {
    uint32_t i = loose.count++;
    if (i >= FREE_PARTS) return;
    loose.part[i].at = (uint32_t)(at - start);
    loose.part[i].bytes = (uint32_t)bytes;
    loose.part[i].is_token = is_token;
}

static void answer(gnc_request *r, const char *text) {
    r->text = text;
    r->text_bytes = (uint32_t)strlen(text);
}

/* At most nine digits: more are beyond the limit for requests already. */
static const char *digits(const char *at, const char *end, uint64_t *value) {
    uint64_t sum = 0;
    for (end = end - at > 9 ? at + 9 : end; at < end && (unsigned char)(*at - '0') < 10; at++)
        sum = sum * 10 + (uint64_t)(*at - '0');
    *value = sum;
    return at;
}

/* The first four letters, small. */
static uint32_t letters(const char *at, uint64_t bytes) {
    uint32_t word = 0;
    memcpy(&word, at, bytes < 4 ? bytes : 4);
    return word | 0x20202020;
}

static int is_word(const char *at, uint64_t bytes, const char *word) {
    return strlen(word) == bytes && strncasecmp(at, word, bytes) == 0;
}

/* What clients ask of Redis before the requests that were recorded must not get a reply of a drawn size. */
static void resp_command(gnc_request *r, const char *word, uint64_t bytes) {
    r->word = letters(word, bytes);
    switch (bytes ? *word | 32 : 0) {
        case 'g': r->is_get = 1; break;
        case 'c':
            if (is_word(word, bytes, "config")) answer(r, "*2\r\n$4\r\nsave\r\n$0\r\n\r\n");
            else if (is_word(word, bytes, "command")) answer(r, "*0\r\n");
            break;
        case 'h':
            if (is_word(word, bytes, "hello")) answer(r, "-ERR unknown command 'hello'\r\n");
            break;
        case 'q':
            if (!is_word(word, bytes, "quit")) break;
            answer(r, "+OK\r\n");
            r->ends = 1;
    }
}

static int resp_inline(const char *at, const char *end, gnc_request *r) {
    const char *line_end = memchr(at, '\n', (size_t)(end - at));
    if (!line_end) return 0;
    r->bytes = (uint32_t)(line_end + 1 - at);
    while (at < line_end && *at == ' ') at++;
    const char *word = at;
    while (at < line_end && *at != ' ' && *at != '\r') at++;
    if (word == at) answer(r, ""); /* Redis ignores empty lines */
    else resp_command(r, word, (uint64_t)(at - word));
    return 1;
}

static int resp(const char *start, uint32_t have, gnc_request *r) {
    const char *at = start, *end = start + have, *word = NULL;
    uint64_t count, bytes, word_bytes = 0;
    if (*at != '*') return resp_inline(at, end, r);
    at = digits(at + 1, end, &count);
    if (end - at < 2) return 0;
    if (*at != '\r') return -1;
    at += 2;
    while (count--) {
        if (at == end) return 0;
        if (*at != '$') return -1;
        at = digits(at + 1, end, &bytes);
        if (end - at < 2) return 0;
        if (*at != '\r' || bytes > GNC_REQUEST_LIMIT) return -1;
        at += 2;
        if ((uint64_t)(end - at) < bytes + 2) return 0;
        if (word) leave_free(start, at, bytes, 0);
        else word = at, word_bytes = bytes;
        at += bytes + 2;
    }
    r->bytes = (uint32_t)(at - start);
    if (word) resp_command(r, word, word_bytes);
    else answer(r, "");
    return 1;
}

static const struct {
    const char *word, *reply; /* NULL: of a size that is drawn */
    uint8_t has_data, has_version, ends;
} memcached_commands[] = {
    {"get", NULL, 0, 0, 0},          {"set", "STORED\r\n", 1, 0, 0},      {"gets", NULL, 0, 1, 0},
    {"add", "STORED\r\n", 1, 0, 0},  {"replace", "STORED\r\n", 1, 0, 0},  {"append", "STORED\r\n", 1, 0, 0},
    {"cas", "STORED\r\n", 1, 0, 0},  {"prepend", "STORED\r\n", 1, 0, 0},  {"delete", "DELETED\r\n", 0, 0, 0},
    {"incr", "1\r\n", 0, 0, 0},      {"decr", "1\r\n", 0, 0, 0},          {"touch", "TOUCHED\r\n", 0, 0, 0},
    {"stats", "END\r\n", 0, 0, 0},   {"version", "VERSION 1\r\n", 0, 0, 0}, {"flush_all", "OK\r\n", 0, 0, 0},
    {"verbosity", "OK\r\n", 0, 0, 0}, {"quit", "", 0, 0, 1},
};

/* The next word of a line, and its length; empty at the end. */
static const char *next_word(const char *at, const char *end, uint32_t *bytes) {
    while (at < end && *at == ' ') at++;
    const char *word = at;
    while (at < end && *at != ' ') at++;
    *bytes = (uint32_t)(at - word);
    return word;
}

static int memcached(const char *start, uint32_t have, gnc_request *r) {
    const char *line_end = memchr(start, '\n', have);
    if (!line_end) return have > 65536 ? -1 : 0;
    r->bytes = (uint32_t)(line_end + 1 - start);
    if (line_end > start && line_end[-1] == '\r') line_end--;
    uint32_t bytes, field_bytes;
    const char *word = next_word(start, line_end, &bytes);
    r->word = letters(word, bytes);
    r->key = next_word(word + bytes, line_end, &r->key_bytes);
    leave_free(start, r->key, r->key_bytes, 1);
    for (size_t i = 0; i < sizeof memcached_commands / sizeof *memcached_commands; i++) {
        if (*memcached_commands[i].word != *word || strlen(memcached_commands[i].word) != bytes) continue;
        if (memcmp(memcached_commands[i].word, word, bytes) != 0) continue;
        r->ends = memcached_commands[i].ends;
        r->has_version = memcached_commands[i].has_version;
        r->is_get = !memcached_commands[i].reply;
        if (r->is_get) return 1;
        answer(r, memcached_commands[i].reply);
        if (line_end - start > 8 && memcmp(line_end - 8, " noreply", 8) == 0) r->text_bytes = 0;
        if (!memcached_commands[i].has_data) return 1;
        const char *field = r->key;
        field_bytes = r->key_bytes;
        for (int skipped = 0; skipped < 3; skipped++) field = next_word(field + field_bytes, line_end, &field_bytes);
        uint64_t data_bytes;
        digits(field, line_end, &data_bytes);
        if (data_bytes > GNC_REQUEST_LIMIT) return -1;
        leave_free(start, start + r->bytes, data_bytes, 0);
        r->bytes += (uint32_t)data_bytes + 2;
        return have >= r->bytes;
    }
    answer(r, "ERROR\r\n");
    return 1;
}

static int has_name(const char *at, const char *end, const char *name, size_t bytes) {
    return (size_t)(end - at) >= bytes && strncasecmp(at, name, bytes) == 0;
}

static int http(const char *start, uint32_t have, gnc_request *r) {
    const char *at = start, *end = start + have, *line_end;
    uint64_t body = 0;
    for (;; at = line_end + 1) {
        line_end = memchr(at, '\n', (size_t)(end - at));
        if (!line_end) return 0;
        if (line_end == at || (line_end == at + 1 && *at == '\r')) break;
        if (at == start) {
            const char *verb_end = memchr(at, ' ', (size_t)(line_end - at));
            r->word = letters(at, verb_end ? (uint64_t)(verb_end - at) : 0);
            r->is_head = *at == 'H';
            r->ends = line_end - at > 9 && memcmp(line_end - 9, "HTTP/1.0", 8) == 0;
        } else if ((*at | 32) == 'c') {
            if (has_name(at, line_end, "content-length:", 15)) {
                for (at += 15; *at == ' ';) at++;
                digits(at, line_end, &body);
            } else if (has_name(at, line_end, "connection:", 11)) {
                for (at += 11; *at == ' ';) at++;
                r->ends = (*at | 32) == 'c' || ((*at | 32) != 'k' && r->ends); /* close, keep-alive, other */
            }
        } else if ((*at | 32) == 't' && has_name(at, line_end, "transfer-encoding:", 18)) {
            answer(r, "HTTP/1.1 411 Length Required\r\nConnection: close\r\nContent-Length: 0\r\n\r\n");
            r->ends = 1;
        }
    }
    if (at == start) answer(r, ""); /* blank lines before a request are allowed */
    if (body > GNC_REQUEST_LIMIT) return -1;
    leave_free(start, line_end + 1, body, 0);
    r->bytes = (uint32_t)(line_end + 1 - start) + (uint32_t)body;
    return have >= r->bytes;
}

static int length_prefixed(const char *start, uint32_t have, gnc_request *r) {
    if (have < 4) return 0;
    const unsigned char *at = (const unsigned char *)start;
    uint32_t bytes = (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
    if (bytes > GNC_REQUEST_LIMIT) return -1;
    r->bytes = bytes + 4;
    return have >= r->bytes;
}

static int parse(const char *at, uint32_t have, gnc_request *r) {
    memset(r, 0, sizeof *r);
    loose.count = 0;
    switch (gnc_the_model.protocol) {
        case GNC_RESP: return resp(at, have, r);
        case GNC_MEMCACHED: return memcached(at, have, r);
        default: return http(at, have, r);
    }
}

/* Most requests have the form of an earlier one: but for keys and data they are the same, byte by byte. That is seen
 * with few instructions, and few branches that change. */
typedef struct form {
    uint32_t bytes;     /* of the whole request; 0: none yet */
    uint32_t last_seen; /* bytes of the last request that was of no known form */
    uint32_t key_at;
    uint32_t words, token_words;
    gnc_request request;
    struct word {
        uint64_t value, mask;
        uint64_t at;
    } word[WORDS]; /* first those that are compared, then those of tokens; of both a multiple of four */
} form;
static _Thread_local form forms[FORMS];

static uint64_t load(const char *at) {
    uint64_t word;
    memcpy(&word, at, sizeof word);
    return word;
}

/* Words that cover a part; none reaches beyond the request. */
static int cover(form *f, const char *start, uint32_t at, uint32_t end, int is_token) {
    for (; at < end; at += 8) {
        uint32_t i = f->words + f->token_words, from = at < f->bytes - 8 ? at : f->bytes - 8;
        if (i == WORDS) return 0;
        uint64_t mask = 0;
        unsigned char *bytes = (unsigned char *)&mask;
        for (uint32_t k = at; k < at + 8 && k < end; k++) bytes[k - from] = 0xff;
        f->word[i] = (struct word){load(start + from), mask, from};
        if (is_token) f->token_words++;
        else f->words++;
    }
    return 1;
}

/* Words without meaning: four are looked at together. */
static int fill_up(form *f, uint32_t *count) {
    for (; *count % 4; ++*count) {
        uint32_t i = f->words + f->token_words;
        if (i == WORDS) return 0;
        f->word[i] = (struct word){0, 0, 0};
    }
    return 1;
}

static void learn(form *f, const char *start, const gnc_request *r) {
    uint32_t at = 0, is_full = loose.count > FREE_PARTS || r->bytes < 8;
    f->bytes = f->words = f->token_words = 0;
    if (is_full) return;
    f->bytes = r->bytes;
    for (uint32_t i = 0; i < loose.count && !is_full; i++) {
        is_full = !cover(f, start, at, loose.part[i].at, 0);
        at = loose.part[i].at + loose.part[i].bytes;
    }
    is_full = is_full || !cover(f, start, at, r->bytes, 0) || !fill_up(f, &f->words);
    for (uint32_t i = 0; i < loose.count && !is_full; i++)
        if (loose.part[i].is_token)
            is_full = !cover(f, start, loose.part[i].at, loose.part[i].at + loose.part[i].bytes, 1);
    is_full = is_full || !fill_up(f, &f->token_words);
    f->request = *r;
    f->key_at = r->key ? (uint32_t)(r->key - start) : 0;
    if (is_full) f->bytes = 0;
}

static uint64_t differs(const struct word *word, const char *start) {
    return (load(start + word->at) ^ word->value) & word->mask;
}

static uint64_t has(uint64_t letters, char one) {
    const uint64_t ones = 0x0101010101010101u;
    letters ^= ones * (unsigned char)one;
    return (letters - ones) & ~letters & ones << 7;
}

/* A space or the end of a line; other control characters do occur in keys. */
static uint64_t is_broken(const struct word *word, const char *start) {
    uint64_t letters = load(start + word->at) | ~word->mask;
    return has(letters, ' ') | has(letters, '\r') | has(letters, '\n');
}

static int is_of(const form *f, const char *start) {
    const struct word *word = f->word, *last = word + f->words;
    uint64_t off = 0;
    for (; word < last; word += 4)
        off |= differs(word, start) | differs(word + 1, start) | differs(word + 2, start) | differs(word + 3, start);
    for (last += f->token_words; word < last; word += 4)
        off |= is_broken(word, start) | is_broken(word + 1, start) | is_broken(word + 2, start) |
               is_broken(word + 3, start);
    return !off;
}

int gnc_parse(const char *at, uint32_t have, gnc_request *r) {
    if (!have) return 0;
    if (gnc_the_model.protocol >= GNC_LENGTH) {
        memset(r, 0, sizeof *r);
        if (gnc_the_model.protocol == GNC_LENGTH) return length_prefixed(at, have, r);
        r->bytes = have; /* what one read brings */
        return 1;
    }
    form *f = &forms[have * 0x9e3779b9u >> 28];
    if (f->bytes == have && is_of(f, at)) {
        *r = f->request;
        if (f->key_at) r->key = at + f->key_at;
        return 1;
    }
    int found = parse(at, have, r);
    if (found == 1 && r->bytes == have) {
        if (f->last_seen == have) learn(f, at, r);
        f->last_seen = have;
    }
    return found;
}
