// Which request runs next on which worker, for how long, and when it has to go. One object serves the
// simulator and the runtime: time is an argument, nothing is allocated after `reserve`, no call blocks.
#pragma once

#include <algorithm>
#include <array>
#include <memory>
#include <stdexcept>

#include "policy/task.hpp"

namespace gnomon::threads {

class Policy {
public:
    virtual ~Policy() = default;

    /// Room for so many tasks that wait.
    virtual void reserve([[maybe_unused]] std::size_t tasks) {}
    virtual void arrive(Task& task, Nanoseconds now) = 0;
    virtual void preempted(Task& task, Nanoseconds now) = 0;
    /// Null if there is nothing for this worker.
    virtual Task* pick(std::size_t worker, Nanoseconds now) = 0;
    /// After so much time `is_worth_preempting` is asked, and again after as much more.
    [[nodiscard]] virtual Nanoseconds slice([[maybe_unused]] const Task& task) const { return unlimited; }
    [[nodiscard]] virtual bool is_worth_preempting([[maybe_unused]] const Task& running,
                                                   [[maybe_unused]] Nanoseconds now) const {
        return false;
    }
    /// Whether `must_make_room` is ever true.
    [[nodiscard]] virtual bool reacts_to_arrivals() const { return false; }
    /// Asked on an arrival that finds every worker busy: must this one make room at once?
    [[nodiscard]] virtual bool must_make_room([[maybe_unused]] const Task& running,
                                              [[maybe_unused]] const Task& arrived) const {
        return false;
    }
    /// With a queue for each worker: may the task go to that of this one?
    [[nodiscard]] virtual bool accepts([[maybe_unused]] std::size_t worker, [[maybe_unused]] const Task& task) const {
        return true;
    }
    /// A task that has not begun, for a worker that has none in its own queue; null if there is none.
    virtual Task* steal(std::size_t thief) = 0;
    /// Takes a task that waits out of the queue; false if it does not wait here.
    virtual bool withdraw(const Task& task) = 0;

    /// For policies that have one; `unlimited`: nobody is cut.
    void set_quantum(Nanoseconds quantum) { quantum_ = quantum; }

protected:
    explicit Policy(Nanoseconds quantum = unlimited) : quantum_(quantum) {}
    static bool is_new(const Task& task) { return !task.has_begun; }
    /// From the first of some queues that has it.
    static bool withdraw_from(const Task& task, auto&... queues) {
        const auto is_it = [&](const Task& other) { return &other == &task; };
        return (... || (queues.pop_if(is_it) != nullptr));
    }

    Nanoseconds quantum_;
};

/// In order of arrival, each to its end.
class Fcfs final : public Policy {
public:
    void arrive(Task& task, Nanoseconds) override { waiting_.push(task); }
    void preempted(Task& task, Nanoseconds) override { waiting_.push(task); }
    Task* pick(std::size_t, Nanoseconds) override { return waiting_.pop(); }
    Task* steal(std::size_t) override { return waiting_.pop_if(is_new); }
    bool withdraw(const Task& task) override { return withdraw_from(task, waiting_); }

private:
    Fifo waiting_;
};

/// A quantum each in turn: with a short quantum, processor sharing. Nobody is cut while nobody waits.
class RoundRobin final : public Policy {
public:
    explicit RoundRobin(Nanoseconds quantum) : Policy(quantum) {}
    void arrive(Task& task, Nanoseconds) override { waiting_.push(task); }
    void preempted(Task& task, Nanoseconds) override { waiting_.push(task); }
    Task* pick(std::size_t, Nanoseconds) override { return waiting_.pop(); }
    Task* steal(std::size_t) override { return waiting_.pop_if(is_new); }
    bool withdraw(const Task& task) override { return withdraw_from(task, waiting_); }
    [[nodiscard]] Nanoseconds slice(const Task&) const override { return quantum_; }
    [[nodiscard]] bool is_worth_preempting(const Task&, Nanoseconds) const override { return !waiting_.empty(); }

private:
    Fifo waiting_;
};

/// New requests before those that were cut; these cut one another only after a long quantum (Aspen,
/// NSDI 2025). A cut request that has waited for `patience` goes first, so that none starves.
class TwoQueue final : public Policy {
public:
    TwoQueue(Nanoseconds quantum, Nanoseconds hard_quantum, Nanoseconds patience)
        : Policy(quantum), hard_quantum_(hard_quantum), patience_(patience) {}

    void arrive(Task& task, Nanoseconds) override { new_.push(task); }
    void preempted(Task& task, Nanoseconds now) override {
        task.key = now;  // since when it waits
        cut_.push(task);
    }
    Task* pick(std::size_t, Nanoseconds now) override {
        const bool is_due = !cut_.empty() && now - cut_.front()->key >= patience_;
        return new_.empty() || is_due ? (cut_.empty() ? new_.pop() : cut_.pop()) : new_.pop();
    }
    Task* steal(std::size_t) override { return new_.pop(); }
    bool withdraw(const Task& task) override { return withdraw_from(task, new_, cut_); }
    [[nodiscard]] Nanoseconds slice(const Task&) const override { return quantum_; }
    [[nodiscard]] bool is_worth_preempting(const Task& running, Nanoseconds now) const override {
        return !new_.empty() || (!cut_.empty() && now - running.started >= hard_quantum_);
    }

private:
    Nanoseconds hard_quantum_, patience_;
    Fifo new_, cut_;
};

/// Whoever has had the least service: good for requests of unknown, heavy-tailed length.
class LeastAttained final : public Policy {
public:
    explicit LeastAttained(Nanoseconds quantum) : Policy(quantum) {}
    void reserve(std::size_t tasks) override { waiting_.reserve(tasks); }
    void arrive(Task& task, Nanoseconds) override { waiting_.push(task, task.attained); }
    void preempted(Task& task, Nanoseconds) override { waiting_.push(task, task.attained); }
    Task* pick(std::size_t, Nanoseconds) override { return waiting_.pop(); }
    Task* steal(std::size_t) override { return waiting_.pop_if(is_new); }
    bool withdraw(const Task& task) override { return withdraw_from(task, waiting_); }
    [[nodiscard]] Nanoseconds slice(const Task&) const override { return quantum_; }
    [[nodiscard]] bool is_worth_preempting(const Task& running, Nanoseconds) const override {
        return !waiting_.empty() && waiting_.front()->attained <= running.attained;
    }
    [[nodiscard]] bool reacts_to_arrivals() const override { return true; }
    [[nodiscard]] bool must_make_room(const Task& running, const Task& arrived) const override {
        return running.attained - arrived.attained > quantum_;
    }

private:
    Ranked waiting_;
};

/// The shortest remaining time by the hints that requests come with; those without one come last.
class ShortestRemaining final : public Policy {
public:
    void reserve(std::size_t tasks) override { waiting_.reserve(tasks); }
    void arrive(Task& task, Nanoseconds) override { waiting_.push(task, left(task)); }
    void preempted(Task& task, Nanoseconds) override { waiting_.push(task, left(task)); }
    Task* pick(std::size_t, Nanoseconds) override { return waiting_.pop(); }
    Task* steal(std::size_t) override { return waiting_.pop_if(is_new); }
    bool withdraw(const Task& task) override { return withdraw_from(task, waiting_); }
    [[nodiscard]] bool reacts_to_arrivals() const override { return true; }
    [[nodiscard]] bool must_make_room(const Task& running, const Task& arrived) const override {
        return left(arrived) < left(running);
    }

private:
    /// A request that takes longer than its hint said may end any moment.
    static Nanoseconds left(const Task& task) {
        return task.hint == unlimited ? unlimited : std::max<Nanoseconds>(task.hint - task.attained, 0);
    }

    Ranked waiting_;
};

/// The earliest deadline first.
class EarliestDeadline final : public Policy {
public:
    void reserve(std::size_t tasks) override { waiting_.reserve(tasks); }
    void arrive(Task& task, Nanoseconds) override { waiting_.push(task, task.deadline); }
    void preempted(Task& task, Nanoseconds) override { waiting_.push(task, task.deadline); }
    Task* pick(std::size_t, Nanoseconds) override { return waiting_.pop(); }
    Task* steal(std::size_t) override { return waiting_.pop_if(is_new); }
    bool withdraw(const Task& task) override { return withdraw_from(task, waiting_); }
    [[nodiscard]] bool reacts_to_arrivals() const override { return true; }
    [[nodiscard]] bool must_make_room(const Task& running, const Task& arrived) const override {
        return arrived.deadline < running.deadline;
    }

private:
    Ranked waiting_;
};

/// Kinds in order of importance, 0 first; one kind takes turns of a quantum. A more important request
/// cuts a less important one at once.
class KindPriority final : public Policy {
public:
    explicit KindPriority(Nanoseconds quantum) : Policy(quantum) {}
    void arrive(Task& task, Nanoseconds) override { queue(task).push(task); }
    void preempted(Task& task, Nanoseconds) override { queue(task).push(task); }
    Task* pick(std::size_t, Nanoseconds) override {
        for (auto& one : waiting_) {
            if (!one.empty()) return one.pop();
        }
        return nullptr;
    }
    Task* steal(std::size_t) override {
        for (auto& one : waiting_) {
            if (Task* found = one.pop_if(is_new); found != nullptr) return found;
        }
        return nullptr;
    }
    bool withdraw(const Task& task) override {
        return std::any_of(waiting_.begin(), waiting_.end(), [&](Fifo& one) { return withdraw_from(task, one); });
    }
    [[nodiscard]] Nanoseconds slice(const Task&) const override { return quantum_; }
    [[nodiscard]] bool is_worth_preempting(const Task& running, Nanoseconds) const override {
        for (std::size_t k = 0; k <= level(running); ++k) {
            if (!waiting_[k].empty()) return true;
        }
        return false;
    }
    [[nodiscard]] bool reacts_to_arrivals() const override { return true; }
    [[nodiscard]] bool must_make_room(const Task& running, const Task& arrived) const override {
        return level(arrived) < level(running);
    }

private:
    static constexpr std::size_t levels = 16;
    static std::size_t level(const Task& task) { return std::min(static_cast<std::size_t>(task.kind), levels - 1); }
    Fifo& queue(const Task& task) { return waiting_[level(task)]; }

    std::array<Fifo, levels> waiting_;
};

/// Some workers run requests of kind 0 alone, to their end (Persephone, SOSP 2021): they idle rather
/// than let a short request find every worker busy with long ones.
class Reserved final : public Policy {
public:
    explicit Reserved(std::size_t workers) : workers_(workers) {}
    void arrive(Task& task, Nanoseconds) override { (task.kind == 0 ? short_ : other_).push(task); }
    void preempted(Task& task, Nanoseconds now) override { arrive(task, now); }
    Task* pick(std::size_t worker, Nanoseconds) override {
        if (worker < workers_) return short_.pop();
        const bool short_first =
            !short_.empty() && (other_.empty() || short_.front()->arrival <= other_.front()->arrival);
        return short_first ? short_.pop() : other_.pop();
    }
    Task* steal(std::size_t thief) override {
        Task* found = short_.pop_if(is_new);
        return found != nullptr || thief < workers_ ? found : other_.pop_if(is_new);
    }
    bool withdraw(const Task& task) override { return withdraw_from(task, short_, other_); }
    [[nodiscard]] bool accepts(std::size_t worker, const Task& task) const override {
        return worker >= workers_ || task.kind == 0;
    }

private:
    std::size_t workers_;
    Fifo short_, other_;
};

/// Requests of kind 0 as under two queues; others, the best effort, in the time that is left, and in a share of all
/// time while they wait. A request of kind 0 cuts them at once, unless they have that share to get.
class BestEffort final : public Policy {
public:
    BestEffort(Nanoseconds quantum, Nanoseconds hard_quantum, double share)
        : Policy(quantum), hard_quantum_(hard_quantum), share_(share) {}

    void arrive(Task& task, Nanoseconds now) override {
        if (task.kind > 0 && others_.empty()) since_ = now;
        (task.kind == 0 ? new_ : others_).push(task);
    }
    void preempted(Task& task, Nanoseconds now) override {
        if (task.kind == 0) cut_.push(task);
        else arrive(task, now);
    }
    Task* pick(std::size_t, Nanoseconds now) override {
        const bool is_due = is_owed(now);
        if (!is_due && !new_.empty()) return new_.pop();
        if (!is_due && !cut_.empty()) return cut_.pop();
        if (others_.empty()) return nullptr;
        // A slice is paid for when it is given, from what has come in while somebody waited.
        owed_ = std::max(owed(now) - static_cast<double>(turn()), 0.0);
        since_ = now;
        Task* task = others_.pop();
        task->key = is_due ? 1 : 0;
        return task;
    }
    Task* steal(std::size_t) override { return new_.empty() ? others_.pop_if(is_new) : new_.pop(); }
    bool withdraw(const Task& task) override { return withdraw_from(task, new_, cut_, others_); }
    [[nodiscard]] Nanoseconds slice(const Task& task) const override { return task.kind == 0 ? quantum_ : turn(); }
    [[nodiscard]] bool is_worth_preempting(const Task& running, Nanoseconds now) const override {
        if (running.kind > 0) return !new_.empty() || !cut_.empty() || !others_.empty();
        return !new_.empty() || is_owed(now) || (!cut_.empty() && now - running.started >= hard_quantum_);
    }
    [[nodiscard]] bool reacts_to_arrivals() const override { return true; }
    [[nodiscard]] bool must_make_room(const Task& running, const Task& arrived) const override {
        return arrived.kind == 0 && running.kind > 0 && running.key == 0;
    }

private:
    /// Of best effort, also where others are never cut.
    [[nodiscard]] Nanoseconds turn() const { return std::min(quantum_, hard_quantum_); }
    [[nodiscard]] double owed(Nanoseconds now) const { return owed_ + share_ * static_cast<double>(now - since_); }
    [[nodiscard]] bool is_owed(Nanoseconds now) const {
        return !others_.empty() && share_ > 0.0 && owed(now) >= static_cast<double>(turn());
    }

    Nanoseconds hard_quantum_;
    double share_;
    double owed_ = 0.0;      // ns that the best effort has to get
    Nanoseconds since_ = 0;  // as of when
    Fifo new_, cut_, others_;
};

enum class PolicyKind : std::uint8_t {
    fcfs,
    round_robin,
    two_queue,
    least_attained,
    shortest_remaining,
    earliest_deadline,
    kind_priority,
    reserved,
    best_effort,
};

inline constexpr auto last_policy = PolicyKind::best_effort;

struct PolicySettings {
    PolicyKind kind = PolicyKind::two_queue;
    Nanoseconds quantum = 10'000;
    Nanoseconds hard_quantum = 500'000;
    Nanoseconds patience = unlimited;
    std::size_t reserved = 1;
    double share = 0.05;  // of the best effort
};

inline std::unique_ptr<Policy> make_policy(const PolicySettings& settings) {
    switch (settings.kind) {
        case PolicyKind::fcfs: return std::make_unique<Fcfs>();
        case PolicyKind::round_robin: return std::make_unique<RoundRobin>(settings.quantum);
        case PolicyKind::two_queue:
            return std::make_unique<TwoQueue>(settings.quantum, settings.hard_quantum, settings.patience);
        case PolicyKind::least_attained: return std::make_unique<LeastAttained>(settings.quantum);
        case PolicyKind::shortest_remaining: return std::make_unique<ShortestRemaining>();
        case PolicyKind::earliest_deadline: return std::make_unique<EarliestDeadline>();
        case PolicyKind::kind_priority: return std::make_unique<KindPriority>(settings.quantum);
        case PolicyKind::reserved: return std::make_unique<Reserved>(settings.reserved);
        case PolicyKind::best_effort:
            return std::make_unique<BestEffort>(settings.quantum, settings.hard_quantum, settings.share);
    }
    throw std::invalid_argument("no such policy");
}

}  // namespace gnomon::threads
