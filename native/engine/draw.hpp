// Times that vary from request to request: constant, exponential, log-normal, or measured. The
// simulator of services and the lab's programs draw them alike.
#pragma once

#include <cmath>
#include <cstdint>
#include <span>

#include "engine/index.hpp"
#include "engine/rng.hpp"

namespace gnomon {

enum class Shape : std::uint8_t { constant, exponential, lognormal, quantiles };

/// For log-normal times `a` and `b` are the mean and the deviation of the logarithm; for measured
/// ones the points of the inverse distribution; else `a` is the mean.
struct Draw {
    Shape shape = Shape::constant;
    double a = 0.0;
    double b = 0.0;
    std::span<const double> share;
    std::span<const double> value;

    [[nodiscard]] bool is_zero() const { return shape != Shape::quantiles && shape != Shape::lognormal && a == 0.0; }

    double operator()(Rng& rng) const {
        switch (shape) {
            case Shape::constant: return a;
            case Shape::exponential: return rng.exponential(a);
            case Shape::lognormal: return std::exp(a + b * rng.normal());
            case Shape::quantiles: break;
        }
        return at(rng.uniform());
    }

    /// The same distribution, correlated with a normal variate `mood` that others see too (a
    /// Gaussian copula).
    double operator()(Rng& rng, double correlation, double mood) const {
        if (correlation == 0.0 || shape == Shape::constant) return (*this)(rng);
        const double z = std::sqrt(correlation) * mood + std::sqrt(1.0 - correlation) * rng.normal();
        if (shape == Shape::lognormal) return std::exp(a + b * z);
        const double above = 0.5 * std::erfc(z / std::sqrt(2.0));  // in (0, 1)
        return shape == Shape::exponential ? -a * std::log(above) : at(1.0 - above);
    }

private:
    [[nodiscard]] double at(double u) const {
        std::size_t i = 1;
        while (i + 1 < share.size() && share[i] < u) ++i;
        const double width = share[i] - share[i - 1];
        const double part = width > 0.0 ? (u - share[i - 1]) / width : 1.0;
        return value[i - 1] + part * (value[i] - value[i - 1]);
    }
};

inline Draw lognormal(double mean, double cv) {
    const double variance = std::log1p(cv * cv);
    return {Shape::lognormal, std::log(mean) - variance / 2.0, std::sqrt(variance), {}, {}};
}

}  // namespace gnomon
