// The cheapest option of every service under bounds that couple them, with proof.
//
// A service has parts, one for each class of requests that passes it. Whoever picks an option also
// picks one of its promises for every part: a residual and a time. Promises use up rows (the
// residuals and the paths of a class), and every row has 1 to give.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace gnomon {

/// Arrays named `first_*` have one more entry, the end.
struct ChoiceProblem {
    std::span<const std::int32_t> first_option;  // of each service
    std::span<const double> cost;                // of each option, at least 0; of a service the cheapest first
    std::span<const std::int32_t> first_part;    // of each service
    std::span<const std::int32_t> part_class;
    std::span<const std::int32_t> first_use;  // of each part
    std::span<const std::int32_t> use_row;    // of the part's class
    std::span<const double> use_residual;     // of that row, by each unit of a promise's residual
    std::span<const double> use_time;
    std::span<const std::int32_t> first_promise;  // of each option and part of its service; at least one
    std::span<const double> residual;             // of each promise
    std::span<const double> time;
    std::span<const std::int32_t> row_class;

    [[nodiscard]] std::size_t services() const { return first_option.size() - 1; }
    [[nodiscard]] std::size_t parts() const { return part_class.size(); }
};

struct Choice {
    std::vector<std::int32_t> option;   // of each service; empty without an answer
    std::vector<std::int32_t> promise;  // of each part
    double cost = 0;
    double bound = 0;  // no answer costs less
    std::int64_t nodes = 0;
    bool is_proven = false;  // the answer is within the gap, or there is none
};

/// Stops without proof after `most_nodes`, or where a class has too many paths to compare.
Choice choose(const ChoiceProblem& problem, double gap, std::int64_t most_nodes);

}  // namespace gnomon
