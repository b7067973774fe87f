// Who is idle: executors of a simulated cluster by the application that holds them.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/index.hpp"

namespace gnomon {

inline constexpr std::int32_t nobody = -1;

enum class Activity : std::uint8_t { absent, off, idle, coming, busy, broken };

struct Executor {
    Activity activity = Activity::idle;
    bool fresh = true;      // has not run a task of its application
    std::int8_t wave = 0;   // of the task it runs
    bool failing = false;   // the task it runs will have failed
    bool breaking = false;  // and itself with it
    bool leaving = false;   // it goes as soon as it is idle
    std::int32_t application = nobody;
    std::int32_t slot = -1, stage = -1;
    std::int64_t last_stage = -1;  // (job, stage) of its last task
    std::int64_t since = 0;
    std::int32_t previous = nobody, next = nobody;  // idle ones of one application
    std::int32_t place = -1;                        // in the pool of its kind
};

/// All of them. An idle one is in the row of its application, and in one of three pools: of those
/// that an application holds, of those that none does, of those that are switched off.
class Executors {
public:
    void reset(std::int32_t count, std::int32_t applications) {
        all_.assign(index(count), {});
        const auto many = index(applications);
        first_idle_.assign(many, nobody);
        held_by_.assign(many, 0);
        idle_of_.assign(many, 0);
    }

    [[nodiscard]] Executor& operator[](std::int32_t number) { return all_[index(number)]; }
    [[nodiscard]] const Executor& operator[](std::int32_t number) const { return all_[index(number)]; }
    /// Those that can be had, switched on or not.
    [[nodiscard]] std::int32_t idle() const { return idle_; }
    /// Those that applications hold, and the idle ones among them.
    [[nodiscard]] std::int32_t held() const { return held_; }
    [[nodiscard]] std::int32_t idle_held() const { return static_cast<std::int32_t>(bound_.size()); }
    [[nodiscard]] std::int32_t held_by(std::int32_t application) const { return held_by_[index(application)]; }
    [[nodiscard]] std::int32_t idle_of(std::int32_t application) const { return idle_of_[index(application)]; }
    [[nodiscard]] std::int32_t first_idle_of(std::int32_t application) const { return first_idle_[index(application)]; }
    /// The last idle one of an application that `may_leave` lets go, or `nobody`.
    template <typename MayLeave>
    [[nodiscard]] std::int32_t last_held(MayLeave may_leave) const {
        for (auto place = bound_.size(); place-- > 0;) {
            if (may_leave((*this)[bound_[place]].application)) return bound_[place];
        }
        return nobody;
    }

    void bind(std::int32_t number, std::int32_t application) {
        auto& e = (*this)[number];
        e.application = application;
        e.fresh = true;
        ++held_by_[index(application)];
        ++held_;
    }

    /// Nothing where nobody holds it.
    void unbind(std::int32_t number) {
        auto& e = (*this)[number];
        if (e.application == nobody) return;
        --held_by_[index(e.application)];
        --held_;
        e.application = nobody;
    }

    void enter_idle(std::int32_t number, std::int64_t now) {
        auto& e = (*this)[number];
        e.activity = Activity::idle;
        e.since = now;
        ++idle_;
        enter(pool_of(e), number);
        if (e.application == nobody) return;
        auto& first = first_idle_[index(e.application)];
        e.previous = nobody;
        e.next = first;
        if (first != nobody) (*this)[first].previous = number;
        first = number;
        ++idle_of_[index(e.application)];
    }

    void leave_idle(std::int32_t number) {
        auto& e = (*this)[number];
        --idle_;
        leave(pool_of(e), number);
        if (e.application == nobody) return;
        if (e.previous != nobody) {
            (*this)[e.previous].next = e.next;
        } else {
            first_idle_[index(e.application)] = e.next;
        }
        if (e.next != nobody) (*this)[e.next].previous = e.previous;
        e.previous = e.next = nobody;
        --idle_of_[index(e.application)];
    }

    /// It can be had, at the price of its start.
    void enter_off(std::int32_t number) {
        (*this)[number].activity = Activity::off;
        enter(off_, number);
        ++idle_;
    }

    void leave_off(std::int32_t number) {
        leave(off_, number);
        --idle_;
    }

    /// An idle one is nobody's from now on, and has been idle for as long as before.
    void send_away(std::int32_t number) {
        const auto since = (*this)[number].since;
        leave_idle(number);
        unbind(number);
        enter_idle(number, since);
    }

    /// Takes an idle one for an application, or `nobody`: its own first, then nobody's, then one
    /// that others left idle and `may_leave` lets go, one that is off last. Unless applications may
    /// hold more, none that is nobody's.
    template <typename MayLeave>
    std::int32_t take(std::int32_t application, bool may_hold_more, MayLeave may_leave) {
        auto number = first_idle_of(application);
        if (number == nobody && may_hold_more && !unbound_.empty()) number = unbound_.back();
        if (number == nobody) number = last_held(may_leave);
        if (number != nobody) {
            leave_idle(number);
            return number;
        }
        if (off_.empty() || !may_hold_more) return nobody;
        number = off_.back();
        leave_off(number);
        return number;
    }

private:
    [[nodiscard]] std::vector<std::int32_t>& pool_of(const Executor& e) {
        return e.application == nobody ? unbound_ : bound_;
    }

    void enter(std::vector<std::int32_t>& pool, std::int32_t number) {
        (*this)[number].place = static_cast<std::int32_t>(pool.size());
        pool.push_back(number);
    }

    void leave(std::vector<std::int32_t>& pool, std::int32_t number) {
        const auto place = (*this)[number].place;
        const auto last = pool.back();
        pool[index(place)] = last;
        (*this)[last].place = place;
        pool.pop_back();
    }

    std::vector<Executor> all_;
    std::vector<std::int32_t> bound_, unbound_, off_;
    std::vector<std::int32_t> first_idle_, held_by_, idle_of_;  // by application
    std::int32_t idle_ = 0, held_ = 0;
};

}  // namespace gnomon
