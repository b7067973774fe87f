#include "engine/cluster/cluster.hpp"

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "engine/cluster/account.hpp"
#include "engine/event_queue.hpp"
#include "engine/index.hpp"

namespace gnomon {
namespace {

// What happens at one time happens in this order.
enum class EventKind : std::int64_t { executor, arrival, grid_step, urgent, wake, off, leave };
constexpr std::int64_t kind_shift = 56;

std::uint64_t mixed(std::uint64_t x) {
    x += 0x9E3779B97F4A7C15ULL;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ULL;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBULL;
    return x ^ (x >> 31);
}

double unit(std::uint64_t draw) { return static_cast<double>(draw >> 11) * 0x1.0p-53; }

/// Which of 0..n-1 a draw stands for.
std::int64_t pick(std::uint64_t draw, std::int32_t n) {
    return static_cast<std::int64_t>(((draw >> 32) * static_cast<std::uint64_t>(n)) >> 32);
}

/// The two levels around a number of executors, and the chance of the upper one.
struct Between {
    std::int32_t lower = 0, upper = 0;
    double chance = 0.0;
};

std::vector<Between> place_levels(std::span<const std::int32_t> levels, std::int32_t most) {
    std::vector<Between> between(index(most) + 1);
    const auto last = static_cast<std::int32_t>(levels.size()) - 1;
    std::int32_t upper = 0;
    for (std::int32_t n = 0; n <= most; ++n) {
        while (upper < last && levels[index(upper)] < n) ++upper;
        const auto at = levels[index(upper)];
        auto& here = between[index(n)];
        here.lower = here.upper = upper;
        if (upper == 0 || n >= at) continue;
        const auto below = levels[index(upper) - 1];
        here.lower = upper - 1;
        here.chance = static_cast<double>(n - below) / (at - below);
    }
    return between;
}

class Cluster final : public ClusterState {
public:
    Cluster(const ClusterInput& input, Order& order, std::span<Gate* const> gates)
        : ClusterState(input.kinds, input.jobs, input.executors, input.grid),
          input_(input),
          order_(order),
          policy_rng_(input.policy_seed, 1),
          account_(input.grid.step, input.grid.actual),
          between_(place_levels(input.kinds.levels, input.executors.count)) {
        gates_.assign(gates.begin(), gates.end());
        quota_ = task_quota_ = held_quota_ = task_held_quota_ = input.executors.count;
        longest_hold_ = input.guard.longest_hold;
    }

    ClusterRun run();

private:
    void prepare();
    void place_executor(std::int32_t number);
    void link_children();
    void link_dependents();
    void handle(const Event& event);
    void arrive(std::int32_t job);
    void move_grid();
    void keep_to_the_end();
    void update_quota();
    void note_quota();
    void become_urgent(std::int32_t job);
    void end_hold(std::int32_t job, std::int32_t stage);
    void switch_off(std::int32_t number);
    void leave(std::int32_t number);
    void executor_event(std::int32_t executor);
    void finish_task(std::int32_t number);
    void complete_stage(std::int32_t slot, std::int32_t stage);
    void complete_job(std::int32_t slot);
    void start_task(std::int32_t number);
    void decide();
    std::int32_t assign(const Choice& choice);
    void give(std::int32_t number, std::int32_t slot, std::int32_t stage);
    bool continues(const JobState& job, std::int32_t slot, std::int32_t stage);
    void note_quota_holds();
    void note_quota_holds(std::int32_t slot);
    void send_surplus_away();
    void make_idle(std::int32_t number);
    void count_on(std::int64_t more) { on_.set(on_.value() + more, account_, out_.on_at, now_); }

    JobState& at(std::int32_t slot) { return slots_[index(slot)]; }
    void open_stage(JobState& job, std::int32_t stage);
    void close_stage(JobState& job, std::int32_t stage);
    void count_due(JobState& job, std::int32_t stage, std::int32_t more);
    void push(std::int64_t time, EventKind kind, std::int64_t id) {
        queue_.push(time, (static_cast<std::int64_t>(kind) << kind_shift) | id);
    }

    const ClusterInput& input_;
    Order& order_;
    Rng policy_rng_;
    EventQueue queue_;
    StepAccount account_;
    std::vector<Between> between_;
    std::vector<std::int32_t> jobs_left_;  // by application
    std::vector<std::int32_t> free_slots_, slot_of_;
    std::vector<std::int32_t> dependent_first_, dependent_;
    std::int64_t left_ = 0, open_ = 0, urgent_ = 0, due_ = 0;
    Level on_, allowed_;  // executors that are switched on, that the quotas allow
    bool hurries_ = false;
    ClusterRun out_;
};

ClusterRun Cluster::run() {
    prepare();
    while (left_ > 0 && !queue_.empty()) {
        now_ = queue_.top().time;
        source_ = -1;
        while (!queue_.empty() && queue_.top().time == now_) {
            handle(queue_.pop());
            ++out_.events;
        }
        decide();
    }
    count_on(0);
    note_quota();
    out_.end = now_;
    out_.unfinished = left_;
    return std::move(out_);
}

void Cluster::prepare() {
    const auto jobs = jobs_.kind.size();
    std::int32_t applications = 0;
    for (const auto application : jobs_.application) applications = std::max(applications, application + 1);
    pool_.reset(settings_.count, applications);
    jobs_left_.assign(index(applications), 0);
    slot_of_.assign(jobs, -1);
    for (const auto application : jobs_.application) ++jobs_left_[index(application)];
    out_.start.assign(jobs, -1);
    out_.finish.assign(jobs, -1);
    out_.busy.assign(jobs, 0);
    out_.weighted.assign(jobs, 0.0);
    left_ = static_cast<std::int64_t>(jobs);
    link_children();
    link_dependents();
    for (std::size_t job = 0; job < jobs; ++job) {
        if (jobs_.after[job] < 0) push(jobs_.arrival[job], EventKind::arrival, static_cast<std::int64_t>(job));
    }
    for (std::int32_t number = settings_.count - 1; number >= 0; --number) place_executor(number);
    order_.begin(*this);
    for (auto* gate : gates_) gate->begin(*this);
    if (!grid_.seen.empty()) {
        for (auto* gate : gates_) gate->at_step(*this);
        push(grid_.step, EventKind::grid_step, 0);
    }
    update_quota();
}

void Cluster::place_executor(std::int32_t number) {
    auto& e = pool_[number];
    const auto place = index(number);
    if (!settings_.until.empty() && settings_.until[place] != never)
        push(settings_.until[place], EventKind::leave, number);
    if (!settings_.from.empty() && settings_.from[place] > 0) {
        e.activity = Activity::absent;
        push(settings_.from[place], EventKind::executor, number);
        return;
    }
    if (settings_.off_after != never) return pool_.enter_off(number);
    pool_.enter_idle(number, 0);
    count_on(1);
}

void Cluster::link_children() {
    const auto stages = kinds_.tasks.size();
    child_first_.assign(stages + 1, 0);
    for (const auto parent : kinds_.parents) ++child_first_[index(parent) + 1];
    for (std::size_t s = 0; s < stages; ++s) child_first_[s + 1] += child_first_[s];
    child_.resize(kinds_.parents.size());
    auto next = child_first_;
    for (std::size_t kind = 0; kind + 1 < kinds_.first_stage.size(); ++kind) {
        for (auto s = kinds_.first_stage[kind]; s < kinds_.first_stage[kind + 1]; ++s) {
            const auto stage = index(s);
            for (auto p = kinds_.first_parent[stage]; p < kinds_.first_parent[stage + 1]; ++p) {
                auto& place = next[index(kinds_.parents[index(p)])];
                child_[index(place++)] = static_cast<std::int32_t>(s - kinds_.first_stage[kind]);
            }
        }
    }
}

void Cluster::link_dependents() {
    const auto jobs = jobs_.after.size();
    dependent_first_.assign(jobs + 1, 0);
    for (const auto before : jobs_.after) {
        if (before >= 0) ++dependent_first_[index(before) + 1];
    }
    for (std::size_t j = 0; j < jobs; ++j) dependent_first_[j + 1] += dependent_first_[j];
    dependent_.resize(index(dependent_first_[jobs]));
    auto next = dependent_first_;
    for (std::size_t j = 0; j < jobs; ++j) {
        if (jobs_.after[j] < 0) continue;
        auto& place = next[index(jobs_.after[j])];
        dependent_[index(place++)] = static_cast<std::int32_t>(j);
    }
}

void Cluster::handle(const Event& event) {
    const auto what = event.key & ((std::int64_t{1} << kind_shift) - 1);
    const auto id = static_cast<std::int32_t>(what);
    switch (static_cast<EventKind>(event.key >> kind_shift)) {
        case EventKind::executor: return executor_event(id);
        case EventKind::arrival: return arrive(id);
        case EventKind::grid_step: return move_grid();
        case EventKind::urgent: return become_urgent(id);
        case EventKind::wake:
            return end_hold(static_cast<std::int32_t>(what >> stage_bits),
                            static_cast<std::int32_t>(what & ((1 << stage_bits) - 1)));
        case EventKind::off: return switch_off(id);
        case EventKind::leave: return leave(id);
    }
}

/// A stage that has been held for as long as one may be is served from now on, whatever the grid.
void Cluster::end_hold(std::int32_t number, std::int32_t position) {
    const auto slot = slot_of_[index(number)];
    if (slot < 0) return;
    auto& stage = at(slot).stage[index(position)];
    // A wake of an earlier hold says nothing of this one.
    if (stage.due || stage.hold_began < 0 || now_ - stage.hold_began < longest_hold_) return;
    stage.due = true;
    if (stage.unstarted > 0) {
        ++at(slot).due;
        ++due_;
    }
    ++epoch_;
}

void Cluster::switch_off(std::int32_t number) {
    auto& e = pool_[number];
    if (e.activity != Activity::idle || now_ - e.since != settings_.off_after) return;
    pool_.leave_idle(number);
    pool_.unbind(number);
    pool_.enter_off(number);
    count_on(-1);
}

void Cluster::leave(std::int32_t number) {
    auto& e = pool_[number];
    e.leaving = true;
    if (e.activity == Activity::idle) {
        pool_.leave_idle(number);
        pool_.unbind(number);
        count_on(-1);
    } else if (e.activity == Activity::off) {
        pool_.leave_off(number);
    } else {
        return;  // after its task
    }
    e.activity = Activity::absent;
}

void Cluster::arrive(std::int32_t number) {
    const auto job_index = index(number);
    std::int32_t slot;
    if (free_slots_.empty()) {
        slot = static_cast<std::int32_t>(slots_.size());
        slots_.emplace_back();
    } else {
        slot = free_slots_.back();
        free_slots_.pop_back();
    }
    auto& job = at(slot);
    slot_of_[job_index] = slot;
    job.job = number;
    job.kind = jobs_.kind[job_index];
    const auto kind = index(job.kind);
    job.first_stage = kinds_.first_stage[kind];
    job.stages_left = static_cast<std::int32_t>(kinds_.first_stage[kind + 1] - job.first_stage);
    job.application = jobs_.application[job_index];
    job.executors = 0;
    job.arrival = now_;
    job.urgent = false;
    job.due = 0;
    job.work_left = 0.0;
    job.draw_key = mixed(input_.seed ^ mixed(static_cast<std::uint64_t>(number)));
    job.masked_round = 0;
    job.ready.clear();
    job.stage.assign(index(job.stages_left), {});
    double longest = 0.0;
    for (std::int32_t s = 0; s < job.stages_left; ++s) {
        const auto global = index(job.first_stage + s);
        auto& stage = job.stage[index(s)];
        stage.unstarted = stage.unfinished = kinds_.tasks[global];
        stage.parents_left = static_cast<std::int32_t>(kinds_.first_parent[global + 1] - kinds_.first_parent[global]);
        job.work_left += stage.unstarted * kinds_.typical[global];
        longest = std::max(longest, kinds_.path[global]);
        if (stage.parents_left == 0) open_stage(job, s);
    }
    job.work = job.work_left;
    work_left_ += job.work;
    active_.push_back(slot);
    const auto& guard = input_.guard;
    job.way = longest;
    const auto path = static_cast<std::int64_t>(longest);
    const auto due = std::min(guard.finish_by, jobs_.deadline[job_index]);
    job.urgent_at = due == never ? never : std::max(now_, due - path);
    if (guard.patience != never) job.urgent_at = std::min(job.urgent_at, now_ + guard.patience);
    if (job.urgent_at != never) push(job.urgent_at, EventKind::urgent, number);
    if (hurries_) become_urgent(number);
    keep_to_the_end();
    ++epoch_;
    for (auto* gate : gates_) gate->on_arrival(*this, slot);
    update_quota();
}

void Cluster::move_grid() {
    if (grid_step_ + 1 >= grid_.seen.size()) {
        past_grid_ = true;  // nothing is known any more: nothing is held any more
    } else {
        ++grid_step_;
        for (auto* gate : gates_) gate->at_step(*this);
        push(now_ + grid_.step, EventKind::grid_step, 0);
    }
    keep_to_the_end();
    ++epoch_;
    update_quota();
}

/// From when on all that is left would just be done in time, nothing is held any more. What is
/// left is work on all executors and the longest way; this is looked at again after a step.
void Cluster::keep_to_the_end() {
    if (input_.guard.finish_by == never || hurries_) return;
    double longest = 0.0, left = 0.0;
    for (const auto slot : active_) {
        longest = std::max(longest, at(slot).way);
        left += at(slot).work_left;
    }
    const double needed = left / settings_.count + longest + static_cast<double>(grid_.step);
    if (static_cast<double>(now_) + needed < static_cast<double>(input_.guard.finish_by)) return;
    hurries_ = true;
    for (const auto slot : active_) become_urgent(at(slot).job);
}

void Cluster::update_quota() {
    quota_ = task_quota_ = held_quota_ = task_held_quota_ = settings_.count;
    if (past_grid_) return note_quota();
    for (auto* gate : gates_) {
        const auto quota = gate->quota(*this);
        auto& before_decisions = gate->counts_held() ? held_quota_ : quota_;
        auto& before_tasks = gate->counts_held() ? task_held_quota_ : task_quota_;
        before_decisions = std::min(before_decisions, quota);
        if (gate->asks_each_task()) before_tasks = std::min(before_tasks, quota);
    }
    note_quota();
}

void Cluster::note_quota() {
    if (!gates_.empty()) allowed_.set(std::min(quota_, held_quota_), account_, out_.quota_at, now_);
}

void Cluster::become_urgent(std::int32_t number) {
    const auto slot = slot_of_[index(number)];
    if (slot < 0 || at(slot).urgent) return;
    at(slot).urgent = true;
    ++urgent_;
    ++epoch_;
}

void Cluster::executor_event(std::int32_t number) {
    auto& e = pool_[number];
    switch (e.activity) {
        case Activity::coming: account_.add(out_.moving_at, e.since, now_); return start_task(number);
        case Activity::busy: return finish_task(number);
        case Activity::absent:
            if (e.leaving) return;
            count_on(1);
            return make_idle(number);
        case Activity::broken: return make_idle(number);
        default: return;
    }
}

void Cluster::finish_task(std::int32_t number) {
    auto& e = pool_[number];
    auto& job = at(e.slot);
    const auto s = e.stage;
    auto& stage = job.stage[index(s)];
    const auto global = index(job.first_stage + s);
    const auto took = now_ - e.since;
    const auto cpu = static_cast<double>(kinds_.cpu[global]);
    const double share = cpu <= 0.0 || took <= 0 ? 1.0 : std::min(1.0, cpu / static_cast<double>(took));
    const double weighted = account_.add_task(out_.busy_at, out_.cpu_at, e.since, now_, share);
    stage.busy += took;
    stage.weighted += weighted;
    out_.busy[index(job.job)] += took;
    out_.weighted[index(job.job)] += weighted;
    if (input_.log_tasks) out_.log.add(job.job, number, e, now_);
    if (e.failing) {
        ++out_.failed_tasks;
        out_.wasted += took;
        if (stage.unstarted++ == 0) open_stage(job, s);
        job.work_left += kinds_.typical[global];
        work_left_ += kinds_.typical[global];
    } else {
        ++out_.tasks;
        if (--stage.unfinished == 0) complete_stage(e.slot, s);
    }
    if (e.breaking) {
        --job.executors;
        --busy_;
        ++out_.failed_executors;
        pool_.unbind(number);
        e.activity = Activity::broken;
        e.last_stage = -1;
        e.since = now_;
        push(now_ + settings_.startup, EventKind::executor, number);
        return;
    }
    if (stage.unstarted > 0 && !e.leaving && continues(job, e.slot, s)) {
        --stage.unstarted;
        if (stage.unstarted == 0) close_stage(job, s);
        job.work_left -= kinds_.typical[global];
        work_left_ -= kinds_.typical[global];
        return start_task(number);
    }
    --job.executors;
    --busy_;
    source_ = job.stages_left > 0 ? e.slot : source_;
    const auto slot = e.slot;
    make_idle(number);
    if (job.stages_left == 0) complete_job(slot);
}

/// An executor goes on with its stage unasked, unless the grid says otherwise.
bool Cluster::continues(const JobState& job, std::int32_t slot, std::int32_t stage) {
    if (gates_.empty() || is_due(slot, stage)) return true;
    if (busy_ > task_quota_ || pool_.held() > task_held_quota_) return false;
    if (job.executors > limit_for(slot, settings_.count, true)) return false;
    return is_admitted(slot, stage);
}

void Cluster::complete_stage(std::int32_t slot, std::int32_t s) {
    auto& job = at(slot);
    auto& stage = job.stage[index(s)];
    --job.stages_left;
    if (input_.log_holds && stage.held_since >= 0 && stage.resumed > stage.held_since) {
        out_.held.add(job.job, s, stage);
    }
    for (const auto child : children(job.first_stage + s)) {
        auto& next = job.stage[index(child)];
        if (--next.parents_left == 0) open_stage(job, child);
    }
}

void Cluster::complete_job(std::int32_t slot) {
    auto& job = at(slot);
    const auto number = index(job.job);
    out_.finish[number] = now_;
    --left_;
    if (job.urgent) --urgent_;
    work_left_ -= job.work_left;
    active_.erase(std::find(active_.begin(), active_.end(), slot));
    slot_of_[number] = -1;
    free_slots_.push_back(slot);
    if (source_ == slot) source_ = -1;
    if (--jobs_left_[index(job.application)] == 0) {
        while (pool_.idle_of(job.application) > 0) pool_.send_away(pool_.first_idle_of(job.application));
    }
    for (auto d = dependent_first_[number]; d < dependent_first_[number + 1]; ++d) {
        const auto next = dependent_[index(d)];
        push(now_ + jobs_.arrival[index(next)], EventKind::arrival, next);
    }
    ++epoch_;
    for (auto* gate : gates_) gate->on_finish(*this, slot);
    update_quota();
}

void Cluster::start_task(std::int32_t number) {
    auto& e = pool_[number];
    auto& job = at(e.slot);
    auto& stage = job.stage[index(e.stage)];
    const auto key = (static_cast<std::int64_t>(job.job) << stage_bits) | e.stage;
    const auto wave = e.fresh ? Wave::fresh : e.last_stage == key ? Wave::rest : Wave::first;
    const auto where = (static_cast<std::uint64_t>(e.stage) << 32) | static_cast<std::uint32_t>(stage.draws++);
    const auto draw = mixed(job.draw_key ^ mixed(where));
    const auto& between = between_[index(pool_.held_by(job.application))];
    const auto level = between.chance > 0.0 && unit(mixed(draw)) < between.chance ? between.upper : between.lower;
    const auto run =
        (index(job.first_stage + e.stage) * wave_count + static_cast<std::size_t>(wave)) * kinds_.levels.size() +
        index(level);
    auto took = kinds_.sample[index(kinds_.sample_first[run] + pick(draw, kinds_.sample_count[run]))];
    if (!settings_.speed.empty()) {
        took = std::max<std::int64_t>(1, std::llround(static_cast<double>(took) / settings_.speed[index(number)]));
    }
    e.wave = static_cast<std::int8_t>(wave);
    e.failing = e.breaking = false;
    if (settings_.straggler_chance > 0.0 && unit(mixed(draw ^ 1)) < settings_.straggler_chance) {
        took = std::llround(static_cast<double>(took) * settings_.straggler_factor);
    }
    if (settings_.task_failure_chance > 0.0 && unit(mixed(draw ^ 2)) < settings_.task_failure_chance) {
        e.failing = true;
    }
    if (settings_.failures_per_ns > 0.0) {
        const double lives = -std::log1p(-unit(mixed(draw ^ 3))) / settings_.failures_per_ns;
        if (lives < static_cast<double>(took)) {
            took = std::max<std::int64_t>(1, static_cast<std::int64_t>(lives));
            e.failing = e.breaking = true;
        }
    }
    e.fresh = false;
    e.last_stage = key;
    e.activity = Activity::busy;
    e.since = now_;
    if (stage.held_since >= 0 && stage.resumed < 0) stage.resumed = now_;
    stage.hold_began = -1;
    auto& first = out_.start[index(job.job)];
    if (first < 0) first = now_;
    push(now_ + took, EventKind::executor, number);
}

void Cluster::decide() {
    send_surplus_away();
    if (pool_.idle() == 0 || open_ == 0) return;
    ++round_;
    while (pool_.idle() > 0 && open_ > 0) {
        if (!has_room() && urgent_ == 0 && due_ == 0) {
            note_quota_holds();
            break;
        }
        const auto choice = order_.next(*this, policy_rng_);
        ++out_.decisions;
        if (choice.slot < 0) {
            out_.holds += choice.held;
            break;
        }
        // A job that cannot be given any more is not asked for again in this round.
        if (assign(choice) == 0) at(choice.slot).masked_round = round_;
    }
    for (const auto& [time, what] : wakes_) push(time, EventKind::wake, what);
    wakes_.clear();
}

/// What applications hold beyond a quota is nobody's, and fresh to whoever has it next. Those with a
/// job that no quota binds keep what they have.
void Cluster::send_surplus_away() {
    if (order_.keeps_executors()) return;
    const auto may_leave = [&](std::int32_t application) {
        if (urgent_ == 0 && due_ == 0) return true;
        return std::none_of(active_.begin(), active_.end(), [&](std::int32_t slot) {
            return at(slot).application == application && at(slot).is_pressing();
        });
    };
    while (pool_.held() > held_quota_) {
        const auto number = pool_.last_held(may_leave);
        if (number == nobody) return;
        pool_.send_away(number);
    }
}

void Cluster::note_quota_holds() {
    for (const auto slot : active_) note_quota_holds(slot);
}

/// A log must not change what is decided: a guard needs the notes too.
void Cluster::note_quota_holds(std::int32_t slot) {
    if ((!input_.log_holds && longest_hold_ == never) || at(slot).urgent) return;
    for (const auto stage : at(slot).ready) {
        note_held(slot, stage, 0.0, static_cast<double>(std::min(quota_, held_quota_)));
    }
}

std::int32_t Cluster::assign(const Choice& choice) {
    auto& job = at(choice.slot);
    auto& stage = job.stage[index(choice.stage)];
    const bool is_free = is_due(choice.slot, choice.stage);
    const auto limit = is_free ? choice.limit : limit_for(choice.slot, choice.limit);
    auto want = std::min({stage.unstarted, limit - job.executors, choice.most});
    if (!is_free) want = std::min(want, task_quota_ - busy_);
    const auto may_leave = [&](std::int32_t application) {
        return !order_.keeps_executors() && !order_.keeps_idle(application);
    };
    std::int32_t given = 0;
    for (; given < want; ++given) {
        const bool may_hold_more = is_free || pool_.held() < task_held_quota_;
        const auto number = pool_.take(job.application, may_hold_more, may_leave);
        if (number == nobody) {
            // Others hold what is idle, and keep it.
            if (!may_hold_more && given == 0) note_quota_holds(choice.slot);
            break;
        }
        give(number, choice.slot, choice.stage);
    }
    return given;
}

void Cluster::give(std::int32_t number, std::int32_t slot, std::int32_t s) {
    auto& e = pool_[number];
    auto& job = at(slot);
    auto& stage = job.stage[index(s)];
    const auto typical = kinds_.typical[index(job.first_stage + s)];
    if (--stage.unstarted == 0) close_stage(job, s);
    job.work_left -= typical;
    work_left_ -= typical;
    ++job.executors;
    ++busy_;
    std::int64_t delay = 0;
    if (e.activity == Activity::off) {
        delay += settings_.startup;
        ++out_.starts;
        count_on(1);
    }
    if (e.application != job.application) {
        delay += settings_.moving_delay;
        ++out_.moves;
        pool_.unbind(number);
        pool_.bind(number, job.application);
    }
    e.slot = slot;
    e.stage = s;
    e.since = now_;
    if (delay == 0) return start_task(number);
    e.activity = Activity::coming;
    push(now_ + delay, EventKind::executor, number);
}

void Cluster::open_stage(JobState& job, std::int32_t stage) {
    job.ready.insert(std::lower_bound(job.ready.begin(), job.ready.end(), stage), stage);
    ++open_;
    count_due(job, stage, 1);
}

void Cluster::close_stage(JobState& job, std::int32_t stage) {
    job.ready.erase(std::lower_bound(job.ready.begin(), job.ready.end(), stage));
    --open_;
    count_due(job, stage, -1);
}

void Cluster::count_due(JobState& job, std::int32_t stage, std::int32_t more) {
    if (!job.stage[index(stage)].due) return;
    job.due += more;
    due_ += more;
}

void Cluster::make_idle(std::int32_t number) {
    auto& e = pool_[number];
    if (e.leaving) {
        pool_.unbind(number);
        e.activity = Activity::absent;
        return count_on(-1);
    }
    pool_.enter_idle(number, now_);
    if (settings_.off_after != never) push(now_ + settings_.off_after, EventKind::off, number);
}

}  // namespace

void HeldStages::add(std::int32_t of_job, std::int32_t position, const StageState& state) {
    job.push_back(of_job);
    stage.push_back(position);
    held.push_back(state.held_since);
    resumed.push_back(state.resumed);
    intensity.push_back(state.held_intensity);
    importance.push_back(state.importance);
    threshold.push_back(state.threshold);
    busy.push_back(state.busy);
    weighted.push_back(state.weighted);
}

void TaskLog::add(std::int32_t of_job, std::int32_t number, const Executor& state, std::int64_t now) {
    job.push_back(of_job);
    stage.push_back(state.stage);
    executor.push_back(number);
    wave.push_back(state.wave);
    failed.push_back(state.failing);
    start.push_back(state.since);
    end.push_back(now);
}

ClusterRun run_cluster(const ClusterInput& input, Order& order, std::span<Gate* const> gates) {
    return Cluster(input, order, gates).run();
}

}  // namespace gnomon
