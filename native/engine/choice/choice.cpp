// Branch and bound over options. The bound is Lagrange's: rows are priced, and every service takes
// what is cheapest to it with the prices, so that a bound costs one pass over the promises. Prices
// follow the subgradient at every node. Options whose bound is too high are dropped, as are those
// that no choice of the other services of a class can complete (`ClassCheck`): the promises of a
// class are few and coarse, and prices alone see a mixture of them.
//
// A first answer comes from short searches under a limit on costs that grows; then the services of
// two classes at a time are chosen anew, the others kept. The whole search then mostly proves.
#include "engine/choice/choice.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "engine/choice/class_check.hpp"
#include "engine/index.hpp"

namespace gnomon {
namespace {

using Numbers = std::vector<double>;

constexpr double never = std::numeric_limits<double>::infinity();
constexpr int steps_at_node = 20, steps_at_start = 100, most_steps_at_root = 3000;
constexpr double stride = 1.5;             // of Polyak's step
constexpr double memory = 0.9;             // of the average of choices, by which we branch
constexpr std::size_t most_combined = 32;  // choices of a class that are tried one by one
constexpr double fine = 1e-4;              // how much better a new answer should be while we improve it

class Search {
public:
    Search(const ChoiceProblem& problem, double gap, std::int64_t most_nodes);
    Choice run();

private:
    [[nodiscard]] std::size_t first(std::size_t s) const { return index(problem_.first_option[s]); }
    [[nodiscard]] std::size_t end(std::size_t s) const { return index(problem_.first_option[s + 1]); }
    [[nodiscard]] bool is_stopped() const { return nodes_ >= limit_ || check_.gave_up(); }
    [[nodiscard]] bool is_leaf() const { return trail_.size() + problem_.services() == problem_.cost.size(); }
    [[nodiscard]] std::vector<std::size_t> open_options(std::size_t s) const;

    double price(const Numbers& prices);
    [[nodiscard]] double squared_slope(const Numbers& prices) const;
    void move(Numbers& prices, double step) const;
    void find_root_prices();

    void drop(std::size_t s, std::size_t option);
    void restore(std::size_t trail);
    void drop_expensive(double bound);
    bool drop_unsupported(std::size_t of_class);

    void visit(const Numbers& from_prices, Numbers average, int steps);
    void branch(const Numbers& prices, const Numbers& average, double bound);
    [[nodiscard]] std::size_t most_open(const Numbers& average) const;
    void try_priced();
    void try_leaf();
    void accept(std::vector<std::int32_t> option, std::vector<std::int32_t> promise, double cost);
    void search_for(std::int64_t nodes, int steps);
    void find_first();
    void improve();

    const ChoiceProblem& problem_;
    ClassCheck check_;
    const double gap_;
    const std::int64_t most_nodes_;

    // Options that are left, and what was dropped.
    std::vector<std::uint8_t> is_open_;
    std::vector<std::size_t> open_count_;
    std::vector<std::pair<std::size_t, std::size_t>> trail_;  // services and options

    // What `price` found.
    Numbers value_;                          // of each option
    std::vector<std::int32_t> best_option_;  // of each service
    std::vector<std::int32_t> best_promise_;
    Numbers used_;  // of each row

    Numbers root_prices_;
    double root_bound_ = -never, dearest_ = 0;
    double margin_ = 0;      // how much cheaper, as a share, the next answer has to be
    double cutoff_ = never;  // what costs as much is of no use
    double lowest_ = never;  // bound of what was dropped
    Choice best_;
    std::int64_t nodes_ = 0, limit_ = 0;
};

Search::Search(const ChoiceProblem& problem, double gap, std::int64_t most_nodes)
    : problem_(problem),
      check_(problem),
      gap_(gap),
      most_nodes_(most_nodes),
      is_open_(problem.cost.size(), 1),
      value_(problem.cost.size()),
      best_option_(problem.services()),
      best_promise_(problem.first_promise.size()),
      used_(problem.row_class.size()),
      root_prices_(problem.row_class.size()) {
    best_.cost = never;
    for (std::size_t s = 0; s < problem.services(); ++s) {
        open_count_.push_back(end(s) - first(s));
        dearest_ += problem.cost[end(s) - 1];
    }
}

/// The bound at these prices, and the choice that has it.
double Search::price(const Numbers& prices) {
    double bound = 0;
    for (const double one : prices) bound -= one;
    std::fill(used_.begin(), used_.end(), 0.0);
    Numbers of_residual, of_time;
    for (std::size_t s = 0; s < problem_.services(); ++s) {
        const auto part = index(problem_.first_part[s]), parts = index(problem_.first_part[s + 1]) - part;
        of_residual.assign(parts, 0.0);
        of_time.assign(parts, 0.0);
        for (std::size_t k = 0; k < parts; ++k) {
            for (auto use = index(problem_.first_use[part + k]); use < index(problem_.first_use[part + k + 1]); ++use) {
                of_residual[k] += problem_.use_residual[use] * prices[index(problem_.use_row[use])];
                of_time[k] += problem_.use_time[use] * prices[index(problem_.use_row[use])];
            }
        }
        double least = never;
        for (auto option = first(s); option < end(s); ++option) {
            if (!is_open_[option]) continue;
            double value = problem_.cost[option];
            auto slot = check_.first_slot(option);
            for (std::size_t k = 0; k < parts; ++k, ++slot) {
                double cheapest = never;
                for (auto q = problem_.first_promise[slot]; q < problem_.first_promise[slot + 1]; ++q) {
                    const double one =
                        of_residual[k] * problem_.residual[index(q)] + of_time[k] * problem_.time[index(q)];
                    if (one < cheapest) cheapest = one, best_promise_[slot] = q;
                }
                value += cheapest;
            }
            value_[option] = value;
            if (value < least) least = value, best_option_[s] = static_cast<std::int32_t>(option);
        }
        bound += least;
        for (std::size_t k = 0; k < parts; ++k) {
            const auto q = index(best_promise_[check_.first_slot(index(best_option_[s])) + k]);
            for (auto use = index(problem_.first_use[part + k]); use < index(problem_.first_use[part + k + 1]); ++use) {
                used_[index(problem_.use_row[use])] +=
                    problem_.use_residual[use] * problem_.residual[q] + problem_.use_time[use] * problem_.time[q];
            }
        }
    }
    return bound;
}

double Search::squared_slope(const Numbers& prices) const {
    double sum = 0;
    for (std::size_t row = 0; row < prices.size(); ++row) {
        const double over = used_[row] - 1;
        if (prices[row] > 0 || over > 0) sum += over * over;
    }
    return sum;
}

void Search::move(Numbers& prices, double step) const {
    for (std::size_t row = 0; row < prices.size(); ++row) {
        prices[row] = std::max(0.0, prices[row] + step * (used_[row] - 1));
    }
}

/// The best bound is not known yet: steps aim at a share above the present one, ever closer.
void Search::find_root_prices() {
    Numbers prices = root_prices_;
    double ahead = 0.3;
    int since = 0;
    for (int step = 0; step < most_steps_at_root && ahead > 1e-5 && root_bound_ <= dearest_; ++step) {
        double bound = price(prices);
        if (bound > root_bound_ + 1e-7 * std::abs(bound)) {
            root_bound_ = bound, root_prices_ = prices, since = 0;
        } else if (++since >= 10) {
            ahead *= 0.7, since = 0, prices = root_prices_;
            bound = price(prices);
        }
        const double slope = squared_slope(prices);
        if (slope < 1e-18) return;
        move(prices, ahead * std::max(std::abs(bound), 1e-3 * dearest_) / slope);
    }
}

std::vector<std::size_t> Search::open_options(std::size_t s) const {
    std::vector<std::size_t> found;
    for (auto option = first(s); option < end(s); ++option) {
        if (is_open_[option]) found.push_back(option);
    }
    return found;
}

void Search::drop(std::size_t s, std::size_t option) {
    is_open_[option] = 0;
    --open_count_[s];
    trail_.emplace_back(s, option);
}

void Search::restore(std::size_t trail) {
    for (; trail_.size() > trail; trail_.pop_back()) {
        is_open_[trail_.back().second] = 1;
        ++open_count_[trail_.back().first];
    }
}

void Search::drop_expensive(double bound) {
    for (std::size_t s = 0; s < problem_.services(); ++s) {
        if (open_count_[s] == 1) continue;
        const double least = value_[index(best_option_[s])];
        for (auto option = first(s); option < end(s); ++option) {
            const double with_it = bound + value_[option] - least;
            if (!is_open_[option] || with_it < cutoff_) continue;
            lowest_ = std::min(lowest_, with_it);
            drop(s, option);
        }
    }
}

/// Of a class with few choices left: options that are in none that keeps it. False if none does.
bool Search::drop_unsupported(std::size_t of_class) {
    std::size_t combined = 1;
    for (const auto part : check_.parts(of_class)) {
        combined *= open_count_[check_.service(part)];
        if (combined > most_combined) return true;
    }
    std::vector<std::vector<std::size_t>> open;
    for (const auto part : check_.parts(of_class)) open.push_back(open_options(check_.service(part)));
    std::vector<std::int32_t> pick(problem_.services());
    std::vector<std::uint8_t> is_supported(problem_.cost.size());
    bool any = false;
    for (std::size_t number = 0; number < combined; ++number) {
        auto rest = number;
        for (std::size_t i = 0; i < open.size(); rest /= open[i++].size()) {
            const auto option = open[i][rest % open[i].size()];
            pick[check_.service(check_.parts(of_class)[i])] = static_cast<std::int32_t>(option);
        }
        if (!check_.find(of_class, pick).is_kept) continue;
        any = true;
        for (const auto part : check_.parts(of_class)) is_supported[index(pick[check_.service(part)])] = 1;
    }
    for (std::size_t i = 0; i < open.size() && any; ++i) {
        for (const auto option : open[i]) {
            if (!is_supported[option]) drop(check_.service(check_.parts(of_class)[i]), option);
        }
    }
    return any;
}

void Search::accept(std::vector<std::int32_t> option, std::vector<std::int32_t> promise, double cost) {
    best_.option = std::move(option);
    best_.promise = std::move(promise);
    best_.cost = cost;
    cutoff_ = std::min(cutoff_, cost * (1 - margin_));
}

/// Takes what has the least value at the present prices, if it keeps every row.
void Search::try_priced() {
    double cost = 0;
    for (const auto option : best_option_) cost += problem_.cost[index(option)];
    if (cost >= cutoff_ || std::any_of(used_.begin(), used_.end(), [](double used) { return used > 1 + 1e-9; })) return;
    std::vector<std::int32_t> promise;
    for (std::size_t part = 0; part < problem_.parts(); ++part) {
        promise.push_back(best_promise_[check_.slot(index(best_option_[check_.service(part)]), part)]);
    }
    accept(best_option_, std::move(promise), cost);
}

/// One option of every service is left.
void Search::try_leaf() {
    std::vector<std::int32_t> pick, promise(problem_.parts());
    double cost = 0;
    for (std::size_t s = 0; s < problem_.services(); ++s) {
        pick.push_back(static_cast<std::int32_t>(open_options(s).front()));
        cost += problem_.cost[index(pick.back())];
    }
    if (cost >= cutoff_) {
        lowest_ = std::min(lowest_, cost);
        return;
    }
    for (std::size_t c = 0; c < check_.classes(); ++c) {
        const auto& found = check_.find(c, pick);
        if (!found.is_kept) return;
        for (std::size_t i = 0; i < found.promise.size(); ++i) promise[check_.parts(c)[i]] = found.promise[i];
    }
    accept(std::move(pick), std::move(promise), cost);
}

void Search::visit(const Numbers& from_prices, Numbers average, int steps) {
    if (is_stopped()) return;
    ++nodes_;
    const auto trail = trail_.size();
    Numbers prices = from_prices, best_prices = from_prices;
    double best_bound = -never, length = stride;
    int since = 0;
    for (int step = 0; step < steps; ++step) {
        const double bound = price(prices);
        if (bound >= cutoff_) {
            lowest_ = std::min(lowest_, bound);
            return restore(trail);
        }
        if (bound > best_bound + 1e-9) best_bound = bound, best_prices = prices, since = 0;
        else if (++since >= 3) length *= 0.5, since = 0;
        drop_expensive(bound);
        if (is_leaf()) {
            try_leaf();
            return restore(trail);
        }
        for (double& share : average) share *= memory;
        for (const auto option : best_option_) average[index(option)] += 1 - memory;
        try_priced();
        const double slope = squared_slope(prices);
        if (slope < 1e-18) break;
        move(prices, length * (cutoff_ - bound) / slope);
    }
    bool is_kept = true;
    for (std::size_t c = 0; c < check_.classes() && is_kept; ++c) is_kept = drop_unsupported(c);
    if (is_kept) branch(best_prices, average, best_bound);
    restore(trail);
}

/// The service whose choice swings most between options.
std::size_t Search::most_open(const Numbers& average) const {
    std::size_t found = problem_.services();
    double most = -1;
    for (std::size_t s = 0; s < problem_.services(); ++s) {
        if (open_count_[s] == 1) continue;
        double share = 0;
        for (const auto option : open_options(s)) share = std::max(share, average[option]);
        if (1 - share > most) most = 1 - share, found = s;
    }
    return found;
}

/// Splits the options of a service, which are in order of cost, where half of the average lies.
void Search::branch(const Numbers& prices, const Numbers& average, double bound) {
    const auto s = most_open(average);
    if (s == problem_.services()) return try_leaf();
    const auto open = open_options(s);
    double all = 0, below = 0, nearest = never, cheaper = 0;
    for (const auto option : open) all += average[option];
    std::size_t cut = 0;
    for (std::size_t i = 0; i + 1 < open.size(); ++i) {
        below += average[open[i]];
        if (std::abs(below - all / 2) < nearest) nearest = std::abs(below - all / 2), cut = i, cheaper = below;
    }
    const bool cheaper_first = cheaper > all / 2;
    for (const bool keep_cheaper : {cheaper_first, !cheaper_first}) {
        if (bound >= cutoff_) {
            lowest_ = std::min(lowest_, bound);
            return;
        }
        const auto trail = trail_.size();
        for (std::size_t i = 0; i < open.size(); ++i) {
            if ((i <= cut) != keep_cheaper) drop(s, open[i]);
        }
        visit(prices, average, steps_at_node);
        restore(trail);
    }
}

void Search::search_for(std::int64_t nodes, int steps) {
    limit_ = std::min(most_nodes_, nodes_ + nodes);
    visit(root_prices_, Numbers(problem_.cost.size(), 0.0), steps);
}

/// Under a low limit a search finds good answers or soon none; under a high one any.
void Search::find_first() {
    const auto nodes = static_cast<std::int64_t>(100 + 8 * problem_.services());
    const double least = 1e-6 * dearest_ + 1e-9;
    for (double ahead = std::max(std::max(gap_, 1e-3) * root_bound_, least);; ahead *= 1.4) {
        cutoff_ = root_bound_ + ahead;
        const bool is_last = cutoff_ > dearest_;
        if (is_last) cutoff_ = dearest_ + least;
        search_for(is_last ? most_nodes_ : nodes, steps_at_start);
        if (!best_.option.empty() || is_last || nodes_ >= most_nodes_ || check_.gave_up()) return;
    }
}

/// Chooses the services of two classes anew, pair by pair, until none gives more.
void Search::improve() {
    std::vector<std::pair<std::size_t, std::size_t>> pairs;
    for (std::size_t a = 0; a < check_.classes(); ++a) {
        for (std::size_t b = 0; b < a; ++b) pairs.emplace_back(a, b);
    }
    std::size_t since = 0;
    for (std::size_t k = 0; since < pairs.size() && best_.cost * (1 - gap_) > root_bound_; ++k) {
        const auto [a, b] = pairs[k % pairs.size()];
        std::vector<std::uint8_t> is_free(problem_.services());
        for (const auto part : check_.parts(a)) is_free[check_.service(part)] = 1;
        for (const auto part : check_.parts(b)) is_free[check_.service(part)] = 1;
        const double before = best_.cost;
        const auto kept = best_.option;
        for (std::size_t s = 0; s < problem_.services(); ++s) {
            for (auto option = first(s); option < end(s) && !is_free[s]; ++option) {
                if (option != index(kept[s])) drop(s, option);
            }
        }
        cutoff_ = best_.cost * (1 - margin_);
        search_for(200, steps_at_node);
        restore(0);
        since = best_.cost < before ? 0 : since + 1;
    }
}

Choice Search::run() {
    find_root_prices();
    if (root_bound_ > dearest_ * (1 + 1e-9) + 1e-9) {
        best_.is_proven = true;  // no answer can cost as much
        return best_;
    }
    margin_ = std::min(gap_, fine);
    find_first();
    best_.is_proven = !is_stopped();
    if (!best_.option.empty()) {
        improve();
        margin_ = gap_;
        cutoff_ = best_.cost * (1 - gap_);
        lowest_ = never;
        if (cutoff_ <= root_bound_) lowest_ = root_bound_;
        else search_for(most_nodes_, steps_at_start);
        best_.is_proven = cutoff_ <= root_bound_ || !is_stopped();
    }
    best_.bound = best_.is_proven ? std::min(lowest_, best_.cost) : root_bound_;
    best_.nodes = nodes_;
    return best_;
}

}  // namespace

Choice choose(const ChoiceProblem& problem, double gap, std::int64_t most_nodes) {
    return Search(problem, gap, most_nodes).run();
}

}  // namespace gnomon
