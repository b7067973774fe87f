#include "engine/cluster/decima_order.hpp"

#include <algorithm>
#include <utility>

#include "engine/index.hpp"

namespace gnomon {

void DecimaOrder::find_heights(const ClusterState& state) {
    const auto& kinds = state.kinds();
    heights_.assign(kinds.tasks.size(), 0);
    for (auto s = kinds.tasks.size(); s-- > 0;) {  // children come after their parents
        for (auto p = kinds.first_parent[s]; p < kinds.first_parent[s + 1]; ++p) {
            auto& height = heights_[index(kinds.parents[index(p)])];
            height = std::max(height, heights_[s] + 1);
        }
    }
}

/// Unfinished stages of all jobs, as the network wants them. All children of an unfinished stage
/// are unfinished, so that edges and heights are those of the kind.
void DecimaOrder::look(const ClusterState& state) {
    if (heights_.empty()) find_heights(state);
    job_first_.assign(1, 0);
    child_first_.assign(1, 0);
    child_.clear();
    height_.clear();
    ready_.clear();
    work_ms_.clear();
    tasks_.clear();
    job_executors_.clear();
    source_ = -1;
    free_ = static_cast<float>(offered_);
    auto candidate = candidates_.begin();
    for (const auto slot : state.active()) {
        const auto& job = state.job(slot);
        if (slot == state.source()) source_ = static_cast<std::int32_t>(job_executors_.size());
        if (job_of_slot_.size() <= index(slot)) job_of_slot_.resize(index(slot) + 1);
        job_of_slot_[index(slot)] = static_cast<std::int32_t>(job_executors_.size());
        job_executors_.push_back(static_cast<float>(job.executors));
        node_of_.assign(job.stage.size(), -1);
        auto node = job_first_.back();
        for (std::size_t s = 0; s < job.stage.size(); ++s) {
            if (job.stage[s].unfinished > 0) node_of_[s] = node++;
        }
        for (std::size_t s = 0; s < job.stage.size(); ++s) {
            const auto& stage = job.stage[s];
            if (stage.unfinished == 0) continue;
            const auto global = job.first_stage + static_cast<std::int64_t>(s);
            const auto left = static_cast<double>(stage.unstarted);
            tasks_.push_back(static_cast<float>(left));
            work_ms_.push_back(static_cast<float>(left * state.kinds().typical[index(global)] * 1e-6));
            height_.push_back(heights_[index(global)]);
            for (const auto child : state.children(global)) child_.push_back(node_of_[index(child)]);
            child_first_.push_back(static_cast<std::int32_t>(child_.size()));
        }
        job_first_.push_back(node);
        // OpenStages are in the order of jobs and stages too.
        for (; candidate != candidates_.end() && candidate->slot == slot; ++candidate) {
            ready_.push_back(node_of_[index(candidate->stage)]);
        }
    }
}

/// Changes whenever a job comes or goes or a stage is done.
std::int64_t DecimaOrder::moment(const ClusterState& state) {
    std::int64_t sum = static_cast<std::int64_t>(state.job(state.active().back()).job) << 32;
    for (const auto slot : state.active()) sum += state.job(slot).stages_left + 1;
    return sum;
}

/// Jobs may share an application: what is idle there is kept only if none of them could use it.
/// Nothing is kept from a job that may be held no longer.
std::int32_t DecimaOrder::offer(const ClusterState& state) {
    auto offered = state.idle();
    if (!can_have_enough_) return offered;
    ++offers_;
    for (const auto slot : state.active()) {
        const auto& job = state.job(slot);
        if (!job.ready.empty() && job.is_pressing()) {
            ++offers_;
            return state.idle();
        }
        const auto application = index(job.application);
        if (kept_.size() <= application) kept_.resize(application + 1);
        auto& kept = kept_[application];
        if (kept.offer != offers_) {
            kept = {offers_, state.idle_of(job.application)};
            offered -= kept.executors;
        }
        if (!job.ready.empty()) offered += std::exchange(kept.executors, 0);
    }
    return offered;
}

bool DecimaOrder::keeps_idle(std::int32_t application) const {
    const auto place = index(application);
    return place < kept_.size() && kept_[place].offer == offers_ && kept_[place].executors > 0;
}

bool DecimaOrder::wants_more(const ClusterState& state, std::int32_t slot) const {
    if (index(slot) >= enough_.size() || state.busy() == 0) return true;
    const auto& then = enough_[index(slot)];
    const auto& job = state.job(slot);
    return job.is_pressing() || then.job != job.job || job.executors < then.limit || moment(state) != then.moment;
}

void DecimaOrder::weigh(const ClusterState& state) {
    look(state);
    const auto chances = network_.stage_probabilities(
        {job_first_, job_executors_, source_, free_, work_ms_, tasks_, child_first_, child_, height_, ready_});
    std::copy(chances.begin(), chances.end(), chances_.begin());
}

std::int32_t DecimaOrder::limit(const ClusterState& state, std::size_t drawn, Rng& rng) {
    const auto slot = candidates_[drawn].slot;
    lowest_ = can_have_enough_ ? 1 : state.job(slot).executors + 1;
    const auto chances = network_.limit_probabilities(job_of_slot_[index(slot)], lowest_, state.executors());
    double left = rng.uniform();
    std::int32_t limit = state.executors();
    for (std::size_t i = 0; i < chances.size(); ++i) {
        left -= static_cast<double>(chances[i]);
        if (left < 0.0) {
            limit = lowest_ + static_cast<std::int32_t>(i);
            break;
        }
    }
    if (limit <= state.job(slot).executors) {
        if (enough_.size() <= index(slot)) enough_.resize(index(slot) + 1);
        enough_[index(slot)] = {state.job(slot).job, limit, moment(state)};
    }
    return limit;
}

Choice DecimaOrder::next(ClusterState& state, Rng& rng) {
    if (gather(state).empty()) return {};
    const auto drawn = draw(rng);
    const auto choice = serve(state, drawn, rng);
    if (records_) write_down(state, drawn, choice.limit);
    return choice;
}

void DecimaOrder::write_down(const ClusterState& state, std::size_t drawn, std::int32_t limit) {
    auto& r = record_;
    const auto append = [](auto& to, const auto& from) { to.insert(to.end(), from.begin(), from.end()); };
    for (std::size_t j = 0; j + 1 < job_first_.size(); ++j) r.job_nodes.push_back(job_first_[j + 1] - job_first_[j]);
    append(r.job_executors, job_executors_);
    append(r.work_ms, work_ms_);
    append(r.tasks, tasks_);
    append(r.height, height_);
    append(r.ready, ready_);
    for (std::size_t n = 0; n + 1 < child_first_.size(); ++n) {
        for (auto c = child_first_[n]; c < child_first_[n + 1]; ++c) {
            r.edge_parent.push_back(static_cast<std::int32_t>(n));
            r.edge_child.push_back(child_[index(c)]);
        }
    }
    r.first_job.push_back(static_cast<std::int64_t>(r.job_nodes.size()));
    r.first_node.push_back(static_cast<std::int64_t>(r.tasks.size()));
    r.first_edge.push_back(static_cast<std::int64_t>(r.edge_child.size()));
    r.first_ready.push_back(static_cast<std::int64_t>(r.ready.size()));
    r.source_job.push_back(source_);
    r.free_executors.push_back(free_);
    r.chosen.push_back(static_cast<std::int32_t>(drawn));
    r.job.push_back(job_of_slot_[index(candidates_[drawn].slot)]);
    r.limit.push_back(limit);
    r.lowest.push_back(lowest_);
    r.highest.push_back(state.executors());
    r.time.push_back(state.now());
}

}  // namespace gnomon
