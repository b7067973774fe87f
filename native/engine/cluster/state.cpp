#include "engine/cluster/state.hpp"

#include <algorithm>

#include "engine/cluster/policy.hpp"
#include "engine/index.hpp"

namespace gnomon {

bool ClusterState::is_admitted(std::int32_t slot, std::int32_t position) {
    auto& job = slots_[index(slot)];
    auto& stage = job.stage[index(position)];
    if (gates_.empty() || past_grid_ || is_due(slot, position)) return true;
    if (stage.admitted_epoch != epoch_) {
        stage.admitted_epoch = epoch_;
        stage.admitted =
            std::all_of(gates_.begin(), gates_.end(), [&](Gate* gate) { return gate->admits(*this, slot, position); });
    }
    if (!stage.admitted) note_held(slot, position, stage.importance, stage.threshold);
    return stage.admitted;
}

std::int32_t ClusterState::limit_for(std::int32_t slot, std::int32_t limit, bool goes_on) const {
    if (past_grid_) return limit;
    for (auto* gate : gates_) {
        if (goes_on && !gate->asks_each_task()) continue;
        limit = std::min(limit, gate->limit(*this, slot, limit));
    }
    return limit;
}

void ClusterState::note_held(std::int32_t slot, std::int32_t position, double importance, double threshold) {
    auto& stage = slots_[index(slot)].stage[index(position)];
    if (stage.held_since < 0) {
        stage.held_since = now_;
        stage.held_intensity = intensity();
        stage.importance = importance;
        stage.threshold = threshold;
    }
    if (stage.hold_began >= 0) return;
    stage.hold_began = now_;
    if (longest_hold_ == never) return;
    wakes_.emplace_back(now_ + longest_hold_, (std::int64_t{job(slot).job} << stage_bits) | position);
}

}  // namespace gnomon
