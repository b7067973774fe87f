// What policies may see of a simulated cluster.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "engine/cluster/executors.hpp"
#include "engine/cluster/input.hpp"
#include "engine/index.hpp"

namespace gnomon {

/// A stage within its job takes this many bits of an id.
inline constexpr std::int64_t stage_bits = 20;

struct StageState {
    std::int32_t unstarted = 0;
    std::int32_t unfinished = 0;
    std::int32_t parents_left = 0;
    std::int32_t draws = 0;        // tasks started so far, again or for the first time
    std::int64_t held_since = -1;  // the first time
    std::int64_t hold_began = -1;  // of the hold that lasts, -1: it is not held
    std::int64_t resumed = -1;
    double held_intensity = 0.0;
    double importance = 0.0;
    double threshold = 0.0;
    std::int64_t busy = 0;
    double weighted = 0.0;  // busy time x actual intensity
    std::uint32_t admitted_epoch = 0;
    bool admitted = true;
    bool due = false;  // was held for as long as a stage may be
};

struct JobState {
    std::int32_t job = -1;
    std::int32_t kind = 0;
    std::int64_t first_stage = 0;
    std::int32_t stages_left = 0;
    std::int32_t application = 0;
    std::int32_t executors = 0;  // busy for it or on their way
    std::int64_t arrival = 0;
    std::int64_t urgent_at = never;
    double way = 0.0;        // from its start to its end, with executors to itself
    double work = 0.0;       // of all its tasks
    double work_left = 0.0;  // of tasks that have not started
    std::uint64_t draw_key = 0;
    std::uint32_t masked_round = 0;
    std::int32_t due = 0;  // ready stages that are held no longer
    bool urgent = false;
    std::vector<std::int32_t> ready;  // stages, by position, that have tasks to start
    std::vector<StageState> stage;

    /// Whether it, or a stage of it, may be held no longer.
    [[nodiscard]] bool is_pressing() const { return urgent || due > 0; }
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
    [[nodiscard]] const JobState& job(std::int32_t slot) const { return slots_[index(slot)]; }
    [[nodiscard]] const JobKindColumns& kinds() const { return kinds_; }
    [[nodiscard]] const JobColumns& jobs() const { return jobs_; }
    [[nodiscard]] const GridColumns& grid() const { return grid_; }
    [[nodiscard]] std::size_t grid_step() const { return grid_step_; }
    [[nodiscard]] bool has_grid() const { return !grid_.seen.empty() && !past_grid_; }
    [[nodiscard]] double intensity() const { return has_grid() ? grid_.seen[grid_step_] : 0.0; }
    [[nodiscard]] double low() const { return grid_.low[grid_step_]; }
    [[nodiscard]] double high() const { return grid_.high[grid_step_]; }
    [[nodiscard]] std::span<const double> outlook() const {
        const auto horizon = index(grid_.horizon);
        return grid_.outlook.subspan(grid_step_ * horizon, horizon);
    }
    [[nodiscard]] std::int32_t idle_of(std::int32_t application) const { return pool_.idle_of(application); }
    [[nodiscard]] std::span<const std::int32_t> children(std::int64_t stage) const {
        const auto s = index(stage);
        return std::span(child_).subspan(index(child_first_[s]), index(child_first_[s + 1] - child_first_[s]));
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
    /// Whether a ready stage may start tasks now; if not, that it is held is noted.
    [[nodiscard]] bool is_open(std::int32_t slot, std::int32_t stage) {
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
        return j.urgent || j.stage[index(stage)].due;
    }
    /// What gates leave of a job's limit; with `goes_on`, of that for an executor which already works
    /// on a stage of it.
    [[nodiscard]] std::int32_t limit_for(std::int32_t slot, std::int32_t limit, bool goes_on = false) const;
    /// Notes that a stage was not run though it could have been.
    void note_held(std::int32_t slot, std::int32_t stage, double importance, double threshold);

protected:
    /// Whether no gate forbids it. Remembers when it was first held.
    [[nodiscard]] bool is_admitted(std::int32_t slot, std::int32_t stage);

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
    std::int32_t quota_ = 0, task_quota_ = 0;            // of busy executors: before decisions, and tasks
    std::int32_t held_quota_ = 0, task_held_quota_ = 0;  // of those that applications hold
    std::size_t grid_step_ = 0;
    bool past_grid_ = false;
    std::uint32_t round_ = 0;
    std::uint32_t epoch_ = 1;  // moves on when a gate may answer differently
    std::int64_t longest_hold_ = never;
    double work_left_ = 0.0;
    std::vector<std::int32_t> active_;
    std::vector<JobState> slots_;
    std::vector<std::pair<std::int64_t, std::int64_t>> wakes_;  // when, (job, stage)
    std::vector<std::int64_t> child_first_;
    std::vector<std::int32_t> child_;  // position in the job
};

}  // namespace gnomon
