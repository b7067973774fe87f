// What a simulated cluster is given: shapes of jobs, jobs, executors, the grid, a guard.
#pragma once

#include <cstdint>
#include <span>

#include "engine/event_queue.hpp"

namespace gnomon {

enum class Wave : std::int8_t { fresh, first, rest };
inline constexpr std::size_t wave_count = 3;

/// Shapes of jobs; stages are counted over all kinds, parents come before children.
struct JobKindColumns {
    std::span<const std::int64_t> first_stage;
    std::span<const std::int32_t> tasks;
    std::span<const std::int64_t> first_parent;
    std::span<const std::int32_t> parents;
    std::span<const std::int32_t> levels;
    std::span<const std::int64_t> sample_first;  // by (stage, wave, level)
    std::span<const std::int32_t> sample_count;
    std::span<const std::int64_t> sample;
    std::span<const std::int64_t> cpu;      // CPU time of a task, 0: all of its duration
    std::span<const double> typical;        // duration of a task, on average
    std::span<const double> path;           // from a stage's start to its job's end
    std::span<const double> work_at_level;  // executor time of a kind, by (kind, level)
};

struct JobColumns {
    std::span<const std::int32_t> kind;
    std::span<const std::int64_t> arrival;  // with `after`, counted from the other's end
    std::span<const std::int32_t> after;
    std::span<const std::int32_t> application;
    std::span<const std::int64_t> deadline;
    std::span<const double> weight;
};

struct ExecutorSettings {
    std::int32_t count = 1;
    std::span<const double> speed;        // of each; empty: all 1
    std::span<const std::int64_t> from;   // when each comes; empty: all at zero
    std::span<const std::int64_t> until;  // when each leaves, after its task; empty: never
    std::int64_t moving_delay = 0;        // to come to another application
    std::int64_t startup = 0;             // to be there after having been off or broken
    std::int64_t off_after = never;       // idle for this long, an executor is switched off
    double straggler_chance = 0.0;
    double straggler_factor = 1.0;
    double task_failure_chance = 0.0;  // found out at the task's end
    double failures_per_ns = 0.0;      // of an executor while it works
};

/// The grid, in equal steps from time zero. Policies see `seen`; emissions are of `actual`.
struct GridColumns {
    std::int64_t step = never;
    std::span<const double> actual;
    std::span<const double> seen;
    std::span<const double> low;  // least of what is expected, at each step
    std::span<const double> high;
    std::int32_t horizon = 0;         // steps that the outlook reaches, from the step itself on
    std::span<const double> outlook;  // steps x horizon
};

struct Guard {
    std::int64_t patience = never;      // from its arrival on a job is held no longer than this
    std::int64_t longest_hold = never;  // a stage is held no longer than this
    std::int64_t finish_by = never;     // all jobs should be done by then
};

}  // namespace gnomon
