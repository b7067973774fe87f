#include "engine/cluster/gates.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "engine/cluster/carbon_rules.hpp"
#include "engine/index.hpp"

namespace gnomon {
namespace {

std::size_t steps_after(const ClusterState& state, std::size_t planned_at) { return state.grid_step() - planned_at; }

template <typename Plan>
void make_room(std::vector<Plan>& plan, std::vector<std::size_t>& planned_at, std::int32_t slot) {
    const auto place = index(slot);
    if (plan.size() <= place) {
        plan.resize(place + 1);
        planned_at.resize(place + 1);
    }
}

/// Steps that a job has to itself before it becomes urgent, at most its window.
std::size_t window_of(const ClusterState& state, std::int32_t slot, std::int32_t window) {
    const auto& job = state.job(slot);
    const auto step = state.grid().step;
    auto steps = std::min<std::int64_t>(window, state.grid().horizon);
    if (job.urgent_at != never) {
        steps = std::min(steps, (job.urgent_at - state.now() + step - 1) / step + 1);
    }
    return index(std::max<std::int64_t>(steps, 1));
}

}  // namespace

std::int32_t QuotaGate::quota(const ClusterState& state) {
    return quota_[std::min(state.grid_step(), quota_.size() - 1)];
}

std::int32_t QuotaGate::limit(const ClusterState& state, std::int32_t, std::int32_t limit) {
    if (!narrows_) return limit;
    const auto all = state.executors();
    const auto scaled = (static_cast<std::int64_t>(limit) * quota(state) + all - 1) / all;
    return static_cast<std::int32_t>(std::max<std::int64_t>(scaled, 1));
}

std::int32_t GreenHadoopGate::quota(const ClusterState& state) {
    if (!state.has_grid()) return state.executors();
    const double all = state.executors();
    const double low = state.low(), range = state.high() - low;
    const auto green = [&](double intensity) {
        return range > 0.0 ? std::clamp((low + range - intensity) / range, 0.0, 1.0) : 1.0;
    };
    const auto outlook = state.outlook();
    // Executor-steps of work, and how many steps all-green and full-speed running would take.
    const double work = state.work_left() / static_cast<double>(state.grid().step);
    if (work <= 0.0) return state.executors();
    double done = 0.0;
    std::size_t all_green = 0;
    while (all_green < outlook.size() && done < work) done += all * green(outlook[all_green++]);
    const double full_speed = std::ceil(work / all);
    const auto window = std::max(1.0, std::ceil((1.0 - theta_) * static_cast<double>(all_green) + theta_ * full_speed));
    const auto steps = std::min(static_cast<std::size_t>(window), outlook.size());
    double green_work = 0.0;
    for (std::size_t h = 0; h < steps; ++h) green_work += all * green(outlook[h]);
    const double brown = std::max(0.0, work - green_work) / static_cast<double>(steps);
    const double quota = all * green(state.intensity()) + brown;
    return static_cast<std::int32_t>(std::clamp(quota, 1.0, all));
}

void WindowGate::on_arrival(const ClusterState& state, std::int32_t slot) {
    make_room(plan_, planned_at_, slot);
    auto& plan = plan_[index(slot)];
    planned_at_[index(slot)] = state.grid_step();
    plan.clear();
    if (!state.has_grid()) return;
    const auto outlook = state.outlook();
    const auto needed =
        static_cast<std::size_t>(std::ceil(state.job(slot).way / static_cast<double>(state.grid().step)));
    const auto window = std::max(window_of(state, slot, window_), std::min(needed, outlook.size()));
    const auto length = std::clamp<std::size_t>(needed, 1, window);
    plan.assign(window, 0);
    if (whole_) {
        double sum = std::accumulate(outlook.begin(), outlook.begin() + static_cast<std::ptrdiff_t>(length), 0.0);
        double least = sum;
        std::size_t start = 0;
        for (std::size_t s = 1; s + length <= window; ++s) {
            sum += outlook[s + length - 1] - outlook[s - 1];
            if (sum < least) least = sum, start = s;
        }
        // From there on it runs until it is done.
        std::fill(plan.begin() + static_cast<std::ptrdiff_t>(start), plan.end(), char{1});
        return;
    }
    std::vector<std::size_t> order(window);
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return outlook[a] < outlook[b]; });
    for (std::size_t i = 0; i < length; ++i) plan[order[i]] = 1;
}

bool WindowGate::admits(const ClusterState& state, std::int32_t slot, std::int32_t) {
    const auto& plan = plan_[index(slot)];
    const auto step = steps_after(state, planned_at_[index(slot)]);
    return step >= plan.size() || plan[step];
}

void ScalerGate::on_arrival(const ClusterState& state, std::int32_t slot) {
    make_room(plan_, planned_at_, slot);
    auto& plan = plan_[index(slot)];
    planned_at_[index(slot)] = state.grid_step();
    plan.clear();
    if (!state.has_grid()) return;
    const auto outlook = state.outlook();
    const auto& kinds = state.kinds();
    const auto levels = kinds.levels;
    const auto kind = index(state.job(slot).kind);
    const auto work = kinds.work_at_level.subspan(kind * levels.size(), levels.size());
    const auto window = window_of(state, slot, window_);
    const double step = static_cast<double>(state.grid().step);
    // What a step at each level does of the job: k executors for a step, of the work k need.
    struct Grant {
        double worth;
        std::size_t step;
        std::size_t level;
        double share;
    };
    std::vector<Grant> grants;
    for (std::size_t h = 0; h < window; ++h) {
        double before = 0.0;
        std::int32_t had = 0;
        for (std::size_t l = 0; l < levels.size() && levels[l] <= state.executors(); ++l) {
            const double share = levels[l] * step / work[l];
            const double more = share - before;
            if (more <= 0.0) break;  // more executors do not make it faster
            const double grams = std::max(outlook[h], 1e-9) * (levels[l] - had);
            grants.push_back({more / grams, h, l, more});
            before = share;
            had = levels[l];
        }
    }
    std::stable_sort(grants.begin(), grants.end(), [](const Grant& a, const Grant& b) { return a.worth > b.worth; });
    plan.assign(window, 0);
    double done = 0.0;
    for (const auto& grant : grants) {
        if (done >= 1.0) break;
        done += grant.share;
        plan[grant.step] = std::max(plan[grant.step], levels[grant.level]);
    }
}

std::int32_t ScalerGate::planned(const ClusterState& state, std::int32_t slot) const {
    const auto& plan = plan_[index(slot)];
    const auto step = steps_after(state, planned_at_[index(slot)]);
    return step < plan.size() ? plan[step] : state.executors();
}

bool ScalerGate::admits(const ClusterState& state, std::int32_t slot, std::int32_t) { return planned(state, slot) > 0; }

std::int32_t ScalerGate::limit(const ClusterState& state, std::int32_t slot, std::int32_t limit) {
    return std::min(limit, std::max(1, planned(state, slot)));
}

bool LookAheadGate::admits(const ClusterState& state, std::int32_t slot, std::int32_t stage) {
    if (!state.has_grid()) return true;
    const auto& job = state.job(slot);
    const auto& kinds = state.kinds();
    const auto step = static_cast<double>(state.grid().step);
    const double way = kinds.path[index(job.first_stage + stage)];
    const double queue = state.work_left() / (settings_.spread * state.executors());
    const double needed = std::ceil(settings_.careful * std::max(way, queue) / step);
    const auto outlook = state.outlook();
    const auto most = static_cast<std::int64_t>(outlook.size()) - 1;
    const auto waited = (state.now() - job.arrival + state.grid().step - 1) / state.grid().step;
    auto left = settings_.window - waited;
    if (job.urgent_at != never) left = std::min(left, (job.urgent_at - state.now()) / state.grid().step);
    left = std::clamp<std::int64_t>(left, 0, most);
    return runs_now(state.intensity(), outlook.subspan(1, index(left)), needed, settings_.margin);
}

std::int32_t LookAheadGate::limit(const ClusterState& state, std::int32_t slot, std::int32_t limit) {
    if (width_.empty()) return limit;
    return std::min(limit, width_[index(state.job(slot).kind)]);
}

}  // namespace gnomon
