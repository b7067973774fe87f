// A cluster that runs jobs of stages of tasks on executors, event by event.
//
// How long a task takes is drawn from measured durations, by how many executors its application
// holds and by what its executor did before, as in decima-sim (Mao et al., SIGCOMM 2019). Draws
// belong to the task, not to the order of events: two policies on one seed see the same tasks.
// What to run next is asked of an `Order`; `Gate`s may forbid it for now because of the grid.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "engine/cluster/executors.hpp"
#include "engine/rng.hpp"

namespace gnomon {

inline constexpr std::int64_t kNever = INT64_MAX;

enum Wave : int { kFresh = 0, kFirst = 1, kRest = 2, kWaves = 3 };

/// Shapes of jobs; stages are counted over all kinds, parents come before children.
struct JobKindColumns {
    std::span<const std::int64_t> first_stage;
    std::span<const std::int32_t> tasks;
    std::span<const std::int64_t> first_parent;
    std::span<const std::int32_t> parents;
    std::span<const std::int32_t> levels;
    std::span<const std::int64_t> sample_first;  ///< by (stage, wave, level)
    std::span<const std::int32_t> sample_count;
    std::span<const std::int64_t> sample;
    std::span<const std::int64_t> cpu;      ///< CPU time of a task, 0: all of its duration
    std::span<const double> typical;        ///< duration of a task, on average
    std::span<const double> path;           ///< from a stage's start to its job's end
    std::span<const double> work_at_level;  ///< executor time of a kind, by (kind, level)
};

struct JobColumns {
    std::span<const std::int32_t> kind;
    std::span<const std::int64_t> arrival;  ///< with `after`, counted from the other's end
    std::span<const std::int32_t> after;
    std::span<const std::int32_t> application;
    std::span<const std::int64_t> deadline;
    std::span<const double> weight;
};

struct ExecutorSettings {
    std::int32_t count = 1;
    std::span<const double> speed;      ///< of each; empty: all 1
    std::span<const std::int64_t> from;   ///< when each comes; empty: all at zero
    std::span<const std::int64_t> until;  ///< when each leaves, after its task; empty: never
    std::int64_t moving_delay = 0;      ///< to come to another application
    std::int64_t startup = 0;           ///< to be there after having been off or broken
    std::int64_t off_after = kNever;    ///< idle for this long, an executor is switched off
    double straggler_chance = 0.0;
    double straggler_factor = 1.0;
    double task_failure_chance = 0.0;   ///< found out at the task's end
    double failures_per_ns = 0.0;       ///< of an executor while it works
};

/// The grid, in equal steps from time zero. Policies see `seen`; emissions are of `actual`.
struct GridColumns {
    std::int64_t step = kNever;
    std::span<const double> actual;
    std::span<const double> seen;
    std::span<const double> low;      ///< least of what is expected, at each step
    std::span<const double> high;
    std::int32_t horizon = 0;         ///< steps that the outlook reaches, from the step itself on
    std::span<const double> outlook;  ///< steps x horizon
};

struct Guard {
    std::int64_t patience = kNever;   ///< from its arrival on a job is held no longer than this
    std::int64_t longest_hold = kNever;  ///< a stage is held no longer than this
    std::int64_t finish_by = kNever;  ///< all jobs should be done by then
};

struct StageState {
    std::int32_t unstarted = 0;
    std::int32_t unfinished = 0;
    std::int32_t parents_left = 0;
    std::int32_t draws = 0;           ///< tasks started so far, again or for the first time
    std::int64_t held_since = -1;     ///< the first time
    std::int64_t hold_began = -1;     ///< of the hold that lasts, -1: it is not held
    std::int64_t resumed = -1;
    double held_intensity = 0.0;
    double importance = 0.0;
    double threshold = 0.0;
    std::int64_t busy = 0;
    double weighted = 0.0;            ///< busy time x actual intensity
    std::uint32_t admitted_epoch = 0;
    bool admitted = true;
    bool due = false;                 ///< was held for as long as a stage may be
};

struct JobState {
    std::int32_t job = -1;
    std::int32_t kind = 0;
    std::int64_t first_stage = 0;
    std::int32_t stages_left = 0;
    std::int32_t application = 0;
    std::int32_t executors = 0;       ///< busy for it or on their way
    std::int64_t arrival = 0;
    std::int64_t urgent_at = kNever;
    double way = 0.0;                 ///< from its start to its end, with executors to itself
    double work = 0.0;                ///< of all its tasks
    double work_left = 0.0;           ///< of tasks that have not started
    std::uint64_t draw_key = 0;
    std::uint32_t masked_round = 0;
    std::int32_t due = 0;             ///< ready stages that are held no longer
    bool urgent = false;
    std::vector<std::int32_t> ready;  ///< stages, by position, that have tasks to start
    std::vector<StageState> stage;

    /// Whether it, or a stage of it, may be held no longer.
    [[nodiscard]] bool is_pressing() const { return urgent || due > 0; }
};

/// One stage that could be given executors.
struct Candidate {
    std::int32_t slot = -1;
    std::int32_t stage = -1;
};

/// What an order answers: up to `most` executors for a stage, its job never over `limit`.
struct Choice {
    std::int32_t slot = -1;  ///< -1: nothing now
    std::int32_t stage = -1;
    std::int32_t limit = 0;
    std::int32_t most = INT32_MAX;
    bool held = false;       ///< with slot -1: something could have run and was held
};

class Gate;

/// What policies may see.
class ClusterState {
public:
    [[nodiscard]] std::int64_t now() const { return now_; }
    [[nodiscard]] std::int32_t executors() const { return settings_.count; }
    [[nodiscard]] std::int32_t idle() const { return pool_.idle(); }
    [[nodiscard]] std::int32_t busy() const { return busy_; }
    [[nodiscard]] std::int32_t quota() const { return quota_; }
    /// The job whose executor became free last, -1 where none did.
    [[nodiscard]] std::int32_t source() const { return source_; }
    /// Jobs in the system, in order of arrival, as slots.
    [[nodiscard]] std::span<const std::int32_t> active() const { return active_; }
    [[nodiscard]] const JobState& job(std::int32_t slot) const { return slots_[static_cast<std::size_t>(slot)]; }
    [[nodiscard]] const JobKindColumns& kinds() const { return kinds_; }
    [[nodiscard]] const JobColumns& jobs() const { return jobs_; }
    [[nodiscard]] const GridColumns& grid() const { return grid_; }
    [[nodiscard]] std::size_t grid_step() const { return grid_step_; }
    [[nodiscard]] bool has_grid() const { return !grid_.seen.empty() && !past_grid_; }
    [[nodiscard]] double intensity() const { return has_grid() ? grid_.seen[grid_step_] : 0.0; }
    [[nodiscard]] double low() const { return grid_.low[grid_step_]; }
    [[nodiscard]] double high() const { return grid_.high[grid_step_]; }
    [[nodiscard]] std::span<const double> outlook() const {
        const auto horizon = static_cast<std::size_t>(grid_.horizon);
        return grid_.outlook.subspan(grid_step_ * horizon, horizon);
    }
    [[nodiscard]] std::int32_t idle_of(std::int32_t application) const {
        return pool_.idle_of(application);
    }
    [[nodiscard]] std::span<const std::int32_t> children(std::int64_t stage) const {
        const auto s = static_cast<std::size_t>(stage);
        return std::span(child_).subspan(static_cast<std::size_t>(child_first_[s]),
                                         static_cast<std::size_t>(child_first_[s + 1] - child_first_[s]));
    }
    /// Another number whenever jobs have come or gone, or a gate may answer differently.
    [[nodiscard]] std::uint32_t epoch() const { return epoch_; }
    /// Work of all jobs that has not started.
    [[nodiscard]] double work_left() const { return work_left_; }
    /// Whether a job may be given executors in this round at all.
    [[nodiscard]] bool is_served(std::int32_t slot) const {
        const auto& j = job(slot);
        return j.masked_round != round_ && (j.is_pressing() || has_room());
    }
    /// Whether a ready stage may start tasks now.
    [[nodiscard]] bool is_open(std::int32_t slot, std::int32_t stage) const {
        // Of a job that is served for a stage that is due, only that one goes over the quota.
        return is_admitted(slot, stage) && (has_room() || is_due(slot, stage));
    }
    /// Whether the quotas leave an executor to be given out.
    [[nodiscard]] bool has_room() const {
        return busy_ < quota_ && (pool_.held() < held_quota_ || pool_.idle_held() > 0);
    }
    /// Whether the guard lets a stage be held no longer.
    [[nodiscard]] bool is_due(std::int32_t slot, std::int32_t stage) const {
        const auto& j = job(slot);
        return j.urgent || j.stage[static_cast<std::size_t>(stage)].due;
    }
    /// What gates leave of a job's limit; with `goes_on`, of that for an executor which already works
    /// on a stage of it.
    [[nodiscard]] std::int32_t limit_for(std::int32_t slot, std::int32_t limit, bool goes_on = false) const;
    /// Notes that a stage was not run though it could have been.
    void note_held(std::int32_t slot, std::int32_t stage, double importance, double threshold) const;

protected:
    /// Whether no gate forbids it. Remembers when it was first held.
    [[nodiscard]] bool is_admitted(std::int32_t slot, std::int32_t stage) const;

    ClusterState(const JobKindColumns& kinds, const JobColumns& jobs, const ExecutorSettings& settings,
                 const GridColumns& grid)
        : kinds_(kinds), jobs_(jobs), settings_(settings), grid_(grid) {}

    JobKindColumns kinds_;
    JobColumns jobs_;
    ExecutorSettings settings_;
    GridColumns grid_;
    std::vector<Gate*> gates_;
    std::int64_t now_ = 0;
    Executors pool_;
    std::int32_t busy_ = 0, source_ = -1;
    std::int32_t quota_ = 0, task_quota_ = 0;            ///< of busy executors: before decisions, and tasks
    std::int32_t held_quota_ = 0, task_held_quota_ = 0;  ///< of those that applications hold
    std::size_t grid_step_ = 0;
    bool past_grid_ = false;
    std::uint32_t round_ = 0;
    std::uint32_t epoch_ = 1;  ///< moves on when a gate may answer differently
    std::int64_t longest_hold_ = kNever;
    double work_left_ = 0.0;
    std::vector<std::int32_t> active_;
    // Holds are notes about a decision, not a part of what is decided on.
    mutable std::vector<JobState> slots_;
    mutable std::vector<std::pair<std::int64_t, std::int64_t>> wakes_;  ///< when, (job, stage)
    std::vector<std::int64_t> child_first_;
    std::vector<std::int32_t> child_;  ///< position in the job
};

/// Which stage is next.
class Order {
public:
    virtual ~Order() = default;
    /// Forgets earlier runs.
    virtual void begin(const ClusterState&) {}
    virtual Choice next(const ClusterState& state, Rng& rng) = 0;
    /// Whether executors stay with their application until it is done.
    [[nodiscard]] virtual bool keeps_executors() const { return false; }
    /// Whether executors that an application left idle stay with it for now.
    [[nodiscard]] virtual bool keeps_idle(std::int32_t) const { return false; }
};

/// What the grid forbids for now.
class Gate {
public:
    virtual ~Gate() = default;
    virtual void begin(const ClusterState&) {}
    virtual void at_step(const ClusterState&) {}
    virtual void on_arrival(const ClusterState&, std::int32_t) {}
    virtual void on_finish(const ClusterState&, std::int32_t) {}
    [[nodiscard]] virtual std::int32_t quota(const ClusterState& state) { return state.executors(); }
    [[nodiscard]] virtual bool admits(const ClusterState&, std::int32_t, std::int32_t) { return true; }
    [[nodiscard]] virtual std::int32_t limit(const ClusterState&, std::int32_t, std::int32_t limit) {
        return limit;
    }
    /// Whether its quota is of executors that applications hold, idle or not, in place of busy ones.
    [[nodiscard]] virtual bool counts_held() const { return false; }
    /// Whether its quota and limit hold for every task that starts. If not, executors are given out
    /// while fewer are busy than the quota says, however many a decision gives; and they go on with
    /// their stage until it has no task to start.
    [[nodiscard]] virtual bool asks_each_task() const { return true; }
};

struct HeldStage {
    std::int32_t job, stage;
    std::int64_t held, resumed;
    double intensity, importance, threshold;
    std::int64_t busy;
    double weighted;
};

struct TaskRecord {
    std::int32_t job, stage, executor;
    std::int8_t wave;
    bool failed;  ///< its work was lost
    std::int64_t start, end;
};

struct ClusterRun {
    std::vector<std::int64_t> start, finish;  ///< of each job: first task, last task
    std::vector<std::int64_t> busy;           ///< executor time of each job
    std::vector<double> weighted;             ///< the same, times actual intensity
    // By step of the grid:
    std::vector<double> busy_at, cpu_at, moving_at, on_at, quota_at;
    std::int64_t end = 0;
    std::int64_t events = 0, tasks = 0, decisions = 0, holds = 0, moves = 0, starts = 0;
    std::int64_t failed_tasks = 0, failed_executors = 0, wasted = 0;
    std::vector<HeldStage> held;
    std::vector<TaskRecord> records;
    std::int64_t unfinished = 0;  ///< jobs left where a policy never served them
};

struct ClusterInput {
    JobKindColumns kinds;
    JobColumns jobs;
    ExecutorSettings executors;
    GridColumns grid;
    Guard guard;
    std::uint64_t seed = 0;         ///< of durations and failures
    std::uint64_t policy_seed = 0;  ///< of what a policy draws
    bool record_tasks = false;
    bool record_holds = false;
};

/// Runs all jobs. `gates` ask in their order; the least quota and limit count.
ClusterRun run_cluster(const ClusterInput& input, Order& order, std::span<Gate* const> gates);

}  // namespace gnomon
