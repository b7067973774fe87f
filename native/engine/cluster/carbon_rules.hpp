// When to run on a dirty grid: the formulas of PCAPS and CAP (Lechowicz et al., arXiv 2502.09717).
//
// `low` and `high` are the least and the greatest intensity that is expected (L and U there).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/index.hpp"

namespace gnomon {

/// PCAPS: a stage of this relative importance (0..1) runs while the grid is no dirtier than this.
/// Importance 1 gives `high`, so the most important stage always runs; carelessness (gamma) 0
/// gives `high` for all.
inline double pcaps_threshold(double importance, double gamma, double low, double high) {
    const double base = gamma * low + (1.0 - gamma) * high;
    if (gamma <= 0.0 || importance >= 1.0) return high;
    return base + (high - base) * std::expm1(gamma * importance) / std::expm1(gamma);
}

/// How PCAPS narrows the executors of a stage that it runs.
enum class Narrowing : std::uint8_t {
    none,           // not at all: only the threshold is tested
    literal,        // as printed: the exponent has the unit of the intensity
    released,       // as the authors' simulator softens it
    dimensionless,  // the exponent divided by the range
};

inline std::int32_t narrowed(std::int32_t limit, Narrowing how, double gamma, double intensity, double low,
                             double high) {
    if (how == Narrowing::none || gamma <= 0.0 || limit <= 1) return limit;
    double exponent = gamma * (low - intensity);
    if (how == Narrowing::dimensionless) exponent = high > low ? exponent / (high - low) : 0.0;
    const double released = how == Narrowing::released ? std::min(0.9, gamma) : gamma;
    const double factor = std::min(std::exp(std::min(exponent, 0.0)), 1.0 - released);
    const double wide = limit;
    const double printed = std::ceil(wide * factor);
    const double used = how == Narrowing::released ? std::floor(wide - gamma * (wide - printed)) : printed;
    return std::max(1, static_cast<std::int32_t>(used));
}

/// CAP: the root of (1 + 1/(k a))^k = (U - L) / (U (1 - 1/a)), for k executors above the least.
/// Both sides fall in a; their difference is followed from the side where it is sure.
inline double cap_alpha(double low, double high, std::int32_t steps) {
    if (!(high > low) || steps < 1) return 1.0;
    const double k = steps;
    // In the logarithm neither side overflows: f is rising in a, below zero near 1.
    const auto f = [&](double a) {
        return k * std::log1p(1.0 / (k * a)) - std::log((high - low) / (high * (1.0 - 1.0 / a)));
    };
    double left = 1.0, right = 2.0;
    while (f(right) < 0.0 && right < 1e12) right *= 2.0;
    for (int i = 0; i < 200 && right - left > 1e-14 * right; ++i) {
        const double middle = 0.5 * (left + right);
        (f(middle) < 0.0 ? left : right) = middle;
    }
    return 0.5 * (left + right);
}

/// The intensity at which CAP lets the i-th executor above the least run, i = 1..steps.
inline std::vector<double> cap_thresholds(double high, std::int32_t steps, double alpha) {
    std::vector<double> thresholds(index(std::max(steps, 0)));
    double growth = 1.0;
    for (auto& threshold : thresholds) {
        threshold = high - (high - high / alpha) * growth;
        growth *= 1.0 + 1.0 / (static_cast<double>(steps) * alpha);
    }
    return thresholds;
}

/// CAP: how many executors may be busy. The least at `high`, all at `low`.
inline std::int32_t cap_quota(double intensity, double low, double high, std::int32_t least, std::int32_t executors) {
    const std::int32_t steps = executors - least;
    if (steps <= 0) return executors;
    if (intensity <= low || !(high > low)) return executors;
    const auto thresholds = cap_thresholds(high, steps, cap_alpha(low, high, steps));
    const auto open = std::partition_point(thresholds.begin(), thresholds.end(),
                                           [&](double threshold) { return threshold >= intensity; });
    return least + static_cast<std::int32_t>(open - thresholds.begin());
}

/// pcaps+: whether to run now what needs so many hours, of which `coming` may still be waited for:
/// yes, if this hour is among the cleanest that it needs. An hour is cleaner by more than `margin`.
inline bool runs_now(double intensity, std::span<const double> coming, double needed, double margin) {
    const double clean = intensity * (1.0 - margin);
    const auto cleaner = std::count_if(coming.begin(), coming.end(), [clean](double c) { return c < clean; });
    return static_cast<double>(cleaner) < std::max(needed, 1.0);
}

}  // namespace gnomon
