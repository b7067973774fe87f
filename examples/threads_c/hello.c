/* Preemption in two steps: a function that is launched and resumed by hand, then a pool that does it.
 *
 *     prefix=$(python -c 'import gnomon._core, os; print(os.path.dirname(gnomon._core.__file__))')
 *     export PKG_CONFIG_PATH=$prefix/lib/pkgconfig
 *     cc hello.c $(pkg-config --cflags --libs gnomon-threads) -o hello && ./hello
 */
#include <gnomon/threads.h>
#include <stdatomic.h>
#include <stdio.h>

static atomic_int times_preempted, is_short_done;

/* Too long for its limit: it ends only after it was preempted three times. */
static intptr_t work(void *answer) {
    while (atomic_load(&times_preempted) < 3) gnt_poll();
    return *(int *)answer;
}

static int launch_by_hand(void) {
    int answer = 42;
    gnt_source *source = gnt_source_open("clock", NULL, 0);
    gnt_context *context = gnt_context_new(0);
    if (source == NULL || context == NULL || gnt_attach(source) != 0) return 1;
    int status = gnt_launch(context, work, &answer, 10000); /* 10 us at most */
    while (status == GNT_PREEMPTED) {
        printf("preempted %d\n", atomic_fetch_add(&times_preempted, 1) + 1);
        status = gnt_resume(context, 10000);
    }
    printf("%s: %d\n", status == GNT_COMPLETED ? "completed" : gnt_error(status), (int)gnt_result(context));
    gnt_context_free(context);
    gnt_detach();
    gnt_source_close(source);
    return status;
}

/* Without preemption the short task would wait for the long one, which waits for the short one. */
static intptr_t run_long(void *unused) {
    (void)unused;
    while (!atomic_load(&is_short_done)) gnt_poll();
    return 0;
}

static intptr_t run_short(void *unused) {
    (void)unused;
    atomic_store(&is_short_done, 1);
    return 0;
}

static void print_done(const gnt_report *report, void *name) {
    (void)report;
    printf("%s task done\n", (const char *)name);
}

static int run_a_pool(void) {
    char error[200] = "";
    gnt_pool_options options = GNT_POOL_OPTIONS;
    options.source = "clock";
    gnt_pool *pool = gnt_pool_start(&options, error, sizeof error);
    if (pool == NULL) {
        fprintf(stderr, "%s\n", error);
        return 1;
    }
    gnt_job first = {.function = run_long, .kind = 1, .on_done = print_done, .user = "long"};
    gnt_job second = {.function = run_short, .kind = 0, .on_done = print_done, .user = "short"};
    int status = gnt_submit(pool, &first, NULL);
    if (status == 0) status = gnt_submit(pool, &second, NULL);
    if (status != 0) fprintf(stderr, "%s\n", gnt_error(status));
    gnt_pool_stop(pool, status == 0); /* waits for both */
    return status;
}

int main(void) { return launch_by_hand() != 0 || run_a_pool() != 0; }
