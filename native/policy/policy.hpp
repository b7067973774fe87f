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
    /// Asked on an arrival that finds every worker busy: must this one make room at once?
    [[nodiscard]] virtual bool must_make_room([[maybe_unused]] const Task& running,
                                              [[maybe_unused]] const Task& arrived) const {
        return false;
    }
};

/// In order of arrival, each to its end.
class Fcfs final : public Policy {
public:
    void arrive(Task& task, Nanoseconds) override { waiting_.push(task); }
    void preempted(Task& task, Nanoseconds) override { waiting_.push(task); }
    Task* pick(std::size_t, Nanoseconds) override { return waiting_.pop(); }

private:
    Fifo waiting_;
};

/// A quantum each in turn: with a short quantum, processor sharing. Nobody is cut while nobody waits.
class RoundRobin final : public Policy {
public:
    explicit RoundRobin(Nanoseconds quantum) : quantum_(quantum) {}
    void arrive(Task& task, Nanoseconds) override { waiting_.push(task); }
    void preempted(Task& task, Nanoseconds) override { waiting_.push(task); }
    Task* pick(std::size_t, Nanoseconds) override { return waiting_.pop(); }
    [[nodiscard]] Nanoseconds slice(const Task&) const override { return quantum_; }
    [[nodiscard]] bool is_worth_preempting(const Task&, Nanoseconds) const override { return !waiting_.empty(); }

private:
    Nanoseconds quantum_;
    Fifo waiting_;
};

/// New requests before those that were cut; these cut one another only after a long quantum (Aspen,
/// NSDI 2025). A cut request that has waited for `patience` goes first, so that none starves.
class TwoQueue final : public Policy {
public:
    TwoQueue(Nanoseconds quantum, Nanoseconds hard_quantum, Nanoseconds patience)
        : quantum_(quantum), hard_quantum_(hard_quantum), patience_(patience) {}

    void arrive(Task& task, Nanoseconds) override { new_.push(task); }
    void preempted(Task& task, Nanoseconds now) override {
        task.key = now;  // since when it waits
        cut_.push(task);
    }
    Task* pick(std::size_t, Nanoseconds now) override {
        const bool is_due = !cut_.empty() && now - cut_.front()->key >= patience_;
        return new_.empty() || is_due ? (cut_.empty() ? new_.pop() : cut_.pop()) : new_.pop();
    }
    [[nodiscard]] Nanoseconds slice(const Task&) const override { return quantum_; }
    [[nodiscard]] bool is_worth_preempting(const Task& running, Nanoseconds now) const override {
        return !new_.empty() || (!cut_.empty() && now - running.started >= hard_quantum_);
    }

private:
    Nanoseconds quantum_, hard_quantum_, patience_;
    Fifo new_, cut_;
};

/// Whoever has had the least service: good for requests of unknown, heavy-tailed length.
class LeastAttained final : public Policy {
public:
    explicit LeastAttained(Nanoseconds quantum) : quantum_(quantum) {}
    void reserve(std::size_t tasks) override { waiting_.reserve(tasks); }
    void arrive(Task& task, Nanoseconds) override { waiting_.push(task, task.attained); }
    void preempted(Task& task, Nanoseconds) override { waiting_.push(task, task.attained); }
    Task* pick(std::size_t, Nanoseconds) override { return waiting_.pop(); }
    [[nodiscard]] Nanoseconds slice(const Task&) const override { return quantum_; }
    [[nodiscard]] bool is_worth_preempting(const Task& running, Nanoseconds) const override {
        return !waiting_.empty() && waiting_.front()->attained <= running.attained;
    }
    [[nodiscard]] bool must_make_room(const Task& running, const Task& arrived) const override {
        return running.attained > arrived.attained + quantum_;
    }

private:
    Nanoseconds quantum_;
    Ranked waiting_;
};

/// The shortest remaining time by the hints that requests come with; those without one come last.
class ShortestRemaining final : public Policy {
public:
    void reserve(std::size_t tasks) override { waiting_.reserve(tasks); }
    void arrive(Task& task, Nanoseconds) override { waiting_.push(task, left(task)); }
    void preempted(Task& task, Nanoseconds) override { waiting_.push(task, left(task)); }
    Task* pick(std::size_t, Nanoseconds) override { return waiting_.pop(); }
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
    explicit KindPriority(Nanoseconds quantum) : quantum_(quantum) {}
    void arrive(Task& task, Nanoseconds) override { queue(task).push(task); }
    void preempted(Task& task, Nanoseconds) override { queue(task).push(task); }
    Task* pick(std::size_t, Nanoseconds) override {
        for (auto& one : waiting_) {
            if (!one.empty()) return one.pop();
        }
        return nullptr;
    }
    [[nodiscard]] Nanoseconds slice(const Task&) const override { return quantum_; }
    [[nodiscard]] bool is_worth_preempting(const Task& running, Nanoseconds) const override {
        for (std::size_t k = 0; k <= level(running); ++k) {
            if (!waiting_[k].empty()) return true;
        }
        return false;
    }
    [[nodiscard]] bool must_make_room(const Task& running, const Task& arrived) const override {
        return level(arrived) < level(running);
    }

private:
    static constexpr std::size_t levels = 16;
    static std::size_t level(const Task& task) { return std::min(static_cast<std::size_t>(task.kind), levels - 1); }
    Fifo& queue(const Task& task) { return waiting_[level(task)]; }

    Nanoseconds quantum_;
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

private:
    std::size_t workers_;
    Fifo short_, other_;
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
};

struct PolicySettings {
    PolicyKind kind = PolicyKind::two_queue;
    Nanoseconds quantum = 10'000;
    Nanoseconds hard_quantum = 500'000;
    Nanoseconds patience = unlimited;
    std::size_t reserved = 1;
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
    }
    throw std::invalid_argument("no such policy");
}

}  // namespace gnomon::threads
