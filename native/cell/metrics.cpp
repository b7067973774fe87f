#include <cstdio>

#include "cell/stats.hpp"
#include "clock.hpp"

namespace gnomon::cell {
namespace {

std::string escape(const std::string& label) {
    std::string out;
    for (const char c : label) {
        if (c == '\\' || c == '"') out.push_back('\\');
        if (c == '\n') out += "\\n";
        else out.push_back(c);
    }
    return out;
}

void put(std::string& out, const std::string& name, const std::string& labels, double value) {
    char text[40];
    std::snprintf(text, sizeof text, "%.17g", value);
    out += name + (labels.empty() ? "" : "{" + labels + "}") + " " + text + "\n";
}

void put_type(std::string& out, const std::string& name, const char* type, const char* help) {
    out += "# HELP " + name + " " + help + "\n# TYPE " + name + " " + type + "\n";
}

/// Bounds lie where our own buckets end: at 2^k and 1.5 * 2^k ns, from 65 us to 103 s.
void put_histogram(std::string& out, const std::string& name, const std::string& labels,
                   std::span<const std::int64_t> buckets, std::int64_t sum_ns) {
    const std::string comma = labels.empty() ? "" : ",";
    std::int64_t count = 0;
    std::size_t next = 0;
    for (int octave = 16; octave <= 36; ++octave) {
        for (const int half : {0, 8}) {
            const auto end = static_cast<std::size_t>((octave - first_octave) * buckets_per_octave + half);
            for (; next < end; ++next) count += buckets[next];
            char bound[32];
            std::snprintf(bound, sizeof bound, "%.9g",
                          static_cast<double>(std::int64_t{1} << octave) * (1.0 + half / 16.0) * 1e-9);
            put(out, name + "_bucket", labels + comma + "le=\"" + bound + "\"", static_cast<double>(count));
        }
    }
    for (; next < buckets.size(); ++next) count += buckets[next];
    put(out, name + "_bucket", labels + comma + "le=\"+Inf\"", static_cast<double>(count));
    put(out, name + "_sum", labels, static_cast<double>(sum_ns) * 1e-9);
    put(out, name + "_count", labels, static_cast<double>(count));
}

}  // namespace

std::string format_metrics(Stats& stats, const std::vector<std::string>& classes) {
    std::string out;
    const auto& head = stats.head();
    const auto label = [&](std::size_t i) { return "class=\"" + escape(classes[i]) + "\""; };
    put_type(out, "gnomon_requests_total", "counter", "Requests that ended.");
    for (std::size_t i = 0; i < classes.size(); ++i) {
        put(out, "gnomon_requests_total", label(i) + ",outcome=\"ok\"", static_cast<double>(stats.block(i).ok));
        put(out, "gnomon_requests_total", label(i) + ",outcome=\"error\"", static_cast<double>(stats.block(i).errors));
    }
    put_type(out, "gnomon_refused_total", "counter", "Requests that found the queue full.");
    put(out, "gnomon_refused_total", "", static_cast<double>(head.refused));
    put_type(out, "gnomon_in_flight", "gauge", "Requests that have not ended.");
    put(out, "gnomon_in_flight", "", static_cast<double>(head.in_flight));
    put_type(out, "gnomon_waiting", "gauge", "Requests that wait for a worker.");
    put(out, "gnomon_waiting", "", static_cast<double>(head.waiting));
    put_type(out, "gnomon_pool_waiting", "gauge", "Calls that wait for a connection.");
    put(out, "gnomon_pool_waiting", "", static_cast<double>(head.pool_waiting));
    put_type(out, "gnomon_pool_wait_seconds", "histogram", "Time that calls waited for a connection.");
    put_histogram(out, "gnomon_pool_wait_seconds", "", stats.pool_buckets(), head.pool_wait_ns);
    put_type(out, "gnomon_exclusive_seconds", "histogram", "Latency without the calls made.");
    for (std::size_t i = 0; i < classes.size(); ++i)
        put_histogram(out, "gnomon_exclusive_seconds", label(i), stats.block(i).exclusive, stats.block(i).exclusive_ns);
    put_type(out, "gnomon_latency_seconds", "histogram", "Latency, calls included.");
    for (std::size_t i = 0; i < classes.size(); ++i)
        put_histogram(out, "gnomon_latency_seconds", label(i), stats.block(i).total, stats.block(i).total_ns);
    put_type(out, "gnomon_process_cpu_seconds_total", "counter", "CPU time of the process.");
    put(out, "gnomon_process_cpu_seconds_total", "",
        static_cast<double>(read_clock_ns(CLOCK_PROCESS_CPUTIME_ID)) * 1e-9);
    return out;
}

}  // namespace gnomon::cell
