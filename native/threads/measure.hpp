// What preempting costs on this machine, how late it is, and how requests fare under a policy on real threads.
#pragma once

#include <string>
#include <vector>

#include "engine/cores/cores.hpp"
#include "policy/policy.hpp"
#include "threads/source.hpp"

namespace gnomon::threads {

struct MeasureSettings {
    Placement worker, timer;
    Nanoseconds quantum = 0;  // 0: 10 us for sources that are polled, 50 us for others
    Nanoseconds duration = 10'000'000;
    int repeats = 3;
};

struct Calibration {
    std::string name;
    std::string why_not;                  // empty: it was measured
    std::int64_t cost_ns = 0;             // that a worker loses to a preemption, median of the repeats
    std::vector<std::int64_t> cost_runs;  // of each repeat
    std::vector<std::int64_t> late_ns;    // from the end of a slice to the tick
    double per_s = 0.0;                   // preemptions while it was measured
    double slowdown = 0.0;                // by polls that look at the clock
    std::int64_t quantum_ns = 0;
    bool has_priority = true;
};

GNT_API Calibration calibrate(const Kind& kind, const MeasureSettings& settings);

struct SourceChoice {
    std::string name, why;
};

/// The cheapest one here, for functions that poll or do not.
GNT_API SourceChoice choose_source(bool polls);

/// One switch from stack to stack without preemption, in ns: the least of the repeats.
GNT_API double measure_switch_ns(const Placement& placement);

/// Times in which a thread did not run although it wanted to: interrupts, a hypervisor that took the core away.
struct Interruptions {
    std::int64_t watched_ns = 0;
    std::vector<std::int64_t> length_ns;
};

GNT_API Interruptions measure_interruptions(const Placement& placement, Nanoseconds duration);

struct BurstSettings {
    std::size_t workers = 1;
    PolicySettings policy;
    std::vector<int> cpus;
    Placement timer;
    int realtime = 0;
};

struct Burst {
    std::vector<std::int64_t> latency;  // from when a request was due to its end
    std::vector<std::int32_t> preemptions;
    std::vector<std::int64_t> attained;
    std::int64_t longest_gap = 0;    // in which the dispatcher did nothing
    std::int64_t longest_stall = 0;  // in which a worker did nothing although it should have
    std::int64_t outside = 0, stolen = 0, no_realtime = 0;
};

/// Requests by their arrival times on a real pool; service is CPU work that polls. Throws std::runtime_error if they do
/// not end in time.
GNT_API Burst run_burst(const Kind& kind, const CoreRequests& requests, const BurstSettings& settings);

}  // namespace gnomon::threads
