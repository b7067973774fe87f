#include <algorithm>
#include <cmath>
#include <span>
#include <stdexcept>
#include <vector>

#include "engine/decima/gradient.hpp"
#include "engine/decima/network.hpp"
#include "engine/rng.hpp"
#include "tests/test.hpp"

namespace gnomon::tests {
namespace {

/// Jobs whose nodes have up to three children, all later ones.
struct RandomJobs {
    std::vector<std::int32_t> job_first{0}, child_first{0}, child, height, ready;
    std::vector<float> executors, work, tasks;

    explicit RandomJobs(Rng& rng) {
        for (std::uint64_t jobs = rng.below(40); jobs-- > 0;) {
            const auto base = work.size(), nodes = static_cast<std::size_t>(rng.below(30));
            for (std::size_t i = 0; i < nodes; ++i) {
                for (std::uint64_t e = rng.below(4); e-- > 0 && i + 1 < nodes;) {
                    child.push_back(static_cast<std::int32_t>(base + i + 1 + rng.below(nodes - i - 1)));
                }
                child_first.push_back(static_cast<std::int32_t>(child.size()));
                work.push_back(static_cast<float>(rng.uniform() * 1e6));
                tasks.push_back(static_cast<float>(rng.below(500)));
                if (rng.below(4) == 0) ready.push_back(static_cast<std::int32_t>(base + i));
            }
            height.resize(work.size());
            for (std::size_t i = work.size(); i-- > base;) {
                for (auto e = child_first[i]; e < child_first[i + 1]; ++e) {
                    const auto below = static_cast<std::size_t>(child[static_cast<std::size_t>(e)]);
                    height[i] = std::max(height[i], height[below] + 1);
                }
            }
            executors.push_back(static_cast<float>(rng.below(50)));
            job_first.push_back(static_cast<std::int32_t>(work.size()));
        }
    }

    [[nodiscard]] DecimaView view(std::int32_t source) const {
        return {job_first, executors, source, 3.0F, work, tasks, child_first, child, height, ready};
    }
};

bool is_distribution(std::span<const float> p) {
    double sum = 0.0;
    for (const float x : p) {
        if (!(x >= 0.0F && x <= 1.0F)) return false;
        sum += static_cast<double>(x);
    }
    return p.empty() || std::abs(sum - 1.0) < 1e-5;
}

/// Views of changing size through one network: what an earlier one left behind changes nothing.
void decima_stays_in_bounds() {
    Rng rng(11);
    std::vector<float> parameters(Decima::parameter_count);
    for (float& p : parameters) p = static_cast<float>(rng.uniform() - 0.5);
    Decima kept(parameters);
    DecimaGradient gradient(parameters);
    for (int round = 0; round < 60; ++round) {
        const RandomJobs random(rng);
        const auto jobs = static_cast<std::int32_t>(random.executors.size());
        const auto view = random.view(round % 3 == 0 ? jobs - 1 : -1);
        Decima fresh(parameters);
        const auto p = kept.stage_probabilities(view), q = fresh.stage_probabilities(view);
        expect(p.size() == random.ready.size() && is_distribution(p), "stages have probabilities");
        expect(std::equal(p.begin(), p.end(), q.begin(), q.end()), "a used network answers as a fresh one");
        if (jobs == 0) continue;
        const auto job = static_cast<std::int32_t>(rng.below(static_cast<std::uint64_t>(jobs)));
        const auto highest = static_cast<std::int32_t>(rng.below(101));
        const auto limits = kept.limit_probabilities(job, 1, highest);
        expect(limits.size() == static_cast<std::size_t>(highest) && is_distribution(limits),
               "limits have probabilities");
        if (p.empty() || highest == 0) continue;
        const auto chosen = static_cast<std::int32_t>(rng.below(p.size()));
        gradient.add(view, {chosen, job, 1, 1, highest}, 0.5F, 0.1F);
    }
    const auto sum = gradient.sum();
    expect(sum.size() == parameters.size() &&
               std::all_of(sum.begin(), sum.end(), [](double x) { return std::isfinite(x); }),
           "a gradient of numbers");
    expect(std::any_of(sum.begin(), sum.end(), [](double x) { return x != 0.0; }), "a gradient that points somewhere");
    bool refused = false;
    try {
        const Decima short_of_one{std::span<const float>(parameters).first(parameters.size() - 1)};
    } catch (const std::invalid_argument&) {
        refused = true;
    }
    expect(refused, "a network needs all its parameters");
}

/// The steepest derivative is what a small step in its parameter changes.
void gradients_are_slopes() {
    Rng rng(17);
    std::vector<float> parameters(Decima::parameter_count);
    for (float& p : parameters) p = static_cast<float>(rng.uniform() - 0.5);
    RandomJobs jobs(rng);
    while (jobs.ready.size() < 5) jobs = RandomJobs(rng);
    const auto cost = [&] {
        DecimaGradient gradient(parameters);
        gradient.add(jobs.view(0), {2, 0, 3, 1, 20}, 1.0F, 0.0F);
        return std::pair(-gradient.log_probability(), gradient.sum());
    };
    const auto sum = cost().second;
    const auto steepest =
        std::max_element(sum.begin(), sum.end(), [](double a, double b) { return std::abs(a) < std::abs(b); });
    float& parameter = parameters[static_cast<std::size_t>(steepest - sum.begin())];
    const float at = parameter, step = 1e-3F;
    parameter = at + step;
    const double above = cost().first;
    parameter = at - step;
    const double slope = (above - cost().first) / (2.0 * static_cast<double>(step));
    expect(std::abs(slope - *steepest) < 0.02 * std::abs(*steepest), "a gradient is the slope of the cost");
}

}  // namespace

void decima_tests() {
    decima_stays_in_bounds();
    gradients_are_slopes();
}

}  // namespace gnomon::tests
