// A source with a thread of its own, which looks at the deadlines of lanes.
#pragma once

#include <algorithm>

#include "threads/source.hpp"
#include "threads/spin.hpp"

namespace gnomon::threads {

/// A tick is repeated after so long, until the lane disarms: it may have come at the wrong moment.
inline constexpr Nanoseconds repeat_ns = 30'000;

class TimerThread : public Source {
public:
    ~TimerThread() override { end(); }

    void attach(Lane& lane) override {
        const std::lock_guard lock(changing_);
        lanes_.push_back(&lane);
        changed_.store(true, std::memory_order_release);
        if (thread_.joinable()) {
            wake();
            while (changed_.load(std::memory_order_acquire)) pause();
            return;
        }
        thread_ = std::thread([this] { loop(); });
        // A timer that does not run yet would silently be none.
        while (changed_.load(std::memory_order_acquire)) sched_yield();
    }

    void detach(Lane& lane) override {
        const std::lock_guard lock(changing_);
        std::erase(lanes_, &lane);
        changed_.store(true, std::memory_order_release);
        wake();
        // The thread may look at the lane until then.
        while (changed_.load(std::memory_order_acquire)) sched_yield();
        if (lanes_.empty()) end();
    }

    void arm(Lane& lane, Nanoseconds deadline, Nanoseconds period) override {
        lane.period.store(period, std::memory_order_relaxed);
        lane.deadline.store(deadline, std::memory_order_release);
    }
    void disarm(Lane& lane) override { lane.deadline.store(unlimited, std::memory_order_relaxed); }

    bool take_poll(void (*poll)(void*), void* argument) override {
        poll_ = poll;
        poll_argument_ = argument;
        return true;
    }
    void place(const Placement& placement) override { placement_ = placement; }

protected:
    virtual void fire(Lane& lane) = 0;
    /// What wakes from here on is noticed by `rest`.
    virtual void begin_turn() {}
    /// Until `next`, or a moment.
    virtual void rest([[maybe_unused]] Nanoseconds next) { pause(); }
    virtual void wake() {}

    /// By the thread itself.
    [[nodiscard]] bool is_any(auto&& of_lane) const {
        return std::any_of(watched_.begin(), watched_.end(), [&](const Watched& one) { return of_lane(*one.lane); });
    }

    /// The derived class's, before its parts are gone.
    void end() {
        if (!thread_.joinable()) return;
        is_ending_.store(true, std::memory_order_release);
        wake();
        thread_.join();
        is_ending_.store(false, std::memory_order_relaxed);
    }

private:
    struct Watched {
        Lane* lane;
        Nanoseconds hurried_at;
    };

    void loop() {
        placement_.apply();
        for (;;) {
            begin_turn();
            if (is_ending_.load(std::memory_order_acquire)) return;
            if (changed_.load(std::memory_order_acquire)) {
                watched_.clear();
                for (Lane* lane : lanes_) watched_.push_back({lane, 0});
                changed_.store(false, std::memory_order_release);
            }
            if (poll_ != nullptr) call_poll(poll_, poll_argument_);
            Nanoseconds next = unlimited;
            const Nanoseconds now = now_ns();
            for (auto& one : watched_) next = std::min(next, look_at(one, now));
            if (next > now) rest(next);
        }
    }

    Nanoseconds look_at(Watched& one, Nanoseconds now) {
        Lane& lane = *one.lane;
        Nanoseconds next = unlimited;
        if (lane.is_urgent.load(std::memory_order_acquire)) {
            if (now - one.hurried_at > repeat_ns) {
                one.hurried_at = now;
                fire(lane);
            }
            next = one.hurried_at + repeat_ns + 1;  // it may have come at the wrong moment, too
        }
        Nanoseconds deadline = lane.deadline.load(std::memory_order_acquire);
        if (now < deadline) return std::min(deadline, next);
        if (!lane.is_wanted.load(std::memory_order_acquire)) {
            const Nanoseconds period = std::max<Nanoseconds>(lane.period.load(std::memory_order_relaxed), 1000);
            const Nanoseconds put_off = period >= unlimited - now ? unlimited : std::max(deadline + period, now);
            lane.deadline.compare_exchange_strong(deadline, put_off, std::memory_order_relaxed);
            return std::min(put_off, next);
        }
        // Whoever armed it anew meanwhile wins: this tick would be stale.
        if (lane.deadline.compare_exchange_strong(deadline, now + repeat_ns, std::memory_order_acq_rel)) fire(lane);
        return std::min(now + repeat_ns, next);
    }

    std::vector<Lane*> lanes_;
    std::vector<Watched> watched_;  // the thread's own copy
    std::mutex changing_;
    std::atomic<bool> changed_{false}, is_ending_{false};
    std::thread thread_;
    void (*poll_)(void*) = nullptr;
    void* poll_argument_ = nullptr;
    Placement placement_;
};

}  // namespace gnomon::threads
