#include "engine/choice/class_check.hpp"

#include <algorithm>
#include <limits>

#include "engine/index.hpp"

namespace gnomon {
namespace {

/// Sums of decimal residuals miss what they should be by some 1e-15.
constexpr double full = 1 + 1e-9;
constexpr std::size_t most_states = 5000;

}  // namespace

ClassCheck::ClassCheck(const ChoiceProblem& problem) : problem_(problem), service_(problem.parts()) {
    for (const auto of_class : problem.row_class) {
        if (index(of_class) >= rows_.size()) rows_.resize(index(of_class) + 1);
        row_place_.push_back(rows_[index(of_class)]++);
    }
    parts_.resize(rows_.size());
    std::size_t slot = 0;
    for (std::size_t s = 0; s < problem.services(); ++s) {
        const auto first = index(problem.first_part[s]), end = index(problem.first_part[s + 1]);
        for (auto part = first; part < end; ++part) {
            service_[part] = s;
            parts_[index(problem.part_class[part])].push_back(part);
        }
        for (auto option = problem.first_option[s]; option < problem.first_option[s + 1]; ++option) {
            first_slot_.push_back(slot);
            slot += end - first;
        }
    }
}

const ClassCheck::Found& ClassCheck::find(std::size_t of_class, const std::vector<std::int32_t>& pick) {
    std::vector<std::int32_t> key{static_cast<std::int32_t>(of_class)};
    for (const auto part : parts_[of_class]) key.push_back(pick[service_[part]]);
    const auto [at, is_new] = known_.try_emplace(std::move(key));
    if (is_new) at->second = solve(of_class, pick);
    return at->second;
}

ClassCheck::Uses ClassCheck::uses(std::size_t of_class, std::size_t part, std::size_t promise) const {
    Uses found(rows_[of_class], 0.0);
    for (auto use = index(problem_.first_use[part]); use < index(problem_.first_use[part + 1]); ++use) {
        found[row_place_[index(problem_.use_row[use])]] +=
            problem_.use_residual[use] * problem_.residual[promise] + problem_.use_time[use] * problem_.time[promise];
    }
    return found;
}

/// Every state with every choice, without those that cannot be completed or are beaten in all rows.
std::vector<ClassCheck::State> ClassCheck::extend(const std::vector<State>& before, std::size_t first,
                                                  const std::vector<Uses>& choices, const Uses& later) const {
    std::vector<State> next, kept;
    for (std::size_t from = 0; from < before.size(); ++from) {
        for (std::size_t k = 0; k < choices.size(); ++k) {
            State made{before[from].used, from, static_cast<std::int32_t>(first + k)};
            bool fits = true;
            for (std::size_t row = 0; row < later.size(); ++row) {
                made.used[row] += choices[k][row];
                fits &= made.used[row] + later[row] <= full;
            }
            if (fits) next.push_back(std::move(made));
        }
    }
    std::sort(next.begin(), next.end(), [](const State& a, const State& b) { return a.used < b.used; });
    for (auto& one : next) {
        const bool is_beaten = std::any_of(kept.begin(), kept.end(), [&](const State& other) {
            return std::equal(other.used.begin(), other.used.end(), one.used.begin(),
                              [](double a, double b) { return a <= b + 1e-12; });
        });
        if (!is_beaten) kept.push_back(std::move(one));
        if (kept.size() > most_states) break;
    }
    return kept;
}

ClassCheck::Found ClassCheck::solve(std::size_t of_class, const std::vector<std::int32_t>& pick) {
    const auto& parts = parts_[of_class];
    std::vector<std::size_t> first;
    std::vector<std::vector<Uses>> choices;
    for (const auto part : parts) {
        const auto at = slot(index(pick[service_[part]]), part);
        first.push_back(index(problem_.first_promise[at]));
        choices.emplace_back();
        for (auto promise = first.back(); promise < index(problem_.first_promise[at + 1]); ++promise) {
            choices.back().push_back(uses(of_class, part, promise));
        }
    }
    // Of each part: the least that those after it use of each row.
    std::vector<Uses> later(parts.size() + 1, Uses(rows_[of_class], 0.0));
    for (auto i = parts.size(); i-- > 0;) {
        for (std::size_t row = 0; row < rows_[of_class]; ++row) {
            double least = std::numeric_limits<double>::infinity();
            for (const auto& one : choices[i]) least = std::min(least, one[row]);
            later[i][row] = later[i + 1][row] + least;
        }
    }
    std::vector<std::vector<State>> states{{State{Uses(rows_[of_class], 0.0), 0, 0}}};
    for (std::size_t i = 0; i < parts.size(); ++i) {
        states.push_back(extend(states[i], first[i], choices[i], later[i + 1]));
        if (states.back().size() > most_states) gave_up_ = true;
        if (states.back().empty() || gave_up_) return {};
    }
    Found found{true, std::vector<std::int32_t>(parts.size())};
    std::size_t at = 0;
    for (auto i = parts.size(); i-- > 0;) {
        found.promise[i] = states[i + 1][at].promise;
        at = states[i + 1][at].from;
    }
    return found;
}

}  // namespace gnomon
