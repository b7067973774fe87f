// The CPU of one replica: threads that share it equally, under a CFS quota.
//
// A group may use `quota` ns of CPU time in each period, on as many cores as it has threads that
// run. When that is used up, all its threads stop until the next period begins. The kernel looks at
// its ticks only: a thread runs on to the next one, and what it overdraws is missing in the next
// period; work that ends before that tick is not throttled. A group that wakes up with nothing left
// stops at once. Quota that is left does not carry over. Periods of different replicas begin at
// different times.
//
// Work is kept in attained service: every running thread gains at the same rate, so a stretch that
// starts now with work w ends when `attained` has grown by w. Between two events the rate is
// constant; periods that use less than their quota need no event.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <limits>
#include <vector>

#include "engine/event_queue.hpp"

namespace gnomon::mesh {

/// CPU time and throttling of a service since the last look, also in slices of a period's length.
struct CpuAccount {
    double used = 0.0;
    std::int64_t periods = 0, throttled = 0;
    double throttled_ns = 0.0;
    std::int64_t slice_length = 1, slices_from = 0;
    std::vector<double> used_slices;
    std::vector<std::int32_t> throttled_slices;

    void add_used(std::int64_t from, std::int64_t to, double rate) {
        const double whole = rate * static_cast<double>(to - from);
        used += whole;
        if (from >= last_from_ && to <= last_to_) {  // most often it is the slice of the time before
            used_slices.back() += whole;
            return;
        }
        auto slice = (from - slices_from) / slice_length;
        while (from < to) {
            const auto end = std::min(to, slices_from + (slice + 1) * slice_length);
            at(used_slices, slice) += rate * static_cast<double>(end - from);
            from = end;
            ++slice;
        }
        last_from_ = slices_from + (std::ssize(used_slices) - 1) * slice_length;
        last_to_ = last_from_ + slice_length;
    }

    void add_throttled(std::int64_t now, std::int64_t until) {
        ++throttled;
        throttled_ns += static_cast<double>(until - now);
        ++at(throttled_slices, (now - slices_from) / slice_length);
    }

    void clear(std::int64_t now) {
        used = throttled_ns = 0.0;
        periods = throttled = 0;
        slices_from = last_from_ = last_to_ = now;
        used_slices.clear();
        throttled_slices.clear();
    }

private:
    template <typename T>
    static T& at(std::vector<T>& slices, std::int64_t slice) {
        const auto place = static_cast<std::size_t>(slice);
        if (place >= slices.size()) slices.resize(place + 1);
        return slices[place];
    }

    std::int64_t last_from_ = 0, last_to_ = 0;  // of the last slice in use
};

class Processor {
public:
    Processor(std::int64_t period, std::int64_t tick, std::int64_t phase)
        : period_(period), tick_(tick), phase_(phase) {}

    [[nodiscard]] std::int32_t running() const { return static_cast<std::int32_t>(stretches_.size()); }
    [[nodiscard]] bool is_throttled() const { return is_throttled_; }
    /// Threads that want a core now.
    [[nodiscard]] std::int32_t wanted() const { return is_throttled_ ? 0 : running(); }

    /// Brings the account up to `now`; everything below expects that this was done.
    void advance(std::int64_t now, CpuAccount& account) {
        if (now == updated_) return;
        const auto running = static_cast<double>(stretches_.size());
        if (running > 0 && !is_throttled_ && rate_ > 0.0) {
            attained_ += rate_ * static_cast<double>(now - updated_);
            account.add_used(updated_, now, running * rate_);
        }
        if (is_limited()) {
            const auto index = now < boundary_ ? period_index_ : period_of(now);
            if (running > 0) count_periods(index, account);
            const double rate = is_throttled_ ? 0.0 : running * rate_;
            if (index != period_index_) {
                quota_left_ -= rate * static_cast<double>(boundary_ - updated_);
                // Each period pays back a quota of what was overdrawn, busy or idle.
                const double owed = std::min(quota_left_, 0.0);
                quota_left_ = quota_ + std::min(owed + quota_ * static_cast<double>(index - period_index_ - 1), 0.0);
                updated_ = start_of(index);
                enter_period(index);
                must_stop_ = false;
            }
            quota_left_ -= rate * static_cast<double>(now - updated_);
        }
        updated_ = now;
    }

    /// A stretch of work begins; `owner` is given back when it is done.
    void start(double work, std::int32_t owner) {
        if (stretches_.empty()) {
            attained_ = 0.0;  // keeps the sums small
            must_stop_ = is_limited() && quota_left_ < 0.5;
        }
        stretches_.push_back({attained_ + work, started_++, owner});
        std::push_heap(stretches_.begin(), stretches_.end(), ends_later);
    }

    /// The owner of a stretch that is done, or -1.
    std::int32_t take_done() {
        if (stretches_.empty() || stretches_.front().end > attained_ + 0.5) return -1;
        const auto owner = stretches_.front().owner;
        std::pop_heap(stretches_.begin(), stretches_.end(), ends_later);
        stretches_.pop_back();
        return owner;
    }

    /// Stops or starts the threads as the quota says.
    void enforce_quota(CpuAccount& account) {
        if (!is_limited()) return;
        bool is_due = must_stop_;
        if (is_throttled_ && updated_ >= throttled_until_) {
            is_throttled_ = false;
            is_due = true;  // what was overdrawn may be more than the new quota
        }
        if (is_throttled_ || stretches_.empty() || quota_left_ >= 0.5) return;
        if (!is_due && at_tick(updated_) != updated_) return;
        is_throttled_ = true;
        throttled_until_ = boundary_;
        account.add_throttled(updated_, throttled_until_);
    }

    /// Of each running thread, in cores.
    void set_rate(double rate) { rate_ = rate; }
    [[nodiscard]] double rate() const { return rate_; }

    /// As the kernel does: the quota of this period is filled up at once.
    void set_limit(double cores, std::int64_t now) {
        quota_ = cores * static_cast<double>(period_);
        quota_left_ = quota_;
        enter_period(period_of(now));
        is_throttled_ = must_stop_ = false;
    }

    /// When something happens here next, if nothing else does.
    [[nodiscard]] std::int64_t next_event() const {
        if (stretches_.empty()) return never;
        if (is_throttled_) return quota_ > 0.0 ? throttled_until_ : never;
        if (rate_ <= 0.0) return never;
        std::int64_t next = after(updated_, (stretches_.front().end - attained_) / rate_);
        if (is_limited()) {
            const double total = rate_ * static_cast<double>(stretches_.size());
            if (quota_left_ < total * static_cast<double>(boundary_ - updated_)) {
                const auto empty = after(updated_, quota_left_ / total);
                next = std::min({next, boundary_, must_stop_ ? updated_ : at_tick(empty)});
            } else if (quota_ < total * static_cast<double>(period_)) {
                next = std::min(next, boundary_);
            }
        }
        return next;
    }

private:
    struct Stretch {
        double end;          // in attained service
        std::int64_t order;  // of two that end together, the one that began first
        std::int32_t owner;
    };
    static bool ends_later(const Stretch& a, const Stretch& b) {
        return a.end != b.end ? a.end > b.end : a.order > b.order;
    }

    [[nodiscard]] bool is_limited() const { return quota_ < std::numeric_limits<double>::infinity(); }

    [[nodiscard]] std::int64_t period_of(std::int64_t now) const { return (now + phase_) / period_; }
    void enter_period(std::int64_t index) {
        period_index_ = index;
        boundary_ = start_of(index + 1);
    }
    [[nodiscard]] std::int64_t start_of(std::int64_t index) const { return index * period_ - phase_; }

    /// The first tick from a time on.
    [[nodiscard]] std::int64_t at_tick(std::int64_t time) const {
        return tick_ == 0 ? time : (time + phase_ + tick_ - 1) / tick_ * tick_ - phase_;
    }

    static std::int64_t after(std::int64_t from, double ns) {
        return ns < 4e18 ? from + static_cast<std::int64_t>(std::ceil(std::max(ns, 0.0))) : never;
    }

    void count_periods(std::int64_t index, CpuAccount& account) {
        const auto first = std::max(counted_ + 1, period_index_);
        if (index < first) return;
        account.periods += index - first + 1;
        counted_ = index;
    }

    std::int64_t period_, tick_, phase_;
    std::vector<Stretch> stretches_;
    std::int64_t started_ = 0;
    double attained_ = 0.0, rate_ = 1.0;
    double quota_ = std::numeric_limits<double>::infinity(), quota_left_ = quota_;
    std::int64_t updated_ = 0, period_index_ = 0, boundary_ = 0, counted_ = -1, throttled_until_ = 0;
    bool is_throttled_ = false;
    bool must_stop_ = false;  // it woke up with nothing left
};

}  // namespace gnomon::mesh
