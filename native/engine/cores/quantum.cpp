#include "engine/cores/quantum.hpp"

#include <array>
#include <cmath>
#include <limits>

#include "engine/rng.hpp"

namespace gnomon::threads {
namespace {

// The paper's rules; its constants are not public: thresholds of the load are the paper's, steps our own.
constexpr double high_load = 0.9, low_load = 0.1, heavy_tail = 2.0;
constexpr Nanoseconds step_load = 5'000, step_tail = 5'000, step_calm = 10'000;
constexpr Nanoseconds least = 3'000, most = 200'000;
constexpr std::uint64_t long_queue = 16;  // a worker

// The search.
constexpr std::array<Nanoseconds, 13> grid{3'000,  5'000,  7'000,   10'000,  14'000,  20'000,   30'000,
                                           50'000, 70'000, 100'000, 200'000, 500'000, 1'000'000};
constexpr std::size_t fewest = 200, simulated = 20'000;
constexpr double costs = 2.0;        // a quantum is at least so many costs of a preemption,
constexpr double short_room = 1.3;   // and so many times the 90th percentile of short requests:
constexpr double long_times = 10.0;  // those under so many times the median
constexpr double full = 0.95;        // of the workers' time with what preempting costs: more is not stable
constexpr double worth = 1.25;       // an improvement of the p99 below this is none
constexpr double as_good = 1.15;     // the quantum of now stays while its p99 is within this of the best
constexpr double busiest = 0.98;     // a higher load is simulated as this one

Nanoseconds quantile(std::vector<std::int64_t>& values, double share) {
    const auto at = static_cast<std::ptrdiff_t>(share * static_cast<double>(values.size() - 1));
    std::nth_element(values.begin(), values.begin() + at, values.end());
    return values[static_cast<std::size_t>(at)];
}

struct Requests {
    std::vector<std::int64_t> arrival, service;
};

Requests draw(const Seen& seen, double load, std::uint64_t seed) {
    Rng rng(seed);
    Requests made;
    double total = 0.0;
    for (std::size_t i = 0; i < simulated; ++i) {
        made.service.push_back(std::max<std::int64_t>(seen.service[rng.below(seen.service.size())], 1));
        total += static_cast<double>(made.service.back());
    }
    const double gap = total / simulated / (load * static_cast<double>(seen.workers));
    double at = 0.0;
    for (std::size_t i = 0; i < simulated; ++i) {
        at += rng.exponential(gap);
        made.arrival.push_back(static_cast<std::int64_t>(at));
    }
    return made;
}

}  // namespace

double tail_index(std::span<const std::int64_t> values) {
    std::vector<std::int64_t> sorted(values.begin(), values.end());
    std::sort(sorted.begin(), sorted.end(), std::greater<>());
    const std::size_t count = sorted.size() / 100;
    if (count < 5 || sorted[count] <= 0) return std::numeric_limits<double>::infinity();
    double sum = 0.0;
    for (std::size_t i = 0; i < count; ++i)
        sum += std::log(static_cast<double>(sorted[i]) / static_cast<double>(sorted[count]));
    return sum > 0.0 ? static_cast<double>(count) / sum : std::numeric_limits<double>::infinity();
}

QuantumController::QuantumController(bool is_paper, const PolicySettings& policy, const Mechanism& mechanism)
    : is_paper_(is_paper),
      policy_(policy),
      mechanism_(mechanism),
      late_(mechanism.late_ns.begin(), mechanism.late_ns.end()),
      quantum_(policy.quantum) {
    mechanism_.late_ns = late_;
}

QuantumChoice QuantumController::decide(const Seen& seen) {
    ++decisions_;
    if (seen.service.size() < fewest || seen.arrivals == 0 || seen.period <= 0)
        return {quantum_, 0.0, "too few requests to tell"};
    double total = 0.0;
    for (const auto one : seen.service) total += static_cast<double>(one);
    const double mean = total / static_cast<double>(seen.service.size());
    const double load = mean * static_cast<double>(seen.arrivals) /
                        (static_cast<double>(seen.period) * static_cast<double>(seen.workers));
    const QuantumChoice choice = is_paper_ ? step(seen, load) : search(seen, load);
    quantum_ = choice.quantum;
    return choice;
}

QuantumChoice QuantumController::step(const Seen& seen, double load) {
    Nanoseconds quantum = std::min(quantum_, most);
    const char* why = "no reason to change";
    if (load > high_load) {
        quantum -= step_load;
        why = "the load is high";
    }
    if (seen.in_hand > long_queue * seen.workers || tail_index(seen.service) < heavy_tail) {
        quantum -= step_tail;
        why = "queues are long or the tail is heavy";
    } else if (load < low_load) {
        quantum += step_calm;
        why = "the load is low";
    }
    return {std::clamp(quantum, least, most), load, why};
}

QuantumChoice QuantumController::search(const Seen& seen, double load) {
    const double simulated_load = std::min(load, busiest);
    std::vector<std::int64_t> sorted(seen.service.begin(), seen.service.end());
    const Nanoseconds median = quantile(sorted, 0.5);
    std::erase_if(sorted,
                  [&](auto one) { return static_cast<double>(one) > long_times * static_cast<double>(median); });
    const auto floor =
        static_cast<Nanoseconds>(std::max({static_cast<double>(least), costs * static_cast<double>(mechanism_.cost_ns),
                                           short_room * static_cast<double>(quantile(sorted, 0.9))}));
    const Requests requests = draw(seen, simulated_load, decisions_);
    const CoreRequests drawn{requests.arrival, requests.service, {}, {}, {}};
    const double room = static_cast<double>(seen.workers) * static_cast<double>(requests.arrival.back() + 1);
    const auto p99 = [&](Nanoseconds quantum) -> double {
        PolicySettings tried = policy_;
        tried.quantum = quantum;
        std::vector<std::unique_ptr<Policy>> policies;
        for (std::size_t w = 0; w < seen.workers; ++w) policies.push_back(make_policy(tried));
        auto run = run_cores(drawn, seen.workers, policies, mechanism_, 1);
        const double busy = simulated_load * room + static_cast<double>(run.lost);
        if (run.lost > 0 && busy > full * room) return std::numeric_limits<double>::infinity();
        return static_cast<double>(quantile(run.latency, 0.99));
    };
    const double without = p99(unlimited);
    Nanoseconds best = unlimited;
    double best_p99 = without;
    const auto try_one = [&](Nanoseconds quantum) {
        const double found = p99(quantum);
        if (found < best_p99 && found * worth < without) {
            best = quantum;
            best_p99 = found;
        }
        return found;
    };
    if (floor < grid.back()) try_one(floor);
    for (const Nanoseconds quantum : grid) {
        if (quantum > floor) try_one(quantum);
    }
    const bool is_allowed = quantum_ == unlimited || quantum_ >= floor;
    const double now = quantum_ == unlimited ? without : p99(quantum_);
    const bool is_worth = quantum_ == unlimited || now * worth < without;
    if (is_allowed && is_worth && now <= as_good * best_p99) {
        unfit_ = 0;
        return {quantum_, load,
                quantum_ == unlimited ? "no quantum is worth its cost" : "as good as the best simulated"};
    }
    // Two decisions in a row, so that one odd period changes nothing.
    if (++unfit_ < 2 && decisions_ > 1) return {quantum_, load, "another one looks better; once more"};
    unfit_ = 0;
    return {best, load, best == unlimited ? "no quantum is worth its cost" : "least p99 of those simulated"};
}

}  // namespace gnomon::threads
