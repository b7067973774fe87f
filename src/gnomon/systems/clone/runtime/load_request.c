/* Requests of given sizes: made once for each class, so that sending one means writing the digits of its key. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "load.h"

load_requests load_traffic, load_fill;

/* Lengths of keys: where there is a choice, and what memcached allows. A header that only takes room has LEAST_PAD. */
enum { USUAL_KEY = 16, LONGEST_KEY = 250, MOST_DIGITS = 12, LEAST_PAD = 10 };

/* Arguments of a command: k a key, v data that takes the room there is, others as they are. Keys of different kinds of
 * data have different names, or one command would find what another left there. */
typedef struct command {
    const char *verb, *arguments;
    char kind;      /* s string, c counter, l list, u set, h hash, z sorted set, x stream; 0: no key */
    uint8_t around; /* bytes around the data that it answers with, but for the digits of its length; 0: it reads none */
} command;

enum { EXISTS = 1 }; /* in place of `around`: what it changes has to be there */

static const command resp_commands[] = {
    {"GET", "k", 's', 5},          {"SET", "kv", 's', 0},        {"MGET", "k", 's', 9},
    {"MSET", "kv", 's', 0},        {"GETSET", "kv", 's', 5},     {"SETNX", "kv", 's', 0},
    {"SETEX", "k9v", 's', 0},      {"PSETEX", "k9v", 's', 0},    {"STRLEN", "k", 's', 0},
    {"EXISTS", "k", 's', 0},       {"GETRANGE", "k09", 's', 0},  {"APPEND", "kv", 's', 0},
    {"DEL", "k", 's', 0},          {"UNLINK", "k", 's', 0},      {"TTL", "k", 's', 0},
    {"TYPE", "k", 's', 0},         {"EXPIRE", "k9", 's', 0},     {"TOUCH", "k", 's', 0},
    {"INCR", "k", 'c', 0},         {"DECR", "k", 'c', 0},        {"INCRBY", "k1", 'c', 0},
    {"DECRBY", "k1", 'c', 0},      {"LPUSH", "kv", 'l', 0},      {"RPUSH", "kv", 'l', 0},
    {"LPOP", "k", 'l', 5},         {"RPOP", "k", 'l', 5},        {"LLEN", "k", 'l', 0},
    {"LINDEX", "k0", 'l', 5},      {"LRANGE", "k09", 'l', 9},    {"LTRIM", "k09", 'l', 0},
    {"SADD", "kv", 'u', 0},        {"SREM", "kv", 'u', 0},       {"SPOP", "k", 'u', 5},
    {"SCARD", "k", 'u', 0},        {"SMEMBERS", "k", 'u', 9},    {"SISMEMBER", "kv", 'u', 0},
    {"SRANDMEMBER", "k", 'u', 5},  {"HSET", "kfv", 'h', 0},      {"HMSET", "kfv", 'h', 0},
    {"HGET", "kf", 'h', 5},        {"HMGET", "kf", 'h', 9},      {"HGETALL", "k", 'h', 16},
    {"HDEL", "kf", 'h', 0},        {"HEXISTS", "kf", 'h', 0},    {"HLEN", "k", 'h', 0},
    {"ZADD", "k1v", 'z', 0},       {"ZINCRBY", "k1v", 'z', 0},   {"ZSCORE", "kv", 'z', 0},
    {"ZRANK", "kv", 'z', 0},       {"ZCARD", "k", 'z', 0},       {"ZRANGE", "k09", 'z', 9},
    {"ZREM", "kv", 'z', 0},        {"ZPOPMIN", "k", 'z', 16},    {"ZPOPMAX", "k", 'z', 16},
    {"ZCOUNT", "k09", 'z', 0},     {"ZRANGEBYSCORE", "k09", 'z', 9}, {"XADD", "k*fv", 'x', 0},
    {"XLEN", "k", 'x', 0},         {"PUBLISH", "kv", 's', 0},    {"SELECT", "0", 0, 0},
    {"PING", "", 0, 0},            {"ECHO", "v", 0, 0},          {"TIME", "", 0, 0},
    {"DBSIZE", "", 0, 0},          {"INFO", "", 0, 0},
};

/* How data of a kind is filled in. */
static const command resp_fills[] = {
    {"SET", "kv", 's', 0},   {"RPUSH", "kv", 'l', 0}, {"SADD", "kv", 'u', 0},
    {"HSET", "kfv", 'h', 0}, {"ZADD", "k1v", 'z', 0},
};

/* Data follows the line: v is its length there. An answer also has the key in it. */
static const command memcached_commands[] = {
    {"get", "k", 's', 18},           {"set", "k00v", 's', 0},         {"gets", "k", 's', 20},
    {"gat", "0k", 's', 18},          {"gats", "0k", 's', 20},         {"add", "k00v", 's', 0},
    {"replace", "k00v", 's', EXISTS}, {"append", "k00v", 's', EXISTS}, {"prepend", "k00v", 's', EXISTS},
    {"cas", "k00v1", 's', 0},        {"delete", "k", 's', 0},         {"touch", "k0", 's', EXISTS},
    {"incr", "k1", 'c', EXISTS},     {"decr", "k1", 'c', EXISTS},     {"version", "", 0, 0},
};

void *load_allocate(size_t bytes) {
    void *memory = calloc(1, bytes ? bytes : 1);
    if (!memory) load_fail("out of memory", NULL);
    return memory;
}

static uint32_t digits_of(uint64_t value) {
    uint32_t count = 1;
    for (; value > 9; value /= 10) count++;
    return count;
}

/* A request is written twice: first to nowhere, to learn how long it is. */
typedef struct writer {
    char *at; /* NULL: only counted */
    uint32_t bytes, key_at;
} writer;

static void put(writer *w, const char *text, size_t bytes) {
    if (w->at) memcpy(w->at + w->bytes, text, bytes);
    w->bytes += (uint32_t)bytes;
}

static void put_text(writer *w, const char *text) { put(w, text, strlen(text)); }

static void put_number(writer *w, uint64_t value) {
    char text[24];
    put(w, text, (size_t)snprintf(text, sizeof text, "%llu", (unsigned long long)value));
}

/* Printable, and does not compress. */
static void put_data(writer *w, uint32_t bytes) {
    static uint64_t random = 0x2545f4914f6cdd1du;
    for (uint32_t i = 0; w->at && i < bytes; i++) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        uint32_t drawn = (uint32_t)(random >> 33) % 62;
        w->at[w->bytes + i] = (char)(drawn < 10 ? '0' + drawn : drawn < 36 ? 'a' + drawn - 10 : 'A' + drawn - 36);
    }
    w->bytes += bytes;
}

static void put_key(writer *w, uint32_t bytes, char kind) {
    static const char *const names[] = {"key:", "num:", "lst:", "set:", "hsh:", "srt:", "str:"};
    const char *kinds = "scluhzx", *found = strchr(kinds, kind);
    uint32_t named = bytes > 4 ? 4 : 0;
    put(w, names[found ? found - kinds : 0], named);
    w->key_at = w->bytes;
    if (w->at) memset(w->at + w->bytes, '0', bytes - named);
    w->bytes += bytes - named;
}

/* What a request is written from. */
typedef struct shape {
    const command *command;
    uint32_t key_bytes, data_bytes;
    const char *host, *path;
} shape;

static void put_bulk_header(writer *w, uint32_t bytes) {
    put_text(w, "$");
    put_number(w, bytes);
    put_text(w, "\r\n");
}

static void put_argument(writer *w, const shape *s, char argument) {
    switch (argument) {
        case 'k': put_key(w, s->key_bytes, s->command->kind); break;
        case 'v': put_data(w, s->data_bytes); break;
        default: put(w, &argument, 1);
    }
}

static void write_resp(writer *w, const shape *s) {
    const char *arguments = s->command->arguments;
    put_text(w, "*");
    put_number(w, strlen(arguments) + 1);
    put_text(w, "\r\n");
    put_bulk_header(w, (uint32_t)strlen(s->command->verb));
    put_text(w, s->command->verb);
    for (; *arguments; arguments++) {
        put_text(w, "\r\n");
        put_bulk_header(w, *arguments == 'k' ? s->key_bytes : *arguments == 'v' ? s->data_bytes : 1);
        put_argument(w, s, *arguments);
    }
    put_text(w, "\r\n");
}

static void write_inline(writer *w, const shape *s) {
    put_text(w, s->command->verb);
    for (const char *one = s->command->arguments; *one; one++) {
        put_text(w, " ");
        put_argument(w, s, *one);
    }
    put_text(w, "\r\n");
}

static void write_memcached(writer *w, const shape *s) {
    int has_data = 0;
    put_text(w, s->command->verb);
    for (const char *one = s->command->arguments; *one; one++) {
        put_text(w, " ");
        if (*one == 'v') put_number(w, s->data_bytes), has_data = 1;
        else put_argument(w, s, *one);
    }
    put_text(w, "\r\n");
    if (!has_data) return;
    put_data(w, s->data_bytes);
    put_text(w, "\r\n");
}

static int http_has_body(const char *verb) {
    return !strcmp(verb, "POST") || !strcmp(verb, "PUT") || !strcmp(verb, "PATCH");
}

/* What is missing is a header of its own where no body can take it. */
static void write_http(writer *w, const shape *s) {
    int has_body = http_has_body(s->command->verb);
    put_text(w, s->command->verb);
    put_text(w, " ");
    put_text(w, s->path);
    put_text(w, " HTTP/1.1\r\nHost: ");
    if (!has_body && s->data_bytes < LEAST_PAD) put(w, "          ", s->data_bytes); /* any number is allowed */
    put_text(w, s->host);
    put_text(w, "\r\n");
    if (has_body) {
        put_text(w, "Content-Length: ");
        put_number(w, s->data_bytes);
        put_text(w, "\r\n");
    } else if (s->data_bytes >= LEAST_PAD) {
        put_text(w, "X-Pad: ");
        put_data(w, s->data_bytes - (LEAST_PAD - 1));
        put_text(w, "\r\n");
    }
    put_text(w, "\r\n");
    if (has_body) put_data(w, s->data_bytes);
}

static void write_length(writer *w, const shape *s) {
    char prefix[4];
    for (int i = 0; i < 4; i++) prefix[i] = (char)(s->data_bytes >> (24 - 8 * i));
    put(w, prefix, sizeof prefix);
    put_data(w, s->data_bytes);
}

static void write_raw(writer *w, const shape *s) { put_data(w, s->data_bytes); }

typedef void (*write_function)(writer *, const shape *);

static uint32_t measure(write_function write, const shape *s) {
    writer w = {0};
    write(&w, s);
    return w.bytes;
}

/* The size of data with which the request has `bytes`, or as near as possible: a number of one digit more may make one
 * byte unreachable. */
static void fit_data(write_function write, shape *s, uint32_t bytes) {
    s->data_bytes = 0;
    for (int round = 0; round < 4; round++) {
        uint32_t is = measure(write, s);
        if (is == bytes) return;
        if (is > bytes) s->data_bytes -= is - bytes < s->data_bytes ? is - bytes : s->data_bytes;
        else s->data_bytes += bytes - is;
    }
    if (measure(write, s) > bytes && s->data_bytes) s->data_bytes--;
}

static void fit_key(write_function write, shape *s, uint32_t bytes) {
    s->key_bytes = 1;
    for (int round = 0; round < 4; round++) {
        uint32_t is = measure(write, s);
        if (is < bytes) s->key_bytes += bytes - is;
        else if (is > bytes && s->key_bytes > is - bytes) s->key_bytes -= is - bytes;
        if (write == write_memcached && s->key_bytes > LONGEST_KEY) s->key_bytes = LONGEST_KEY;
    }
}

/* A key of the usual length where there is room for it beside data; a byte more or less may make the size come out. */
static void fit(write_function write, shape *s, uint32_t bytes) {
    const char *arguments = s->command->arguments;
    if (!strchr(arguments, 'v')) {
        if (strchr(arguments, 'k')) fit_key(write, s, bytes);
        return;
    }
    static const int changes[] = {0, 1, -1};
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        s->key_bytes = (uint32_t)(USUAL_KEY + changes[i]);
        fit_data(write, s, bytes);
        if (measure(write, s) == bytes || !strchr(arguments, 'k')) return;
    }
    s->data_bytes = 1; /* too small for such a key */
    fit_key(write, s, bytes);
}

static const command *find(const command *commands, size_t count, const char *verb) {
    for (size_t i = 0; i < count; i++)
        if (!strcasecmp(commands[i].verb, verb)) return &commands[i];
    return NULL;
}
#define FIND(commands, verb) find(commands, sizeof commands / sizeof *commands, verb)

static load_request written(write_function write, const shape *s) {
    load_request made = {0};
    writer w = {0};
    write(&w, s);
    w = (writer){.at = load_allocate(w.bytes)};
    write(&w, s);
    made.text = w.at;
    made.bytes = w.bytes;
    if (w.key_at) {
        uint32_t digits = s->key_bytes > 4 ? s->key_bytes - 4 : s->key_bytes;
        made.digits = digits < MOST_DIGITS ? digits : MOST_DIGITS;
        made.digits_at = w.key_at + digits - made.digits;
    }
    return made;
}

/* How the requests of a class are written: `s` is filled in, but for sizes. */
static write_function choose(const gnc_request_class *class, shape *s, command *own) {
    int is_other = !strcmp(class->verb, "OTHER");
    *own = (command){.verb = class->verb, .arguments = "v"};
    s->command = own;
    switch (gnc_the_traffic.protocol) {
        case GNC_TRAFFIC_RESP:
            s->command = FIND(resp_commands, is_other ? "ECHO" : class->verb);
            if (!s->command) *own = (command){class->verb, "k", 's', 0}, s->command = own;
            return write_resp;
        case GNC_TRAFFIC_MEMCACHED:
            s->command = FIND(memcached_commands, is_other ? "get" : class->verb);
            if (!s->command) *own = (command){class->verb, "k", 's', 0}, s->command = own;
            return write_memcached;
        case GNC_TRAFFIC_HTTP:
            if (is_other) own->verb = "GET";
            return write_http;
        case GNC_TRAFFIC_LENGTH: return write_length;
        default: return write_raw;
    }
}

/* The size of the data that the keys of a class hold: what it stores, or answers with. */
static uint32_t data_of(const shape *s, uint32_t reply_bytes) {
    uint32_t around = s->command->around;
    if (around == EXISTS) return s->data_bytes ? s->data_bytes : 1;
    if (!around) return s->data_bytes;
    if (gnc_the_traffic.protocol == GNC_TRAFFIC_MEMCACHED) around += s->key_bytes;
    if (reply_bytes <= around + 1) return 0;
    uint32_t data = reply_bytes - around - 1;
    while (data + digits_of(data) + around > reply_bytes) data--;
    return data;
}

/* Classes whose keys hold the same: they share them. */
typedef struct space {
    char kind;
    uint32_t data_bytes, key_bytes;
    double weight;
    uint64_t first, keys;
} space;

static space *spaces;
static uint32_t space_count;

static space *space_for(char kind, uint32_t data_bytes, uint32_t key_bytes) {
    for (uint32_t i = 0; i < space_count; i++)
        if (spaces[i].kind == kind && spaces[i].data_bytes == data_bytes && spaces[i].key_bytes == key_bytes)
            return &spaces[i];
    spaces[space_count] = (space){.kind = kind, .data_bytes = data_bytes, .key_bytes = key_bytes};
    return &spaces[space_count++];
}

/* Keys are shared out by weight, so that there are as many in all as were recorded. */
static void share_keys(void) {
    double total = 0;
    uint64_t next = 0;
    for (uint32_t i = 0; i < space_count; i++) total += spaces[i].weight;
    for (uint32_t i = 0; i < space_count; i++) {
        spaces[i].first = next;
        spaces[i].keys = (uint64_t)(gnc_the_traffic.keys * (total > 0 ? spaces[i].weight / total : 0) + 0.5);
        if (!spaces[i].keys) spaces[i].keys = 1;
        next += spaces[i].keys;
    }
}

static void give_keys(load_request *r, const space *of) {
    r->first_key = of->first;
    r->keys = of->keys;
}

static void add_fill(const space *s, write_function write) {
    shape filled = {.key_bytes = s->key_bytes, .data_bytes = s->data_bytes};
    const command *c = NULL;
    int is_resp = gnc_the_traffic.protocol == GNC_TRAFFIC_RESP;
    for (size_t i = 0; is_resp && i < sizeof resp_fills / sizeof *resp_fills; i++)
        if (resp_fills[i].kind == s->kind) c = &resp_fills[i];
    if (!is_resp) c = FIND(memcached_commands, "set");
    if (!c) return;
    command of_kind = {c->verb, c->arguments, s->kind, 0};
    filled.command = &of_kind;
    if (is_resp && s->kind != 's') { /* else every run would add to it */
        command removal = {"DEL", "k", s->kind, 0};
        shape removed = {.command = &removal, .key_bytes = s->key_bytes};
        load_fill.one[load_fill.count] = written(write, &removed);
        give_keys(&load_fill.one[load_fill.count++], s);
    }
    load_request made = written(write, &filled);
    if (s->kind == 'c') memset(made.text + made.bytes - 3, '1', 1);
    load_fill.one[load_fill.count] = made;
    give_keys(&load_fill.one[load_fill.count++], s);
}

void load_set_key(load_request *r, uint64_t number) {
    for (char *first = r->text + r->digits_at, *at = first + r->digits; at > first; number /= 10)
        *--at = (char)('0' + number % 10);
}

static void cumulate_weights(void) {
    const gnc_traffic *traffic = &gnc_the_traffic;
    uint32_t phases = traffic->phases ? traffic->phases : 1;
    load_traffic.until = load_allocate(phases * sizeof *load_traffic.until);
    for (uint32_t p = 0; p < phases; p++) {
        double sum = 0, *until = load_traffic.until[p] = load_allocate(traffic->classes * sizeof *until);
        for (uint32_t i = 0; i < traffic->classes; i++)
            until[i] = sum += traffic->phases ? traffic->phase[p].weight[i] : traffic->requests[i].weight;
        for (uint32_t i = 0; i < traffic->classes; i++) until[i] /= sum;
    }
}

void load_prepare(const char *host, const char *path) {
    const gnc_traffic *traffic = &gnc_the_traffic;
    uint32_t count = traffic->classes;
    int has_keys = traffic->protocol == GNC_TRAFFIC_RESP || traffic->protocol == GNC_TRAFFIC_MEMCACHED;
    write_function write = write_raw;
    if (!count) load_fail("there are no requests in traffic.c", NULL);
    spaces = load_allocate(count * sizeof *spaces);
    uint8_t *is_read = load_allocate(count);
    uint32_t *space_of = load_allocate(count * sizeof *space_of);
    load_traffic.count = count;
    load_traffic.one = load_allocate(count * sizeof(load_request));
    cumulate_weights();
    load_fill.one = load_allocate(2 * count * sizeof(load_request));
    for (uint32_t i = 0; i < count; i++) {
        const gnc_request_class *class = &traffic->requests[i];
        shape s = {.host = host, .path = path};
        command own;
        write = choose(class, &s, &own);
        fit(write, &s, class->request_bytes);
        /* Redis takes a command on a line as well: shorter than any array. */
        if (write == write_resp && measure(write, &s) > class->request_bytes) {
            fit(write_inline, &s, class->request_bytes);
            load_traffic.one[i] = written(write_inline, &s);
        } else {
            load_traffic.one[i] = written(write, &s);
        }
        load_traffic.one[i].reply_bytes = class->reply_bytes;
        load_traffic.one[i].is_head = traffic->protocol == GNC_TRAFFIC_HTTP && !strcmp(class->verb, "HEAD");
        if (!has_keys || !s.command->kind) continue;
        uint32_t data = data_of(&s, class->reply_bytes);
        space *mine = space_for(s.command->kind, data, s.key_bytes);
        mine->weight += class->weight;
        space_of[i] = (uint32_t)(mine - spaces) + 1;
        if (s.command->around && data) is_read[mine - spaces] = 1;
    }
    share_keys();
    for (uint32_t i = 0; i < count; i++)
        if (space_of[i]) give_keys(&load_traffic.one[i], &spaces[space_of[i] - 1]);
    for (uint32_t i = 0; i < space_count; i++)
        if (is_read[i]) add_fill(&spaces[i], write);
    free(is_read);
    free(space_of);
}
