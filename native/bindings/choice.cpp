#include "engine/choice/choice.hpp"

#include <cmath>

#include "bindings/structs.hpp"
#include "engine/index.hpp"

namespace gnomon::bindings {
namespace {

bool all_at_least_zero(std::span<const double> values) {
    return std::all_of(values.begin(), values.end(), [](double v) { return v >= 0 && std::isfinite(v); });
}

/// Of each option and part of its service there is at least one promise.
bool has_promises(const ChoiceProblem& problem) {
    std::size_t slots = 0;
    for (std::size_t s = 0; s < problem.services(); ++s) {
        slots += index(problem.first_option[s + 1] - problem.first_option[s]) *
                 index(problem.first_part[s + 1] - problem.first_part[s]);
    }
    return starts_ranges(problem.first_promise, slots, problem.residual.size()) &&
           std::adjacent_find(problem.first_promise.begin(), problem.first_promise.end()) ==
               problem.first_promise.end() &&
           problem.residual.size() == problem.time.size() && all_at_least_zero(problem.residual) &&
           all_at_least_zero(problem.time);
}

/// Costs are in order, the cheapest option of a service first.
bool has_options(const ChoiceProblem& problem) {
    for (std::size_t s = 0; s < problem.services(); ++s) {
        const auto first = problem.cost.begin() + problem.first_option[s];
        const auto end = problem.cost.begin() + problem.first_option[s + 1];
        if (first == end || !std::is_sorted(first, end)) return false;
    }
    return all_at_least_zero(problem.cost);
}

bool has_uses(const ChoiceProblem& problem) {
    const auto rows = static_cast<std::int64_t>(problem.row_class.size());
    if (!starts_ranges(problem.first_use, problem.parts(), problem.use_row.size()) ||
        problem.use_row.size() != problem.use_residual.size() || problem.use_row.size() != problem.use_time.size() ||
        !all_within(problem.use_row, 0, rows - 1) || !all_within(problem.row_class, 0, rows - 1) ||
        !all_at_least_zero(problem.use_residual) || !all_at_least_zero(problem.use_time)) {
        return false;
    }
    for (std::size_t part = 0; part < problem.parts(); ++part) {
        if (problem.first_use[part] == problem.first_use[part + 1]) return false;
        for (auto use = problem.first_use[part]; use < problem.first_use[part + 1]; ++use) {
            if (problem.row_class[index(problem.use_row[index(use)])] != problem.part_class[part]) return false;
        }
    }
    return true;
}

void check_problem(const ChoiceProblem& problem) {
    require(!problem.first_option.empty() &&
                starts_ranges(problem.first_option, problem.services(), problem.cost.size()) && has_options(problem),
            "every service needs options with costs, the cheapest first");
    require(starts_ranges(problem.first_part, problem.services(), problem.parts()) && has_uses(problem),
            "every part of a service needs rows of its class");
    require(has_promises(problem), "every option needs promises for every part of its service");
}

}  // namespace

void bind_choice(nb::module_& m) {
    bind_input(m, "ChoiceProblem", "Options of services, what they promise, and the rows that promises use up.",
               &check_problem, required("first_option", &ChoiceProblem::first_option),
               required("cost", &ChoiceProblem::cost), required("first_part", &ChoiceProblem::first_part),
               required("part_class", &ChoiceProblem::part_class), required("first_use", &ChoiceProblem::first_use),
               required("use_row", &ChoiceProblem::use_row), required("use_residual", &ChoiceProblem::use_residual),
               required("use_time", &ChoiceProblem::use_time), required("first_promise", &ChoiceProblem::first_promise),
               required("residual", &ChoiceProblem::residual), required("time", &ChoiceProblem::time),
               required("row_class", &ChoiceProblem::row_class));
    bind_result<Choice>(m, "Choice", "The cheapest options that keep every row.", Column{"option", &Choice::option},
                        Column{"promise", &Choice::promise}, Value{"cost", &Choice::cost},
                        Value{"bound", &Choice::bound}, Value{"nodes", &Choice::nodes},
                        Value{"is_proven", &Choice::is_proven});
    m.def(
        "choose",
        [](const Passed<ChoiceProblem>& problem, double gap, std::int64_t most_nodes) {
            require(gap >= 0 && gap < 1 && most_nodes > 0, "a gap is a share, and there has to be a node");
            nb::gil_scoped_release release;
            return choose(problem, gap, most_nodes);
        },
        nb::arg("problem"), nb::kw_only(), nb::arg("gap"), nb::arg("most_nodes"),
        "Finds the cheapest options, with proof unless it takes too many nodes.");
}

}  // namespace gnomon::bindings
