#include "engine/mesh/thresholds.hpp"

#include <algorithm>
#include <cmath>
#include <random>

#include "tests/test.hpp"

namespace gnomon::tests {
namespace {

/// Random plans and loads: sizes stay within the bounds of their services.
void sizes_stay_in_bounds() {
    std::mt19937_64 rng(8);
    const auto draw = [&](double low, double high) { return std::uniform_real_distribution<double>(low, high)(rng); };
    const auto pick = [&](std::int64_t low, std::int64_t high) {
        return std::uniform_int_distribution<std::int64_t>(low, high)(rng);
    };
    bool within = true, marked = true;
    for (int round = 0; round < 500; ++round) {
        const auto services = static_cast<std::size_t>(pick(1, 6)), classes = static_cast<std::size_t>(pick(1, 4));
        std::vector<std::int32_t> first{0};
        std::vector<double> cpu_min, cpu_max, visits, limit, most, load, queue, usage, rate, class_rate;
        std::vector<std::int64_t> replicas_max, rank, replicas, trusted;
        for (std::size_t s = 0; s < services; ++s) {
            cpu_min.push_back(draw(0.01, 0.1));
            cpu_max.push_back(draw(0.5, 4));
            replicas_max.push_back(pick(1, 8));
            replicas.push_back(pick(0, 8));
            trusted.push_back(pick(0, 4));
            queue.push_back(draw(0, 20));
            usage.push_back(draw(0, 2));
            rate.push_back(draw(-0.1, 100));
            for (std::size_t c = 0; c < classes; ++c) visits.push_back(std::max(0.0, draw(-1, 2)));
            const auto points = pick(0, 5);
            for (std::int64_t p = 0; p < points; ++p) {
                limit.push_back(draw(0.01, 0.5));
                most.push_back(std::max(limit.back(), cpu_max.back()));
                rank.push_back(p);
                for (std::size_t c = 0; c < classes; ++c) load.push_back(std::max(0.0, draw(-5, 100)));
            }
            first.push_back(static_cast<std::int32_t>(limit.size()));
        }
        for (std::size_t c = 0; c < classes; ++c) class_rate.push_back(std::max(0.0, draw(-50, 300)));
        const OperatingPoints points{first, cpu_min, cpu_max, replicas_max, visits, limit, most, rank, load};
        const bool has_window = pick(0, 1) == 1;
        ServiceLoad now{class_rate, replicas, {}, {}, {}, {}};
        if (has_window) now = {class_rate, replicas, trusted, queue, usage, rate};
        const auto found = sizes_for(points, now);
        for (std::size_t s = 0; s < services; ++s) {
            within &= found.replicas[s] >= 1 && found.replicas[s] <= replicas_max[s] && found.cpu_limit[s] > 0 &&
                      found.cpu_limit[s] <= cpu_max[s] + 1e-4;
            marked &= !found.is_lacking[s] ||
                      (found.replicas[s] == replicas_max[s] && std::abs(found.cpu_limit[s] - cpu_max[s]) < 1e-4);
        }
    }
    expect(within, "sizes within the bounds of their services");
    expect(marked, "a service that lacks a point is at its cap");
}

void load_rises_quickly_and_falls_slowly() {
    std::vector<double> rates(60, 100.0);  // 30 windows of two classes
    rates[58] = 1000, rates[59] = 1;
    const auto ahead = load_ahead(rates, 2, 0.5, 1.0, 1.5);
    expect(ahead[0] > 1.5 * 900 && ahead[0] < 1.5 * 1000, "a jump counts at once");
    expect(ahead[1] > 1.5 * 95, "a drop does not");
    expect(load_ahead({rates.data(), 2}, 2, 0.0, 1.0, 1.5) == std::vector<double>({100.0, 100.0}),
           "one window is its mean");
}

}  // namespace

void thresholds_tests() {
    sizes_stay_in_bounds();
    load_rises_quickly_and_falls_slowly();
}

}  // namespace gnomon::tests
