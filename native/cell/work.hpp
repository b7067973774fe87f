// Times that vary from request to request, and the CPU work that takes them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "clock.hpp"
#include "engine/draw.hpp"
#include "engine/rng.hpp"

namespace gnomon::cell {

/// A time as a configuration gives it, in milliseconds.
struct Work {
    double mean = 0.0, cv = 0.0;
    bool is_exponential = false;
    std::vector<double> share, value;  // measured: shares of requests, and milliseconds; ascending

    [[nodiscard]] std::int64_t draw_ns(Rng& rng) const { return static_cast<std::int64_t>(draw()(rng) * 1e6); }

private:
    [[nodiscard]] Draw draw() const {
        if (share.size() >= 2) return {Shape::quantiles, 0.0, 0.0, share, value};
        if (is_exponential) return {Shape::exponential, mean, 0.0, {}, {}};
        if (mean > 0.0 && cv > 0.0) return lognormal(mean, cv);
        return {Shape::constant, mean, 0.0, {}, {}};
    }
};

/// Burns CPU time of the calling thread, by its own CPU clock: being preempted or throttled does
/// not count. Chunks of some 20 us lie between two looks at the clock, which is a system call.
class Spinner {
public:
    void spin(std::int64_t cpu_ns) {
        const std::int64_t begin = read_clock_ns(CLOCK_THREAD_CPUTIME_ID), end = begin + cpu_ns;
        std::int64_t now = begin;
        while (now < end) {
            const double chunk_ns = static_cast<double>(std::min<std::int64_t>(end - now, 20'000));
            const auto turns = static_cast<std::int64_t>(chunk_ns * turns_per_ns_) + 1;
            for (std::int64_t i = 0; i < turns; ++i) {
                x_ = x_ * 6364136223846793005ULL + 1442695040888963407ULL;
                asm volatile("" : "+r"(x_));  // the loop is the work: it must not be folded
            }
            const std::int64_t after = read_clock_ns(CLOCK_THREAD_CPUTIME_ID);
            // Only long chunks say how fast the core is now; frequencies change.
            if (turns > 2000 && after > now)
                turns_per_ns_ += 0.2 * (static_cast<double>(turns) / static_cast<double>(after - now) - turns_per_ns_);
            now = after;
        }
    }

private:
    double turns_per_ns_ = 0.5;
    std::uint64_t x_ = 1;
};

}  // namespace gnomon::cell
