#include "engine/cores/cores.hpp"

#include <deque>

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
};

class Simulation {
public:
    Simulation(const CoreRequests& requests, std::size_t workers, threads::Policy& policy, const Mechanism& mechanism,
               std::uint64_t seed)
        : requests_(requests), policy_(policy), mechanism_(mechanism), workers_(workers), rng_(seed) {
        result_.latency.resize(requests.arrival.size());
        result_.preemptions.resize(requests.arrival.size());
    }

    CoreRun run() {
        std::size_t arrived = 0;
        for (;;) {
            const Nanoseconds arrival = arrived < requests_.arrival.size() ? requests_.arrival[arrived] : unlimited;
            const std::size_t w = earliest();
            if (workers_[w].at <= arrival) {
                if (workers_[w].next == Next::idle) break;
                act(w);
            } else {
                arrive(arrived++);
            }
        }
        return std::move(result_);
    }

private:
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
    void plan(Worker& worker) {
        const Nanoseconds end = worker.since + worker.running->service - worker.running->attained;
        const Nanoseconds slice_end = later(worker.since, policy_.slice(*worker.running));
        worker.next = end <= slice_end ? Next::complete : Next::ask;
        worker.at = std::min(end, slice_end);
    }

    void stop_later(Worker& worker, Nanoseconds now) {
        const Nanoseconds stop = std::max(now, worker.since) + late();
        const Nanoseconds end = worker.since + worker.running->service - worker.running->attained;
        worker.next = end <= stop ? Next::complete : Next::stop;
        worker.at = std::min(end, stop);
    }

    void take(std::size_t w, Nanoseconds now) {
        Worker& worker = workers_[w];
        worker.running = static_cast<Request*>(policy_.pick(w, now));
        if (worker.running == nullptr) {
            worker.next = Next::idle;
            worker.at = unlimited;
            return;
        }
        result_.lost += mechanism_.dispatch_ns;
        worker.since = now + mechanism_.dispatch_ns;
        worker.running->started = worker.since;
        plan(worker);
    }

    void act(std::size_t w) {
        Worker& worker = workers_[w];
        const Nanoseconds now = worker.at;
        if (worker.running != nullptr) settle(worker, now);
        switch (worker.next) {
            case Next::complete: return complete(w, now);
            case Next::ask:
                ++result_.asked;
                if (policy_.is_worth_preempting(*worker.running, now)) stop_later(worker, now);
                else plan(worker);
                return;
            case Next::stop:
                ++worker.running->preemptions;
                result_.lost += mechanism_.cost_ns;
                policy_.preempted(*worker.running, now);
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
        policy_.arrive(made, made.arrival);
        for (std::size_t w = 0; w < workers_.size(); ++w) {
            if (workers_[w].next != Next::idle) continue;
            take(w, made.arrival);
            if (workers_[w].next != Next::idle) return;
        }
        Worker* victim = nullptr;
        for (auto& worker : workers_) {
            if (worker.running == nullptr || worker.next == Next::stop) continue;
            settle(worker, made.arrival);
            if (!policy_.must_make_room(*worker.running, made)) continue;
            // Of two the one that would make room for the other.
            if (victim == nullptr || policy_.must_make_room(*worker.running, *victim->running)) victim = &worker;
        }
        if (victim != nullptr) stop_later(*victim, made.arrival);
    }

    Request& fresh() {
        if (free_.empty()) return made_.emplace_back();
        Request& found = *free_.back();
        free_.pop_back();
        return found;
    }

    const CoreRequests& requests_;
    threads::Policy& policy_;
    const Mechanism& mechanism_;
    std::vector<Worker> workers_;
    std::deque<Request> made_;  // addresses stay
    std::vector<Request*> free_;
    Rng rng_;
    CoreRun result_;
};

}  // namespace

CoreRun run_cores(const CoreRequests& requests, std::size_t workers, threads::Policy& policy,
                  const Mechanism& mechanism, std::uint64_t seed) {
    return Simulation(requests, workers, policy, mechanism, seed).run();
}

}  // namespace gnomon
