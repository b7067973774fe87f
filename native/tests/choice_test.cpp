#include "engine/choice/choice.hpp"

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "engine/index.hpp"
#include "tests/test.hpp"

namespace gnomon::tests {
namespace {

/// Three services that every class passes; of each class a row of residuals and one of times.
struct Made {
    static constexpr std::int32_t services = 3, options = 3, promises = 2;
    std::vector<std::int32_t> first_option{0, 3, 6, 9}, first_part{0}, part_class, first_use{0}, use_row,
        first_promise{0}, row_class;
    std::vector<double> cost, use_residual, use_time, residual, time;

    Made(std::mt19937_64& rng, std::int32_t classes) {
        std::uniform_real_distribution<double> uniform(0, 1);
        for (std::int32_t s = 0; s < services; ++s) {
            double dearer = 0;
            for (std::int32_t o = 0; o < options; ++o) {
                cost.push_back(dearer += uniform(rng));
                for (std::int32_t p = 0; p < classes * promises; ++p) {
                    residual.push_back(0.2 * (p % promises + 1) + 0.1 * uniform(rng));
                    time.push_back((2 * uniform(rng) + 0.3) / (o + 1) / (p % promises + 1));
                    if (p % promises == promises - 1) first_promise.push_back(static_cast<std::int32_t>(time.size()));
                }
            }
            first_part.push_back(first_part.back() + classes);
            for (std::int32_t c = 0; c < classes; ++c) {
                part_class.push_back(c);
                for (const std::int32_t row : {0, 1}) {
                    use_row.push_back(2 * c + row);
                    use_residual.push_back(row == 0 ? 1.0 : 0.0);
                    use_time.push_back(row == 0 ? 0.0 : 1.0);
                }
                first_use.push_back(static_cast<std::int32_t>(use_row.size()));
            }
        }
        for (std::int32_t row = 0; row < 2 * classes; ++row) row_class.push_back(row / 2);
    }

    [[nodiscard]] ChoiceProblem problem() const {
        return {first_option, cost,     first_part,    part_class, first_use, use_row,
                use_residual, use_time, first_promise, residual,   time,      row_class};
    }

    /// Whether some promises of these options keep a class.
    [[nodiscard]] bool is_kept(std::int32_t of_class, std::int32_t classes, const int (&pick)[services]) const {
        for (int ways = 0; ways < 8; ++ways) {
            double all_residual = 0, all_time = 0;
            for (std::int32_t s = 0; s < services; ++s) {
                const auto slot = (s * options + pick[s]) * classes + of_class;
                const auto q = index(first_promise[index(slot)] + ((ways >> s) & 1));
                all_residual += residual[q];
                all_time += time[q];
            }
            if (all_residual <= 1 && all_time <= 1) return true;
        }
        return false;
    }

    [[nodiscard]] double cheapest(std::int32_t classes) const {
        double best = std::numeric_limits<double>::infinity();
        for (int number = 0; number < 27; ++number) {
            const int pick[services] = {number % 3, number / 3 % 3, number / 9};
            bool kept = true;
            for (std::int32_t c = 0; c < classes; ++c) kept &= is_kept(c, classes, pick);
            const double sum = cost[index(pick[0])] + cost[index(3 + pick[1])] + cost[index(6 + pick[2])];
            if (kept) best = std::min(best, sum);
        }
        return best;
    }
};

void choices_are_as_good_as_trying_everything() {
    std::mt19937_64 rng(3);
    int kept = 0, none = 0;
    for (int round = 0; round < 200; ++round) {
        const auto classes = static_cast<std::int32_t>(1 + round % 3);
        const Made made(rng, classes);
        const double expected = made.cheapest(classes);
        const auto found = choose(made.problem(), 0.0, 100'000);
        expect(found.is_proven, "a small choice is proven");
        expect(found.option.empty() == std::isinf(expected), "a choice is found where there is one");
        if (found.option.empty()) {
            ++none;
            continue;
        }
        ++kept;
        expect(std::abs(found.cost - expected) < 1e-9, "a choice is the cheapest");
        expect(found.bound <= found.cost, "a bound is below the cost");
    }
    expect(kept > 50 && none > 50, "some choices exist, some do not");
}

void choices_stop_after_so_many_nodes() {
    std::mt19937_64 rng(4);
    for (int round = 0; round < 50; ++round) {
        const auto found = choose(Made(rng, 2).problem(), 0.0, 1);
        expect(found.nodes <= 1, "a choice stops when it should");
    }
}

}  // namespace

void choice_tests() {
    choices_are_as_good_as_trying_everything();
    choices_stop_after_so_many_nodes();
}

}  // namespace gnomon::tests
