#include "engine/cluster/orders.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "engine/index.hpp"

namespace gnomon {
namespace {

/// The first stage of a job that may be served, -1 where there is none.
std::int32_t first_open(ClusterState& state, std::int32_t slot) {
    if (!state.is_served(slot)) return -1;
    for (const auto stage : state.job(slot).ready) {
        if (state.is_open(slot, stage)) return stage;
    }
    return -1;
}

/// Executors that have just come free of a job stay with it, so long as it is under its limit:
/// to move them costs time.
Choice stay(ClusterState& state, std::int32_t limit) {
    const auto slot = state.source();
    if (slot < 0) return {};
    const auto& job = state.job(slot);
    const auto idle = state.idle_of(job.application);
    if (idle == 0 || job.executors >= limit) return {};
    const auto stage = first_open(state, slot);
    return stage < 0 ? Choice{} : Choice{slot, stage, limit, idle};
}

double way_to_end(const ClusterState& state, const OpenStage& candidate) {
    return state.kinds().path[index(state.job(candidate.slot).first_stage + candidate.stage)];
}

}  // namespace

Choice FifoOrder::next(ClusterState& state, Rng&) {
    const auto limit = std::min(per_job_, state.executors());
    if (const auto choice = stay(state, limit); choice.slot >= 0) return choice;
    for (const auto slot : state.active()) {
        if (state.job(slot).executors >= limit) continue;
        const auto stage = first_open(state, slot);
        if (stage >= 0) return {slot, stage, limit};
    }
    return {};
}

void FairOrder::begin(const ClusterState& state) { shared_at_ = state.epoch() - 1; }

/// Shares change only when jobs come or go.
void FairOrder::share_out(const ClusterState& state) {
    if (shared_at_ == state.epoch()) return;
    shared_at_ = state.epoch();
    const auto active = state.active();
    weight_.clear();
    double total = 0.0;
    std::int32_t last = -1;
    for (const auto slot : active) {
        const auto& job = state.job(slot);
        const double own = state.jobs().weight[index(job.job)];
        weight_.push_back(exponent_ == 0.0 ? own : own * std::pow(std::max(job.work, 1.0), exponent_));
        total += weight_.back();
        last = std::max(last, slot);
    }
    share_.resize(index(last + 1));
    for (std::size_t i = 0; i < active.size(); ++i) {
        const double part = state.executors() * weight_[i] / total;
        share_[index(active[i])] = std::max(1, static_cast<std::int32_t>(std::ceil(part - 1e-9)));
    }
}

Choice FairOrder::next(ClusterState& state, Rng&) {
    share_out(state);
    if (const auto source = state.source(); source >= 0) {
        if (const auto choice = stay(state, share_[index(source)]); choice.slot >= 0) return choice;
    }
    for (const auto slot : state.active()) {
        const auto limit = share_[index(slot)];
        if (state.job(slot).executors >= limit) continue;
        const auto stage = first_open(state, slot);
        if (stage >= 0) return {slot, stage, limit};
    }
    return {};
}

Choice ShortestOrder::next(ClusterState& state, Rng&) {
    Choice best;
    double least = std::numeric_limits<double>::infinity();
    for (const auto slot : state.active()) {
        const auto& job = state.job(slot);
        if (job.ready.empty() || job.work_left >= least) continue;
        const auto stage = first_open(state, slot);
        if (stage < 0) continue;
        least = job.work_left;
        best = {slot, stage, state.executors()};
    }
    return best;
}

Choice CriticalPathOrder::next(ClusterState& state, Rng&) {
    Choice best;
    double longest = -1.0;
    for (const auto slot : state.active()) {
        if (!state.is_served(slot)) continue;
        for (const auto stage : state.job(slot).ready) {
            const auto way = way_to_end(state, {slot, stage});
            if (way <= longest || !state.is_open(slot, stage)) continue;
            longest = way;
            best = {slot, stage, state.executors()};
        }
    }
    return best;
}

std::span<const OpenStage> ProbabilisticOrder::gather(ClusterState& state) {
    candidates_.clear();
    chances_.clear();
    offered_ = offer(state);
    if (offered_ <= 0) return candidates_;
    for (const auto slot : state.active()) {
        if (!state.is_served(slot) || state.job(slot).executors >= state.executors()) continue;
        if (!wants_more(state, slot)) continue;
        for (const auto stage : state.job(slot).ready) {
            if (state.is_open(slot, stage)) candidates_.push_back({slot, stage});
        }
    }
    chances_.resize(candidates_.size());
    if (!candidates_.empty()) weigh(state);
    return candidates_;
}

std::size_t ProbabilisticOrder::draw(Rng& rng) const {
    double left = rng.uniform();
    for (std::size_t i = 0; i + 1 < chances_.size(); ++i) {
        left -= chances_[i];
        if (left < 0.0) return i;
    }
    return chances_.size() - 1;
}

Choice ProbabilisticOrder::next(ClusterState& state, Rng& rng) {
    if (gather(state).empty()) return {};
    return serve(state, draw(rng), rng);
}

Choice ProbabilisticOrder::serve(const ClusterState& state, std::size_t drawn, Rng& rng) {
    const auto& candidate = candidates_[drawn];
    return {candidate.slot, candidate.stage, limit(state, drawn, rng), offered_};
}

void PathSoftmaxOrder::weigh(const ClusterState& state) {
    double longest = 1.0;
    for (const auto& candidate : candidates_) longest = std::max(longest, way_to_end(state, candidate));
    double total = 0.0;
    for (std::size_t i = 0; i < candidates_.size(); ++i) {
        chances_[i] = std::exp(sharpness_ * (way_to_end(state, candidates_[i]) / longest - 1.0));
        total += chances_[i];
    }
    for (auto& chance : chances_) chance /= total;
}

std::int32_t PathSoftmaxOrder::limit(const ClusterState& state, std::size_t drawn, Rng&) {
    const auto jobs = static_cast<std::int32_t>(state.active().size());
    const auto share = (state.executors() + jobs - 1) / jobs;
    return std::max(share, state.job(candidates_[drawn].slot).executors + 1);
}

Choice PcapsOrder::next(ClusterState& state, Rng& rng) {
    const auto candidates = inner_->gather(state);
    if (candidates.empty()) return {};
    const auto drawn = inner_->draw(rng);
    const auto& candidate = candidates[drawn];
    if (!state.has_grid() || state.is_due(candidate.slot, candidate.stage)) return inner_->serve(state, drawn, rng);
    const auto chances = inner_->chances();
    const double most = *std::max_element(chances.begin(), chances.end());
    const double importance = chances[drawn] / most;
    const double threshold = pcaps_threshold(importance, gamma_, state.low(), state.high());
    if (state.intensity() > threshold && state.busy() > 0) {
        state.note_held(candidate.slot, candidate.stage, importance, threshold);
        // What the guard wants served does not wait for the draw to fall on it.
        for (std::size_t i = 0; i < candidates.size(); ++i) {
            if (state.is_due(candidates[i].slot, candidates[i].stage)) return inner_->serve(state, i, rng);
        }
        Choice held;
        held.held = true;
        return held;
    }
    auto choice = inner_->serve(state, drawn, rng);
    choice.limit = narrowed(choice.limit, narrowing_, gamma_, state.intensity(), state.low(), state.high());
    return choice;
}

}  // namespace gnomon
