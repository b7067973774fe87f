/* Latencies as counts of a histogram, and what is printed at the end. */
#include <math.h>
#include <stdio.h>

#include "load.h"

enum { SUB_BITS = 10, BUCKETS = 64 << SUB_BITS }; /* steps of 0.1 % */

struct load_seen load_seen;

static uint64_t latency[BUCKETS];

void load_count_latency(uint64_t ns) {
    int shift = 63 - __builtin_clzll(ns | 1) - SUB_BITS;
    if (shift < 0) shift = 0;
    latency[((uint64_t)shift << SUB_BITS) + (ns >> shift)]++;
    load_seen.latency_sum_ns += (double)ns;
    if (ns > load_seen.latency_max_ns) load_seen.latency_max_ns = ns;
}

static double quantile_ms(double share) {
    uint64_t wanted = (uint64_t)ceil(share * (double)load_seen.answers), seen = 0;
    double max = (double)load_seen.latency_max_ns;
    for (uint32_t i = 0; i < BUCKETS; i++) {
        seen += latency[i];
        if (!latency[i] || seen < wanted) continue;
        uint32_t shift = i >> SUB_BITS;
        if (shift) shift--; /* what is shifted has its highest bit set: its indices begin one step higher */
        double low = (double)((uint64_t)(i - (shift << SUB_BITS)) << shift), step = (double)((uint64_t)1 << shift);
        double middle = low + (step - 1) / 2;
        return (middle < max ? middle : max) / 1e6;
    }
    return 0;
}

static double mean(double sum, uint64_t count) { return count ? sum / (double)count : 0; }

static void print_json(double seconds) {
    const struct load_seen *s = &load_seen;
    printf("{\"requests\": %llu, \"errors\": %llu, \"seconds\": %.6f, \"rps\": %.3f, ", (unsigned long long)s->answers,
           (unsigned long long)s->errors, seconds, (double)s->answers / seconds);
    printf("\"p50_ms\": %.6f, \"p90_ms\": %.6f, \"p99_ms\": %.6f, \"max_ms\": %.6f, \"mean_ms\": %.6f, ",
           quantile_ms(0.5), quantile_ms(0.9), quantile_ms(0.99), (double)s->latency_max_ns / 1e6,
           mean(s->latency_sum_ns, s->answers) / 1e6);
    printf("\"late_ms\": %.6f, \"request_bytes\": %.3f, \"reply_bytes\": %.3f, ",
           mean(s->late_sum_ns, s->late_count) / 1e6, mean((double)s->bytes_sent, s->sent),
           mean((double)s->bytes_received, s->answers));
    printf("\"open_loop\": %s, \"connections\": %u, \"phases\": [", load_options.rate > 0 ? "true" : "false",
           load_options.connections);
    for (uint32_t i = 0; s->phase && i < gnc_the_traffic.phases; i++)
        printf("%s{\"seconds\": %.6f, \"requests\": %llu}", i ? ", " : "", (double)s->phase[i].ns / 1e9,
               (unsigned long long)s->phase[i].answers);
    printf("]}\n");
}

static void print_lines(double seconds) {
    const struct load_seen *s = &load_seen;
    printf("requests      %llu in %.3f s, %.0f per second, %s\n", (unsigned long long)s->answers, seconds,
           (double)s->answers / seconds, load_options.rate > 0 ? "open loop" : "closed loop");
    printf("errors        %llu\n", (unsigned long long)s->errors);
    printf("latency (ms)  mean %.3f, p50 %.3f, p90 %.3f, p99 %.3f, max %.3f\n",
           mean(s->latency_sum_ns, s->answers) / 1e6, quantile_ms(0.5), quantile_ms(0.9), quantile_ms(0.99),
           (double)s->latency_max_ns / 1e6);
    if (s->late_count)
        printf("sent late by  %.3f ms on average: part of the latency\n", mean(s->late_sum_ns, s->late_count) / 1e6);
    printf("bytes         %.1f a request, %.1f an answer\n", mean((double)s->bytes_sent, s->sent),
           mean((double)s->bytes_received, s->answers));
    for (uint32_t i = 0; s->phase && i < gnc_the_traffic.phases; i++)
        printf("phase %-7u %llu requests in %.3f s, %.0f per second\n", i + 1, (unsigned long long)s->phase[i].answers,
               (double)s->phase[i].ns / 1e9, mean(1e9 * (double)s->phase[i].answers, s->phase[i].ns));
}

void load_report(double seconds) {
    if (load_options.is_json) print_json(seconds);
    else print_lines(seconds);
}
