#include "engine/cores/cores.hpp"

#include <deque>

#include "engine/cores/quantum.hpp"
#include "engine/rng.hpp"

namespace gnomon {
namespace {

using threads::Nanoseconds;
using threads::Task;
using threads::unlimited;

struct Request : Task {
    std::size_t number = 0;
    Nanoseconds service = 0;
};

enum class Next : std::uint8_t { idle, take, complete, ask, stop };

struct Worker {
    Request* running = nullptr;
    Nanoseconds since = 0;  // `attained` is as of then
    Nanoseconds at = unlimited;
    Next next = Next::idle;
    bool is_stopping = false;  // told so, though it may end before
    std::size_t in_hand = 0;   // waiting in its own queue, or running
};

/// What a controller sees: the service times of the last requests that ended, and how many came.
class Watch {
public:
    explicit Watch(const Control& control)
        : control_(control), at_(control.controller ? control.period_ns : unlimited) {}

    [[nodiscard]] Nanoseconds at() const { return at_; }
    void arrived() { ++arrivals_; }
    void ended(Nanoseconds service) {
        if (control_.controller == nullptr) return;
        if (service_.size() < last) service_.push_back(service);
        else service_[ended_++ % last] = service;
    }
    Nanoseconds decide(std::uint64_t in_hand, std::size_t workers) {
        const auto choice =
            control_.controller->decide({control_.period_ns, std::exchange(arrivals_, 0), in_hand, workers, service_});
        at_ += control_.period_ns;
        return choice.quantum;
    }

private:
    static constexpr std::size_t last = 2048;
    Control control_;
    Nanoseconds at_;
    std::uint64_t arrivals_ = 0;
    std::size_t ended_ = 0;
    std::vector<std::int64_t> service_;
};

class Simulation {
public:
    Simulation(const CoreRequests& requests, std::size_t workers,
               std::span<const std::unique_ptr<threads::Policy>> policies, const Mechanism& mechanism,
               std::uint64_t seed, const Control& control)
        : requests_(requests),
          policies_(policies),
          is_shared_(policies.size() == 1),
          mechanism_(mechanism),
          workers_(workers),
          rng_(seed),
          watch_(control) {
        result_.latency.resize(requests.arrival.size());
        result_.preemptions.resize(requests.arrival.size());
    }

    CoreRun run() {
        std::size_t arrived = 0;
        for (;;) {
            const Nanoseconds arrival = arrived < requests_.arrival.size() ? requests_.arrival[arrived] : unlimited;
            const std::size_t w = earliest();
            if (watch_.at() < std::min(workers_[w].at, arrival) && arrival != unlimited) {
                control();
            } else if (workers_[w].at <= arrival) {
                if (workers_[w].next == Next::idle) break;
                act(w);
            } else {
                arrive(arrived++);
            }
        }
        return std::move(result_);
    }

private:
    threads::Policy& policy(std::size_t w) { return *policies_[is_shared_ ? 0 : w]; }

    void control() {
        const auto in_hand = made_.size() - free_.size();
        result_.quanta.push_back(watch_.decide(in_hand, workers_.size()));
        for (const auto& one : policies_) one->set_quantum(result_.quanta.back());
    }

    [[nodiscard]] std::size_t earliest() const {
        std::size_t found = 0;
        for (std::size_t w = 1; w < workers_.size(); ++w) {
            if (workers_[w].at < workers_[found].at) found = w;
        }
        return found;
    }

    Nanoseconds late() {
        if (mechanism_.late_ns.empty()) return 0;
        return mechanism_.late_ns[rng_.below(mechanism_.late_ns.size())];
    }

    static Nanoseconds later(Nanoseconds time, Nanoseconds by) {
        return by >= unlimited - time ? unlimited : time + by;
    }

    void settle(Worker& worker, Nanoseconds now) {
        if (now <= worker.since) return;  // it is still being taken up
        worker.running->attained += now - worker.since;
        worker.since = now;
    }

    /// Its end, or the end of its slice, whichever comes first.
    void plan(std::size_t w) {
        Worker& worker = workers_[w];
        const Nanoseconds end = worker.since + worker.running->service - worker.running->attained;
        const Nanoseconds slice_end = later(worker.since, policy(w).slice(*worker.running));
        worker.next = end <= slice_end ? Next::complete : Next::ask;
        worker.at = std::min(end, slice_end);
    }

    void stop_later(Worker& worker, Nanoseconds now) {
        const Nanoseconds stop = std::max(now, worker.since) + late();
        const Nanoseconds end = worker.since + worker.running->service - worker.running->attained;
        worker.next = end <= stop ? Next::complete : Next::stop;
        worker.at = std::min(end, stop);
        worker.is_stopping = true;
    }

    void take(std::size_t w, Nanoseconds now) {
        Worker& worker = workers_[w];
        worker.is_stopping = false;
        worker.running = static_cast<Request*>(policy(w).pick(w, now));
        if (worker.running == nullptr && steal(w, now)) worker.running = static_cast<Request*>(policy(w).pick(w, now));
        if (worker.running == nullptr) {
            worker.next = Next::idle;
            worker.at = unlimited;
            return;
        }
        result_.lost += mechanism_.dispatch_ns;
        worker.since = now + mechanism_.dispatch_ns;
        worker.running->started = worker.since;
        worker.running->has_begun = true;
        plan(w);
    }

    bool steal(std::size_t thief, Nanoseconds now) {
        if (is_shared_) return false;
        for (std::size_t w = 0; w < workers_.size(); ++w) {
            if (w == thief || workers_[w].in_hand == 0) continue;
            Task* stolen = policies_[w]->steal(thief);
            if (stolen == nullptr) continue;
            --workers_[w].in_hand;
            ++workers_[thief].in_hand;
            policies_[thief]->arrive(*stolen, now);
            return true;
        }
        return false;
    }

    void act(std::size_t w) {
        Worker& worker = workers_[w];
        const Nanoseconds now = worker.at;
        if (worker.running != nullptr) settle(worker, now);
        switch (worker.next) {
            case Next::complete: return complete(w, now);
            case Next::ask:
                ++result_.asked;
                if (policy(w).is_worth_preempting(*worker.running, now)) stop_later(worker, now);
                else plan(w);
                return;
            case Next::stop:
                ++worker.running->preemptions;
                result_.lost += mechanism_.cost_ns;
                policy(w).preempted(*worker.running, now);
                worker.running = nullptr;
                worker.next = Next::take;
                worker.at = now + mechanism_.cost_ns;
                return;
            case Next::take: return take(w, now);
            case Next::idle: return;
        }
    }

    void complete(std::size_t w, Nanoseconds now) {
        Request& done = *workers_[w].running;
        result_.latency[done.number] = now - done.arrival;
        result_.preemptions[done.number] = done.preemptions;
        result_.end = std::max(result_.end, now);
        watch_.ended(done.service);
        if (!is_shared_) --workers_[w].in_hand;
        free_.push_back(&done);
        take(w, now);
    }

    void arrive(std::size_t number) {
        Request& made = fresh();
        made = Request{};
        made.number = number;
        made.arrival = requests_.arrival[number];
        made.service = requests_.service[number];
        if (!requests_.kind.empty()) made.kind = requests_.kind[number];
        if (!requests_.hint.empty()) made.hint = requests_.hint[number];
        if (!requests_.deadline.empty()) made.deadline = requests_.deadline[number];
        watch_.arrived();
        is_shared_ ? share(made) : give(made);
    }

    /// Into the queue of all workers.
    void share(Request& made) {
        policies_[0]->arrive(made, made.arrival);
        for (std::size_t w = 0; w < workers_.size(); ++w) {
            if (workers_[w].next != Next::idle) continue;
            take(w, made.arrival);
            if (workers_[w].next != Next::idle) return;
        }
        Worker* victim = nullptr;
        for (auto& worker : workers_) {
            if (!can_make_room(worker, *policies_[0], made)) continue;
            // Of two the one that would make room for the other.
            if (victim == nullptr || policies_[0]->must_make_room(*worker.running, *victim->running)) victim = &worker;
        }
        if (victim != nullptr) stop_later(*victim, made.arrival);
    }

    /// Into the queue of the worker with the least to do.
    void give(Request& made) {
        std::size_t least = workers_.size();
        for (std::size_t w = 0; w < workers_.size(); ++w) {
            const bool is_less = least == workers_.size() || workers_[w].in_hand < workers_[least].in_hand;
            if (is_less && policies_[w]->accepts(w, made)) least = w;
        }
        Worker& worker = workers_[least];
        ++worker.in_hand;
        policies_[least]->arrive(made, made.arrival);
        if (worker.next == Next::idle) take(least, made.arrival);
        else if (can_make_room(worker, *policies_[least], made)) stop_later(worker, made.arrival);
    }

    bool can_make_room(Worker& worker, const threads::Policy& policy, const Request& made) {
        if (worker.running == nullptr || worker.is_stopping) return false;
        settle(worker, made.arrival);
        return policy.must_make_room(*worker.running, made);
    }

    Request& fresh() {
        if (free_.empty()) return made_.emplace_back();
        Request& found = *free_.back();
        free_.pop_back();
        return found;
    }

    const CoreRequests& requests_;
    std::span<const std::unique_ptr<threads::Policy>> policies_;
    bool is_shared_;
    const Mechanism& mechanism_;
    std::vector<Worker> workers_;
    std::deque<Request> made_;  // addresses stay
    std::vector<Request*> free_;
    Rng rng_;
    Watch watch_;
    CoreRun result_;
};

}  // namespace

CoreRun run_cores(const CoreRequests& requests, std::size_t workers,
                  std::span<const std::unique_ptr<threads::Policy>> policies, const Mechanism& mechanism,
                  std::uint64_t seed, const Control& control) {
    return Simulation(requests, workers, policies, mechanism, seed, control).run();
}

}  // namespace gnomon
