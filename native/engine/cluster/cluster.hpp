// A cluster that runs jobs of stages of tasks on executors, event by event.
//
// How long a task takes is drawn from measured durations, by how many executors its application
// holds and by what its executor did before, as in decima-sim (Mao et al., SIGCOMM 2019). Draws
// belong to the task, not to the order of events: two policies on one seed see the same tasks.
// What to run next is asked of an `Order`; `Gate`s may forbid it for now because of the grid.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/cluster/policy.hpp"

namespace gnomon {

struct HeldStages {
    std::vector<std::int32_t> job, stage;
    std::vector<std::int64_t> held, resumed;
    std::vector<double> intensity, importance, threshold;
    std::vector<std::int64_t> busy;
    std::vector<double> weighted;

    void add(std::int32_t of_job, std::int32_t position, const StageState& state);
};

/// Tasks in the order of their ends.
struct TaskLog {
    std::vector<std::int32_t> job, stage, executor;
    std::vector<std::int8_t> wave;
    std::vector<std::uint8_t> failed;  // its work was lost
    std::vector<std::int64_t> start, end;

    void add(std::int32_t of_job, std::int32_t number, const Executor& state, std::int64_t now);
};

struct ClusterRun {
    std::vector<std::int64_t> start, finish;  // of each job: first task, last task
    std::vector<std::int64_t> busy;           // executor time of each job
    std::vector<double> weighted;             // the same, times actual intensity
    // By step of the grid:
    std::vector<double> busy_at, cpu_at, moving_at, on_at, quota_at;
    std::int64_t end = 0;
    std::int64_t events = 0, tasks = 0, decisions = 0, holds = 0, moves = 0, starts = 0;
    std::int64_t failed_tasks = 0, failed_executors = 0, wasted = 0;
    HeldStages held;
    TaskLog log;
    std::int64_t unfinished = 0;  // jobs left where a policy never served them
};

struct ClusterInput {
    JobKindColumns kinds;
    JobColumns jobs;
    ExecutorSettings executors;
    GridColumns grid;
    Guard guard;
    std::uint64_t seed = 0;         // of durations and failures
    std::uint64_t policy_seed = 0;  // of what a policy draws
    bool log_tasks = false;
    bool log_holds = false;
};

/// Runs all jobs. `gates` ask in their order; the least quota and limit count.
ClusterRun run_cluster(const ClusterInput& input, Order& order, std::span<Gate* const> gates);

}  // namespace gnomon
