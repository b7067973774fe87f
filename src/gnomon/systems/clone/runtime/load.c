/* A load generator: sends what traffic.c says, to the clone or to the original.
 *
 * Without a rate each connection sends its next request when it has its answer: a closed loop, which slows down with
 * the server. With a rate requests are due at times that do not depend on the server: an open loop. Latency counts from
 * when a request was due, not from when a connection was free to send it. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>

#include "load.h"

struct load_options load_options = {
    .host = "127.0.0.1", .path = "/", .fill = "yes", .requests = 100000, .seed = 1, .timeout_s = 120,
};

_Noreturn void load_fail(const char *what, const char *why) {
    fprintf(stderr, "load: %s%s%s\n", what, why ? ": " : "", why ? why : "");
    exit(1);
}

static _Noreturn void refuse(const char *option, const char *wanted) {
    fprintf(stderr,
            "load: %s: %s\n"
            "usage: load --port P [--host 127.0.0.1] [--connections C] [--requests N] [--rate R] [--seed S] [--json]\n"
            "            [--path /] [--fill yes|no|only] [--wait SECONDS] [--timeout SECONDS]\n",
            option, wanted);
    exit(2);
}

static double number(const char *option, const char *text, double least, double most) {
    char *end;
    double value = text ? strtod(text, &end) : 0;
    if (!text || !*text || *end || !(value >= least) || !(value <= most))
        refuse(option, "a number is missing or out of range");
    return value;
}

static int is_one_of(const char *value, const char *a, const char *b, const char *c) {
    return !strcmp(value, a) || !strcmp(value, b) || !strcmp(value, c);
}

static void read_options(int count, char **arguments) {
    for (int i = 1; i < count; i++) {
        const char *option = arguments[i], *value = i + 1 < count ? arguments[i + 1] : NULL;
        if (!strcmp(option, "--json")) {
            load_options.is_json = 1;
            continue;
        }
        if (!strcmp(option, "--port")) load_options.port = (int)number(option, value, 1, 65535);
        else if (!strcmp(option, "--connections")) load_options.connections = (uint32_t)number(option, value, 1, 20000);
        else if (!strcmp(option, "--requests")) load_options.requests = (uint64_t)number(option, value, 1, 1e12);
        else if (!strcmp(option, "--rate")) load_options.rate = number(option, value, 1e-3, 1e7);
        else if (!strcmp(option, "--seed")) load_options.seed = (uint64_t)number(option, value, 0, 9e15);
        else if (!strcmp(option, "--timeout")) load_options.timeout_s = number(option, value, 1e-3, 1e6);
        else if (!strcmp(option, "--wait")) load_options.wait_s = number(option, value, 0, 1e6);
        else if (!strcmp(option, "--host") && value) load_options.host = value;
        else if (!strcmp(option, "--path") && value && *value == '/') load_options.path = value;
        else if (!strcmp(option, "--fill") && value && is_one_of(value, "yes", "no", "only")) load_options.fill = value;
        else refuse(option, "not an option, or not one of its values");
        i++;
    }
    if (!load_options.port) refuse("--port", "is missing");
    if (!load_options.connections) load_options.connections = gnc_the_traffic.connections;
    if (!load_options.connections) load_options.connections = 1;
}

int main(int count, char **arguments) {
    read_options(count, arguments);
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
    signal(SIGPIPE, SIG_IGN);
    prctl(PR_SET_TIMERSLACK, 1UL);
    for (uint32_t i = 0; i < gnc_the_traffic.phases; i++)
        if (load_options.rate <= 0 && gnc_the_traffic.phase[i].rate != gnc_the_traffic.phase[0].rate) {
            fprintf(stderr, "load: a closed loop does not follow the rates of phases: give --rate\n");
            break;
        }
    load_prepare(load_options.host, load_options.path);
    load_connect();
    if (strcmp(load_options.fill, "no") && !load_fill_in())
        load_fail("the data could not be filled in before the timeout", NULL);
    if (!strcmp(load_options.fill, "only")) return 0;
    uint64_t began = load_now_ns();
    int is_done = load_run();
    load_report((double)(load_now_ns() - began) / 1e9);
    if (!is_done)
        fprintf(stderr, "load: %llu of %llu requests were answered before the timeout\n",
                (unsigned long long)load_seen.answers, (unsigned long long)load_options.requests);
    return is_done && load_seen.answers ? 0 : 1;
}
