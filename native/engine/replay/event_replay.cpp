#include "engine/replay/event_replay.hpp"

#include <algorithm>
#include <cmath>

#include "engine/index.hpp"

namespace gnomon {

EventReplay::EventReplay(const GraphView& graph, const Limits* limits, const SlowDown* slow, bool causes, Replay& out)
    : graph_(graph),
      limits_(limits),
      slow_(slow),
      causes_(causes),
      out_(out),
      next_(next_on_lane(graph)),
      missing_(index(graph.tasks()), 0),
      state_(index(graph.tasks()), State::pending),
      groups_(graph.group) {
    out_.end.assign(index(graph_.tasks()), -1);
    for (const Task to : graph_.edge_target) ++missing_[index(to)];
    for (const Task to : next_)
        if (to >= 0) ++missing_[index(to)];
    for (std::size_t g = 0; g < groups_.size(); ++g)
        absent_.push_back(static_cast<std::int32_t>(groups_.of(static_cast<std::int64_t>(g)).size()));
    if (limits_ != nullptr) prepare_limits();
    if (!graph_.wait_task.empty()) prepare_waits();
    if (slow_ != nullptr) prepare_rates();
}

void EventReplay::prepare_limits() {
    free_.assign(limits_->capacity.begin(), limits_->capacity.end());
    queue_.resize(free_.size());
    last_release_.assign(free_.size(), {-1, -1});
    for (std::size_t g = 0; g < groups_.size(); ++g) {
        std::vector<std::int64_t> sum(free_.size(), 0);
        for (const Task m : groups_.of(static_cast<std::int64_t>(g)))
            if (limits_->resource[index(m)] >= 0)
                sum[index(limits_->resource[index(m)])] += limits_->demand.empty() ? 1 : limits_->demand[index(m)];
        auto& needs = group_needs_.emplace_back();
        for (std::size_t r = 0; r < sum.size(); ++r)
            if (sum[r] > 0) needs.emplace_back(static_cast<std::int32_t>(r), sum[r]);
    }
}

void EventReplay::prepare_waits() {
    const auto n = index(graph_.tasks());
    unissued_.assign(n, 0);
    waits_left_.assign(n, 0);
    first_waiter_.assign(n, -1);
    for (std::size_t e = 0; e < graph_.edge_target.size(); ++e)
        if (graph_.edge_kind[e] == graph_.issue_kind) ++unissued_[index(graph_.edge_target[e])];
    for (const Task task : graph_.wait_task) ++waits_left_[index(task)];
    issue_frontier_.assign(index(graph_.lanes), -1);
    last_issued_.assign(index(graph_.lanes), -1);
    for (std::size_t i = n; i-- > 0;) issue_frontier_[index(graph_.lane[i])] = static_cast<Task>(i);
    for (const Task first : std::vector<Task>(issue_frontier_))
        if (first >= 0) issue(first);
}

void EventReplay::prepare_rates() {
    const auto kinds = index(slow_->kinds);
    kind_matters_.assign(kinds, 0);
    for (std::size_t a = 0; a < kinds; ++a)
        for (std::size_t b = 0; b < kinds; ++b)
            if (slow_->factor[a * kinds + b] != 1.0) kind_matters_[a] = kind_matters_[b] = 1;
    std::int32_t devices = 1;
    for (const std::int32_t d : slow_->device) devices = std::max(devices, d + 1);
    running_.resize(index(devices));
    running_count_.assign(index(devices) * kinds, 0);
    remaining_.assign(index(graph_.tasks()), 0.0);
    factor_.assign(index(graph_.tasks()), 0.0);
    settled_at_.assign(index(graph_.tasks()), 0);
}

EventReplay::Unit EventReplay::unit_of(Task task) const {
    const std::int32_t group = graph_.group.empty() ? -1 : graph_.group[index(task)];
    return group >= 0 ? group : static_cast<Unit>(groups_.size()) + task;
}

std::span<const Task> EventReplay::members_of(const Unit& unit, Task& single) const {
    if (unit < static_cast<Unit>(groups_.size())) return groups_.of(unit);
    single = static_cast<Task>(unit - static_cast<Unit>(groups_.size()));
    return {&single, 1};
}

std::span<const EventReplay::Need> EventReplay::needs_of(const Unit& unit, Need& single) const {
    if (limits_ == nullptr) return {};
    if (unit < static_cast<Unit>(groups_.size())) return group_needs_[index(unit)];
    const auto task = index(unit - static_cast<Unit>(groups_.size()));
    const std::int32_t resource = limits_->resource[task];
    if (resource < 0) return {};
    single = {resource, limits_->demand.empty() ? 1 : limits_->demand[task]};
    if (single.second == 0) return {};  // as in a group: who needs nothing queues for nothing
    return {&single, 1};
}

bool EventReplay::is_rate_tracked(Task task) const {
    return slow_ != nullptr && kind_matters_[slow_->kind[index(task)]] != 0 && graph_.duration[index(task)] > 0;
}

void EventReplay::arrive(Task task) {
    if (--missing_[index(task)] > 0) return;
    state_[index(task)] = State::ready;
    ready_.push_back(task);
}

void EventReplay::complete(Task task) {
    state_[index(task)] = State::done;
    ++out_.finished;
    out_.makespan = std::max(out_.makespan, now_);
    if (limits_ != nullptr) release(task);
    // A wait is never tracked: it occupies its lane, not the device.
    if (slow_ != nullptr && factor_[index(task)] > 0.0) track_rate(task, false);

    const auto first = index(graph_.edge_offset[index(task)]);
    const auto successors = graph_.successors(task);
    for (std::size_t e = 0; e < successors.size(); ++e) {
        const Task to = successors[e];
        causes_ ? hold_back_by_edge<true>(out_, to, now_, task) : hold_back_by_edge<false>(out_, to, now_, task);
        if (!unissued_.empty() && graph_.edge_kind[first + e] == graph_.issue_kind)
            if (--unissued_[index(to)] == 0) issue(to);
        arrive(to);
    }
    if (const Task to = next_[index(task)]; to >= 0) {
        causes_ ? hold_back_by_lane<true>(out_, to, now_, task) : hold_back_by_lane<false>(out_, to, now_, task);
        arrive(to);
    }
    if (first_waiter_.empty()) return;
    for (Task slot = first_waiter_[index(task)]; slot >= 0; slot = waiter_list_[index(slot)].first) {
        const Task waiter = waiter_list_[index(slot)].second;
        if (--waits_left_[index(waiter)] > 0) continue;
        if (causes_) {
            out_.cause[index(waiter)] = task;
            out_.reason[index(waiter)] = Reason::wait;
        }
        finish_at(waiter, now_ + graph_.duration[index(waiter)]);
    }
}

void EventReplay::release(Task task) {
    const std::int32_t resource = limits_->resource[index(task)];
    if (resource < 0) return;
    free_[index(resource)] += limits_->demand.empty() ? 1 : limits_->demand[index(task)];
    auto& last = last_release_[index(resource)];
    if (last.first != now_ || task < last.second) last = {now_, task};
    to_check_.emplace_back(resource, task);
}

void EventReplay::start_ready() {
    std::vector<Task> batch;
    batch.swap(ready_);
    std::sort(batch.begin(), batch.end());
    for (const Task task : batch) {
        const Unit unit = unit_of(task);
        if (unit < static_cast<Unit>(groups_.size()) && --absent_[index(unit)] > 0) continue;
        request(unit);
    }
    grant_queued();
}

void EventReplay::request(Unit unit) {
    Need single;
    const auto needs = needs_of(unit, single);
    if (needs.empty()) return start(unit, false, -1);
    for (const auto& [resource, amount] : needs) {
        queue_[index(resource)].push_back(unit);
        to_check_.emplace_back(resource, -1);
    }
}

void EventReplay::grant_queued() {
    while (!to_check_.empty()) {
        const auto [resource, freed_by] = to_check_.back();
        to_check_.pop_back();
        auto& queue = queue_[index(resource)];
        while (!queue.empty()) {
            const Unit unit = queue.front();
            Need single;
            const auto needs = needs_of(unit, single);
            // No overtaking: a unit starts only from the head of every queue it stands in.
            const bool fits = std::all_of(needs.begin(), needs.end(), [&](const Need& need) {
                return queue_[index(need.first)].front() == unit && free_[index(need.first)] >= need.second;
            });
            if (!fits) break;
            // Who freed this unit also freed those that stood behind it in its other queues.
            const Task releaser = releaser_of(unit, freed_by);
            for (const auto& [r, amount] : needs) {
                free_[index(r)] -= amount;
                queue_[index(r)].pop_front();
                if (r != resource) to_check_.emplace_back(r, releaser);
            }
            start(unit, true, releaser);
        }
    }
}

Task EventReplay::releaser_of(Unit unit, Task freed_by) const {
    Need single;
    for (const auto& [resource, amount] : needs_of(unit, single))
        if (last_release_[index(resource)].first == now_) return last_release_[index(resource)].second;
    return freed_by;
}

void EventReplay::start(Unit unit, bool was_queued, Task freed_by) {
    Task single = -1;
    const auto members = members_of(unit, single);
    const Task latest = latest_of(out_, members);
    const std::int64_t all_ready = out_.start[index(latest)];
    const Task releaser = was_queued && now_ > all_ready ? freed_by : -1;
    for (const Task m : members) {
        if (causes_ && out_.start[index(m)] < all_ready) {
            out_.cause[index(m)] = latest;
            out_.reason[index(m)] = Reason::rendezvous;
        } else if (causes_ && releaser >= 0) {
            out_.cause[index(m)] = releaser;
            out_.reason[index(m)] = Reason::resource;
        }
        out_.start[index(m)] = now_;
    }
    for (const Task m : members) run_task(m);
}

void EventReplay::run_task(Task task) {
    state_[index(task)] = State::started;
    if (!waits_left_.empty() && waits_left_[index(task)] > 0) {
        starting_waits_.push_back(task);
    } else if (is_rate_tracked(task)) {
        remaining_[index(task)] = static_cast<double>(graph_.duration[index(task)]);
        track_rate(task, true);
    } else {
        finish_at(task, now_ + graph_.duration[index(task)]);
    }
}

void EventReplay::finish_at(Task task, std::int64_t end) {
    // Earlier entries of a task whose end has moved stay in the queue and are passed over.
    out_.end[index(task)] = end;
    ends_.push(end, task);
}

void EventReplay::issue(Task task) {
    const auto lane = index(graph_.lane[index(task)]);
    // Only a gapless prefix of the lane counts as issued. A task launched ahead of an earlier one
    // of its lane cannot run before it, so waiting for it could wait for one's own future.
    if (issue_frontier_[lane] != task) return;
    while (task >= 0 && unissued_[index(task)] == 0) {
        last_issued_[lane] = task;
        task = next_[index(task)];
    }
    issue_frontier_[lane] = task;
}

void EventReplay::resolve_waits() {
    std::vector<Task> batch;
    batch.swap(starting_waits_);
    std::sort(batch.begin(), batch.end());
    for (const Task task : batch) {
        const auto range = std::equal_range(graph_.wait_task.begin(), graph_.wait_task.end(), task);
        std::int32_t left = 0;
        for (auto it = range.first; it != range.second; ++it) {
            const auto lane = index(graph_.wait_lane[index(it - graph_.wait_task.begin())]);
            const Task last = last_issued_[lane];
            if (last < 0 || state_[index(last)] == State::done) continue;
            waiter_list_.emplace_back(first_waiter_[index(last)], task);
            first_waiter_[index(last)] = static_cast<Task>(waiter_list_.size() - 1);
            ++left;
        }
        waits_left_[index(task)] = left;
        if (left == 0) finish_at(task, now_ + graph_.duration[index(task)]);
    }
}

void EventReplay::track_rate(Task task, bool running) {
    const std::int32_t device = slow_->device.empty() ? 0 : slow_->device[index(task)];
    auto& beside = running_[index(device)];
    auto& count = running_count_[index(device) * index(slow_->kinds) + slow_->kind[index(task)]];
    if (running) {
        beside.push_back(task);
        ++count;
    } else {
        beside.erase(std::find(beside.begin(), beside.end(), task));
        --count;
    }
    dirty_.push_back(device);
}

void EventReplay::settle_rates() {
    const auto kinds = index(slow_->kinds);
    for (const std::int32_t device : dirty_) {
        const auto* count = &running_count_[index(device) * kinds];
        for (const Task task : running_[index(device)]) {
            const std::size_t own = slow_->kind[index(task)];
            double factor = 1.0;
            for (std::size_t other = 0; other < kinds; ++other)
                if (count[other] - (other == own ? 1 : 0) > 0)
                    factor = std::max(factor, slow_->factor[own * kinds + other]);
            double& current = factor_[index(task)];
            if (factor == current) continue;
            double& left = remaining_[index(task)];
            if (current > 0.0)
                left = std::max(0.0, left - static_cast<double>(now_ - settled_at_[index(task)]) / current);
            settled_at_[index(task)] = now_;
            current = factor;
            // A millionth of a nanosecond of slack: rounding errors must not cost a whole one.
            finish_at(task, now_ + static_cast<std::int64_t>(std::ceil(left * factor - 1e-6)));
        }
    }
    dirty_.clear();
}

void EventReplay::play_instant() {
    for (;;) {
        while (!ends_.empty() && ends_.top().time == now_) {
            const Task task = static_cast<Task>(ends_.pop().key);
            if (state_[index(task)] == State::started && out_.end[index(task)] == now_) complete(task);
        }
        if (!ready_.empty() || !to_check_.empty()) {
            start_ready();
        } else if (!starting_waits_.empty()) {
            resolve_waits();
        } else {
            return;
        }
    }
}

void EventReplay::run() {
    for (std::int64_t i = 0; i < graph_.tasks(); ++i) {
        if (missing_[index(i)] > 0) continue;
        state_[index(i)] = State::ready;
        ready_.push_back(static_cast<Task>(i));
    }
    for (;;) {
        play_instant();
        if (slow_ != nullptr && !dirty_.empty()) {
            settle_rates();
            continue;  // a rate change may end a task at this very instant
        }
        if (ends_.empty()) break;
        now_ = ends_.top().time;
    }
    if (out_.finished < graph_.tasks()) report_stuck();
}

void EventReplay::report_stuck() {
    out_.stuck_at = now_;
    // Those that started or were ready tell more than those that merely come after them.
    for (const State wanted : {State::started, State::ready, State::pending})
        for (std::int64_t i = 0; i < graph_.tasks() && out_.stuck.size() < 8; ++i)
            if (state_[index(i)] == wanted) out_.stuck.push_back(static_cast<Task>(i));
}

}  // namespace gnomon
