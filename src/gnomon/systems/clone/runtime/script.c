/* Request scripts: read, find the requests, carry out the steps, send the replies. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime.h"
#include "system.h"

static void make_room(char **buffer, uint32_t *room, size_t wanted) {
    if (wanted <= *room) return;
    *room = (uint32_t)(*room ? wanted + wanted / 2 : wanted);
    *buffer = realloc(*buffer, *room);
    if (!*buffer) gnc_fail("out of memory");
}

/* After an error: there is nobody to send to. */
static void drop(gnc_worker *w, gnc_connection *c) {
    c->ends = 1;
    c->owed = c->blocked = 0;
    c->out_done = c->out_have = w->left = 0;
}

/* Puts what is left of the worker's reply behind what the connection still has to send. */
static void keep(gnc_worker *w, gnc_connection *c) {
    if (c->out_done == c->out_have) c->out_done = c->out_have = 0;
    make_room(&c->out, &c->out_room, (size_t)c->out_have + w->left);
    memcpy(c->out + c->out_have, w->from, w->left);
    c->out_have += w->left;
    w->left = w->head = 0;
}

static void compose(gnc_worker *w, gnc_connection *c) {
    if (!c->owed) return;
    c->owed = 0;
    gnc_compose(w, &c->request, c->size, c->variant->head_bytes);
    if (c->out_have > c->out_done) keep(w, c);
}

/* Composes a reply that is still owed before its request is overwritten. */
static void set_aside(gnc_worker *w, gnc_connection *c) {
    compose(w, c);
    if (w->left) keep(w, c);
}

/* Reads more of a request behind what there is. Returns as the call does. */
static long receive(gnc_worker *w, gnc_connection *c, const gnc_step *s) {
    if (c->owed && c->request.key) set_aside(w, c);
    if (c->in_done) {
        c->in_have -= c->in_done;
        if (c->in_have) memmove(c->in, c->in + c->in_done, c->in_have);
        c->in_done = 0;
    }
    if (c->in_have > GNC_REQUEST_LIMIT) return drop(w, c), 0;
    make_room(&c->in, &c->in_room, (size_t)c->in_have + s->bytes);
    gnc_enter(w, s->key, s->clocks);
    w->connection = (uint32_t)c->fd;
    long got = gnc_receive(s, c->fd, c->in + c->in_have, s->bytes);
    if (got > 0) c->in_have += (uint32_t)got;
    else if (got == 0 && s->bytes) c->ends = 1;
    else if (got == -EAGAIN) c->drained = 1;
    else if (got != -EINTR) drop(w, c);
    return got;
}

static void wait_for_room(gnc_worker *w, gnc_connection *c) {
    c->blocked = 1;
    gnc_watch_connection(w, c, EPOLL_CTL_MOD, EPOLLOUT);
}

/* What was composed, and is not sent: behind what waits. */
static void left_over(gnc_worker *w, gnc_connection *c, long sent, uint32_t bytes) {
    if (sent < 0 && sent != -EAGAIN && sent != -EINTR) return drop(w, c);
    if (sent < 0) sent = 0;
    w->from += sent;
    w->left -= (uint32_t)sent;
    if ((uint32_t)sent == bytes) return;
    keep(w, c);
    wait_for_room(w, c);
}

/* A file is sent as it was, unless more than data is to be sent. */
static long send_file_or_data(gnc_worker *w, const gnc_step *s, int fd, const char *from, uint32_t bytes, int is_data) {
    gnc_step plain = {.call = GNC_WRITE};
    if (s->call != GNC_SENDFILE) return gnc_send(s, fd, (char *)from, bytes);
    if (!is_data || gnc_the_model.protocol != GNC_HTTP) return gnc_send(&plain, fd, (char *)from, bytes);
    off_t begin = 0;
    return GNC_SYSTEM(SYS_sendfile, fd, w->fd[GNC_FILE], &begin, (size_t)bytes);
}

/* Behind a reply that was kept. */
static void send_kept(gnc_worker *w, gnc_connection *c, const gnc_step *s, int is_last) {
    uint32_t bytes = c->out_have - c->out_done;
    if (!is_last && s->bytes < bytes) bytes = s->bytes;
    gnc_enter(w, s->key, s->clocks);
    w->connection = (uint32_t)c->fd;
    long sent = send_file_or_data(w, s, c->fd, c->out + c->out_done, bytes, 0);
    if (sent < 0 && sent != -EAGAIN && sent != -EINTR) return drop(w, c);
    if (sent > 0) c->out_done += (uint32_t)sent;
    if (sent != (long)bytes) wait_for_room(w, c);
}

static void send_step(gnc_worker *w, gnc_connection *c, const gnc_step *s, int is_last) {
    compose(w, c);
    if (c->blocked || !c->open) return;
    if (c->out_have > c->out_done) return send_kept(w, c, s, is_last);
    if (!w->left) return;
    uint32_t bytes = w->head ? w->head : s->bytes;
    int is_data = !w->head;
    if (is_last || bytes > w->left) bytes = w->left;
    w->head = 0; /* what follows it is the body */
    gnc_enter(w, s->key, s->clocks);
    w->connection = (uint32_t)c->fd;
    long sent = send_file_or_data(w, s, c->fd, w->from, bytes, is_data);
    if (__builtin_expect(sent == (long)w->left, 1)) w->left = 0;
    else left_over(w, c, sent, bytes);
}

/* Sends what waits, outside any script: the original would have done so too, had its peer been as slow. */
static void flush(gnc_worker *w, gnc_connection *c) {
    long sent = GNC_SYSTEM(SYS_write, c->fd, c->out + c->out_done, (size_t)(c->out_have - c->out_done));
    if (sent < 0 && sent != -EAGAIN && sent != -EINTR) return drop(w, c);
    if (sent > 0) c->out_done += (uint32_t)sent;
    if (c->out_done < c->out_have) {
        if (!c->blocked) wait_for_room(w, c);
    } else if (c->blocked) {
        c->blocked = 0;
        gnc_watch_connection(w, c, EPOLL_CTL_MOD, EPOLLIN);
    }
}

static void end_connection(gnc_worker *w, gnc_connection *c, const gnc_step *s) {
    c->open = 0; /* first: the descriptor may be another worker's at once */
    w->freed = 1;
    gnc_watch(w, 0, c->fd, 0);
    if (s) gnc_do(w, s, NULL, 0);
    else GNC_SYSTEM(SYS_close, c->fd);
    w->fd[GNC_CONNECTION] = -1;
}

static void run(gnc_worker *w, gnc_connection *c, uint32_t from, uint32_t to) {
    const gnc_step *s = c->variant->script->steps + from;
    for (const uint8_t *kinds = c->variant->kinds; from < to; from++, s++) {
        switch (kinds[from]) {
            case GNC_STEP_RECEIVE:
                if (!c->open) break;
                w->read_ahead |= receive(w, c, s) > 0;
                if (c->owed && gnc_the_model.protocol == GNC_RAW) c->in_done = c->in_have; /* more of this request */
                break;
            case GNC_STEP_SEND:
            case GNC_STEP_SEND_LAST: send_step(w, c, s, kinds[from] == GNC_STEP_SEND_LAST); break;
            case GNC_STEP_CLOSE:
            case GNC_STEP_SHUTDOWN:
                if (c->blocked) c->ends = 1; /* after what waits */
                else if (c->open && kinds[from] == GNC_STEP_CLOSE) end_connection(w, c, s);
                else gnc_do(w, s, NULL, 0);
                break;
            case GNC_STEP_WAIT: break; /* once for all connections */
            default: gnc_do(w, s, w->scratch, s->bytes);
        }
    }
}

/* A script without a step that sends all must not keep the client waiting. */
static void settle(gnc_worker *w, gnc_connection *c) {
    if (!c->open) return drop(w, c);
    set_aside(w, c);
    if (c->out_have > c->out_done && !c->blocked) flush(w, c);
}

/* One more request of a pipeline was read by the same call. The work on it is where the original went from one read to
 * the next, or to the step after it. */
static void work_again(gnc_worker *w, const gnc_script *script) {
    uint32_t key = script->steps[0].key;
    gnc_edge edge = gnc_the_model.edges[key * gnc_the_model.keys + key];
    if (!edge && gnc_steps(script) > 1) edge = gnc_the_model.edges[key * gnc_the_model.keys + script->steps[1].key];
    if (edge) edge(w->kind + w->copy, w->connection, w->connection);
}

/* All complete requests in the buffer, without the step that read them. Replies of later phases gather. */
static void serve(gnc_worker *w, gnc_connection *c) {
    const gnc_script *script = c->variant->script;
    int found = 0, is_more = c->later, is_last = 0;
    while (c->in_done < c->in_have && c->open && !c->blocked && !is_last) {
        gnc_request request; /* the one before may still have to be answered */
        found = gnc_parse(c->in + c->in_done, c->in_have - c->in_done, c->owed ? &request : &c->request);
        if (found <= 0) break;
        if (c->owed) {
            set_aside(w, c);
            c->request = request;
        }
        if (is_more && !c->later) { /* a request of its own, but for the call that read it */
            c->variant = gnc_draw_variant(w);
            script = c->variant->script;
        }
        gnc_tell_kind(w, &c->request);
        if (gnc_the_model.backgrounds) /* lost counts do not matter: it is seen that there are some */
            atomic_store_explicit(&gnc_served, atomic_load_explicit(&gnc_served, memory_order_relaxed) + 1,
                                  memory_order_relaxed);
        if (gnc_the_model.turns) gnc_turn(w);
        c->request.ends |= c->variant->closes;
        is_last = c->request.ends;
        c->in_done += c->request.bytes;
        c->size = c->request.text ? 0 : gnc_draw_size(w, c->variant);
        c->owed = 1;
        if (is_more && script->phases > 1 && script->counts[0] == 1) work_again(w, script);
        else if (is_more) w->previous = script->steps[0].key;
        is_more = 1;
        if (script->counts[0] > 1) run(w, c, 1, script->counts[0]);
        if (script->phases == 1) {
            settle(w, c);
        } else if (!c->later) {
            c->later = 1;
            c->next = script->counts[0];
            w->later[w->later_count++] = c;
        }
    }
    if (found < 0 || is_last) c->ends = 1;
}

void gnc_ready(gnc_worker *w, gnc_connection *c) {
    w->fd[GNC_CONNECTION] = c->fd;
    if (c->blocked) {
        flush(w, c);
        if (c->blocked) return;
        if (!c->ends) serve(w, c);
    } else {
        c->drained = 0;
        do {
            if (!c->later) c->variant = gnc_draw_variant(w);
            if (receive(w, c, c->variant->script->steps) <= 0) break;
            serve(w, c);
        } while (gnc_the_model.reads_on && c->open && !c->drained && !c->blocked && !c->ends);
    }
    if (c->open && c->ends && !c->blocked && !c->later) gnc_hang_up(w, c);
}

static void run_phases(gnc_worker *w) {
    for (uint32_t phase = 1, left = w->later_count; left; phase++) {
        int has_looked = 0;
        left = 0;
        for (uint32_t i = 0; i < w->later_count; i++) {
            gnc_connection *c = w->later[i];
            if (!c->later || c->owner != w) continue; /* closed, and opened again, by this worker or another */
            const gnc_script *script = c->variant->script;
            w->fd[GNC_CONNECTION] = c->open ? c->fd : -1;
            if (c->variant->kinds[c->next] == GNC_STEP_WAIT && !has_looked) {
                gnc_look(w, script->steps + c->next);
                has_looked = 1;
            }
            if (script->counts[phase] == 1 && c->variant->kinds[c->next] == GNC_STEP_SEND_LAST)
                send_step(w, c, script->steps + c->next, 1);
            else
                run(w, c, c->next, c->next + (uint32_t)script->counts[phase]);
            c->next = (uint16_t)(c->next + script->counts[phase]);
            if (phase + 1u < script->phases) {
                left++;
                if (w->left) keep(w, c);
                continue;
            }
            c->later = 0;
            settle(w, c);
            if (c->open && c->ends && !c->blocked) gnc_hang_up(w, c);
        }
    }
}

/* A later phase may have read the next request. */
static void serve_ahead(gnc_worker *w) {
    uint32_t count = w->later_count;
    w->later_count = w->read_ahead = 0;
    for (uint32_t i = 0; i < count; i++) {
        gnc_connection *c = w->later[i];
        if (c->in_done == c->in_have || !c->open || c->later || c->blocked || c->owner != w) continue;
        w->fd[GNC_CONNECTION] = c->fd;
        c->variant = gnc_draw_variant(w);
        serve(w, c);
        if (c->open && c->ends && !c->blocked && !c->later) gnc_hang_up(w, c);
    }
}

void gnc_phases(gnc_worker *w) {
    run_phases(w);
    while (w->read_ahead) {
        serve_ahead(w);
        run_phases(w);
    }
    w->later_count = 0;
}

void gnc_hang_up(gnc_worker *w, gnc_connection *c) {
    const gnc_script *script = &gnc_the_model.on_close;
    uint32_t count = gnc_steps(script);
    w->fd[GNC_CONNECTION] = c->fd;
    for (const gnc_step *s = script->steps; count--; s++) {
        if (gnc_kind_of(s) == GNC_STEP_SEND) gnc_enter(w, s->key, s->clocks); /* a client expects replies, no more */
        else if (gnc_kind_of(s) != GNC_STEP_CLOSE) gnc_do(w, s, w->scratch, s->bytes);
        else if (c->open) end_connection(w, c, s);
    }
    if (c->open) end_connection(w, c, NULL);
}
