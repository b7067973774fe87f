// What executors did, by step of the grid.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <vector>

#include "engine/index.hpp"

namespace gnomon {

/// Adds stretches of time to the steps that they lie in.
class StepAccount {
public:
    StepAccount(std::int64_t step, std::span<const double> actual) : step_(step), actual_(actual) {}

    void add(std::vector<double>& at, std::int64_t from, std::int64_t until, double share = 1.0) const {
        split(from, until, [&](std::size_t step, double length) {
            make_room(at, step);
            at[step] += share * length;
        });
    }

    /// A task that was busy, and used the CPU for a share of that; its time x actual intensity.
    double add_task(std::vector<double>& busy, std::vector<double>& cpu, std::int64_t from, std::int64_t until,
                    double cpu_share) const {
        double weighted = 0.0;
        split(from, until, [&](std::size_t step, double length) {
            make_room(busy, step);
            make_room(cpu, step);
            busy[step] += length;
            cpu[step] += cpu_share * length;
            if (!actual_.empty()) weighted += length * actual_[std::min(step, actual_.size() - 1)];
        });
        return weighted;
    }

private:
    template <typename Visit>
    void split(std::int64_t from, std::int64_t until, Visit visit) const {
        const auto last = index(INT64_MAX / step_);  // whose end can be represented
        auto step = index(from / step_);
        while (from < until) {
            const auto end = step + 1 > last ? until : std::min(until, static_cast<std::int64_t>(step + 1) * step_);
            visit(step, static_cast<double>(end - from));
            from = end;
            ++step;
        }
    }

    /// Far more steps than hours of anybody's grid are a mistake.
    static void make_room(std::vector<double>& at, std::size_t step) {
        if (at.size() > step) return;
        if (step >= std::size_t{1} << 24) throw std::length_error("a run takes 16 million steps of the grid or more");
        at.resize(step + 1, 0.0);
    }

    std::int64_t step_;
    std::span<const double> actual_;
};

/// A number that changes now and then, times how long it was that, by step of the grid.
class Level {
public:
    [[nodiscard]] std::int64_t value() const { return value_; }
    /// Writes down what it was until now, and is something else from now on.
    void set(std::int64_t value, const StepAccount& account, std::vector<double>& at, std::int64_t now) {
        account.add(at, since_, now, static_cast<double>(value_));
        since_ = now;
        value_ = value;
    }

private:
    std::int64_t value_ = 0, since_ = 0;
};

}  // namespace gnomon
