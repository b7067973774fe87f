// Times that vary from request to request: constant, exponential, log-normal, or measured.
#pragma once

#include <cmath>
#include <cstdint>
#include <span>

#include "engine/index.hpp"
#include "engine/rng.hpp"

namespace gnomon::mesh {

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
        const double u = rng.uniform();
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

}  // namespace gnomon::mesh
