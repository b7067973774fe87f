// The clocked replay, for graphs with run-time waits, resource limits or slow-down.
// The rules are in replay.hpp; this is their bookkeeping.
#pragma once

#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

#include "engine/event_queue.hpp"
#include "engine/replay/hold_back.hpp"
#include "engine/replay/replay.hpp"

namespace gnomon {

class EventReplay {
public:
    EventReplay(const GraphView& graph, const Limits* limits, const SlowDown* slow, bool causes, Replay& out);
    void run();

private:
    // What starts at once: a rendezvous group, or a task outside any. Groups come first.
    using Unit = std::int64_t;
    using Need = std::pair<std::int32_t, std::int64_t>;  // resource, amount
    enum class State : std::uint8_t { pending, ready, started, done };

    [[nodiscard]] Unit unit_of(Task task) const;
    [[nodiscard]] std::span<const Task> members_of(const Unit& unit, Task& single) const;
    [[nodiscard]] std::span<const Need> needs_of(const Unit& unit, Need& single) const;
    [[nodiscard]] bool is_rate_tracked(Task task) const;

    void arrive(Task task);
    void complete(Task task);
    void release(Task task);
    void start_ready();
    void request(Unit unit);
    void grant_queued();
    void start(Unit unit, bool was_queued, Task freed_by);
    [[nodiscard]] Task releaser_of(Unit unit, Task freed_by) const;
    void run_task(Task task);
    void finish_at(Task task, std::int64_t end);
    void issue(Task task);
    void resolve_waits();
    void track_rate(Task task, bool running);
    void settle_rates();
    void play_instant();
    void report_stuck();

    void prepare_limits();
    void prepare_waits();
    void prepare_rates();

    const GraphView& graph_;
    const Limits* limits_;
    const SlowDown* slow_;
    const bool causes_;
    Replay& out_;

    std::int64_t now_ = 0;
    EventQueue ends_;
    std::vector<Task> next_;
    std::vector<std::int32_t> missing_;  // predecessors, lane order included, that have not ended
    std::vector<State> state_;
    std::vector<Task> ready_;  // at this instant
    Groups groups_;
    std::vector<std::int32_t> absent_;  // per group: members not ready

    // Limits
    std::vector<std::vector<Need>> group_needs_;
    std::vector<std::int64_t> free_;       // per resource
    std::vector<std::deque<Unit>> queue_;  // per resource, first come first served
    // Resources whose queue may have moved, and the task whose end moved it (-1: a new request).
    std::vector<std::pair<std::int32_t, Task>> to_check_;
    std::vector<std::pair<std::int64_t, Task>> last_release_;  // per resource: when, by whom

    // Run-time waits
    std::vector<std::int32_t> unissued_;              // per task: issue edges whose source has not ended
    std::vector<Task> issue_frontier_;                // per lane: first task not yet issued, -1 past the end
    std::vector<Task> last_issued_;                   // per lane: -1 for none
    std::vector<std::int32_t> waits_left_;            // per started wait: lanes it still waits for
    std::vector<std::pair<Task, Task>> waiter_list_;  // (next in list, waiting task)
    std::vector<Task> first_waiter_;                  // per task, into waiter_list_
    std::vector<Task> starting_waits_;                // at this instant

    // Slow-down
    std::vector<std::uint8_t> kind_matters_;
    std::vector<std::vector<Task>> running_;   // per device
    std::vector<std::int32_t> running_count_;  // per device x kind
    std::vector<double> remaining_;            // per task, nanoseconds of undisturbed work
    std::vector<double> factor_;               // per task, 0 until first settled
    std::vector<std::int64_t> settled_at_;
    std::vector<std::int32_t> dirty_;  // devices to settle
};

}  // namespace gnomon
