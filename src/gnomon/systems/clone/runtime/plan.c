/* Scripts made ready to be drawn and run: cumulated shares and weights, and what each step is about. */
#include "runtime.h"

static gnc_variant *variants;
static uint32_t **kind_until; /* cumulated weights of reply sizes, of 2^32 */

enum gnc_kind gnc_kind_of(const gnc_step *s) {
    if (s->call == GNC_WAIT) return GNC_STEP_WAIT;
    if (s->target != GNC_CONNECTION) return GNC_STEP_PLAIN;
    if (s->call >= GNC_READ && s->call <= GNC_RECVMSG) return GNC_STEP_RECEIVE;
    if (s->call >= GNC_WRITE && s->call <= GNC_SENDFILE) return GNC_STEP_SEND;
    return s->call == GNC_CLOSE ? GNC_STEP_CLOSE : s->call == GNC_SHUTDOWN ? GNC_STEP_SHUTDOWN : GNC_STEP_PLAIN;
}

static uint32_t of_2_32(double share) { return share >= 1 ? UINT32_MAX : (uint32_t)(share * 4294967296.0); }

static uint32_t *plan_sizes(uint32_t sizes, const uint32_t *weight) {
    double total = 0, sum = 0;
    for (uint32_t i = 0; i < sizes; i++) total += weight[i];
    uint32_t *until = gnc_allocate((sizes + 1) * sizeof *until);
    for (uint32_t i = 0; i < sizes; i++) until[i] = of_2_32((sum += weight[i]) / total);
    if (sizes) until[sizes - 1] = UINT32_MAX;
    return until;
}

static void plan_steps(gnc_variant *v) {
    const gnc_step *steps = v->script->steps, *first = NULL;
    uint32_t count = gnc_steps(v->script), last = 0;
    v->kinds = gnc_allocate(count);
    for (uint32_t i = 0; i < count; i++) {
        v->kinds[i] = (uint8_t)gnc_kind_of(&steps[i]);
        v->closes |= v->kinds[i] == GNC_STEP_CLOSE || v->kinds[i] == GNC_STEP_SHUTDOWN;
        if (v->kinds[i] != GNC_STEP_SEND) continue;
        if (first) v->head_bytes = first->bytes;
        else first = &steps[i];
        last = i;
    }
    if (first) v->kinds[last] = GNC_STEP_SEND_LAST;
}

void gnc_plan(void) {
    const gnc_model *model = &gnc_the_model;
    double total = 0, sum = 0;
    if (!model->request_scripts) gnc_fail("the model has no request script");
    variants = gnc_allocate(model->request_scripts * sizeof *variants);
    for (uint32_t i = 0; i < model->request_scripts; i++) total += model->requests[i].share;
    for (uint32_t i = 0; i < model->request_scripts; i++) {
        variants[i].script = &model->requests[i];
        if (!gnc_steps(&model->requests[i]) || gnc_kind_of(model->requests[i].steps) != GNC_STEP_RECEIVE ||
            !model->requests[i].steps->bytes)
            gnc_fail("a request script does not begin with reading the request");
        variants[i].until = of_2_32((sum += model->requests[i].share) / total);
        variants[i].size_until = plan_sizes(model->requests[i].sizes, model->requests[i].weight);
        plan_steps(&variants[i]);
    }
    variants[model->request_scripts - 1].until = UINT32_MAX;
    kind_until = gnc_allocate((model->kinds + 1u) * sizeof *kind_until);
    for (uint32_t i = 0; i < model->kinds; i++) kind_until[i] = plan_sizes(model->kind[i].sizes, model->kind[i].weight);
}

static uint32_t draw(gnc_worker *w) {
    uint64_t x = w->random;
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    w->random = x;
    return (uint32_t)(x >> 32);
}

const gnc_variant *gnc_draw_variant(gnc_worker *w) {
    const gnc_variant *v = variants;
    if (gnc_the_model.request_scripts == 1) return v;
    for (uint32_t x = draw(w); x > v->until;) v++;
    return v;
}

uint32_t gnc_draw_size(gnc_worker *w, const gnc_variant *v) {
    uint32_t low = 0, high = v->script->sizes, *until = v->size_until;
    const uint32_t *size = v->script->size;
    if (gnc_the_model.kinds && gnc_the_model.kind[w->kind].sizes) {
        high = gnc_the_model.kind[w->kind].sizes;
        size = gnc_the_model.kind[w->kind].size;
        until = kind_until[w->kind];
    }
    if (!high) return 0;
    if (high == 1) return size[0];
    uint32_t x = draw(w);
    while (low + 1 < high) {
        uint32_t middle = (low + high) / 2;
        if (x > until[middle - 1]) low = middle;
        else high = middle;
    }
    return size[low];
}

/* The command first, then the size. */
void gnc_tell_kind(gnc_worker *w, const gnc_request *r) {
    if (r->word == w->kind_word && r->bytes == w->kind_bytes) return;
    w->kind_word = r->word;
    w->kind_bytes = r->bytes;
    uint64_t least = UINT64_MAX;
    for (uint32_t i = 0; i < gnc_the_model.kinds; i++) {
        const gnc_kind_of_request *kind = &gnc_the_model.kind[i];
        uint64_t off = (uint64_t)(kind->word != r->word) << 32;
        off += kind->bytes > r->bytes ? kind->bytes - r->bytes : r->bytes - kind->bytes;
        if (off < least) least = off, w->kind = i;
    }
}
