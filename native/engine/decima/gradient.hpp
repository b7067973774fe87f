// The gradient of Decima's choices, for training by policy gradients (Mao et al., section 5.3).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "engine/decima/network.hpp"

namespace gnomon {

/// What was chosen on a view.
struct DecimaChoice {
    std::int32_t chosen = 0;  // place in `ready`
    std::int32_t job = 0;     // of the chosen node
    std::int32_t limit = 1, lowest = 1, highest = 1;
};

struct DecimaBackward;

/// Adds up, over choices, the gradient of
///   -advantage x log(p(stage) p(limit)) - entropy_weight x (entropy of stages + entropy of limits)
/// in the parameters; entropies as shares of what even chances would have.
class DecimaGradient {
public:
    explicit DecimaGradient(std::span<const float> parameters);
    ~DecimaGradient();
    DecimaGradient(DecimaGradient&&) noexcept;
    DecimaGradient& operator=(DecimaGradient&&) noexcept;

    void add(const DecimaView& view, const DecimaChoice& choice, float advantage, float entropy_weight);

    /// One number for each parameter, of all that was added.
    [[nodiscard]] std::vector<double> sum();
    [[nodiscard]] double entropy() const { return entropy_; }
    [[nodiscard]] double log_probability() const { return log_probability_; }

private:
    std::unique_ptr<DecimaWork> work_;
    std::unique_ptr<DecimaBackward> backward_;
    double entropy_ = 0.0, log_probability_ = 0.0;
};

}  // namespace gnomon
