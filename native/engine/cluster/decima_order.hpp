// Decima as an order: its network over the stages of the cluster, and what it saw for training.
#pragma once

#include <vector>

#include "engine/cluster/orders.hpp"
#include "engine/decima/network.hpp"

namespace gnomon {

/// Decisions as they were made, one after the other: what `DecimaView` held, and what was drawn.
/// Of decision d: jobs from `first_job[d]`, nodes from `first_node[d]`, edges from `first_edge[d]`,
/// candidates from `first_ready[d]` up to those of d + 1. Numbers of nodes count within a decision.
struct DecimaRecord {
    std::vector<std::int64_t> first_job{0}, first_node{0}, first_edge{0}, first_ready{0};
    std::vector<std::int32_t> job_nodes;  // how many nodes each job has
    std::vector<float> job_executors;
    std::vector<float> work_ms, tasks;
    std::vector<std::int32_t> height;
    std::vector<std::int32_t> edge_parent, edge_child;
    std::vector<std::int32_t> ready;
    std::vector<std::int32_t> source_job;
    std::vector<float> free_executors;
    std::vector<std::int32_t> chosen, job, limit, lowest, highest;  // chosen: place in `ready`
    std::vector<std::int64_t> time;
};

class DecimaOrder final : public ProbabilisticOrder {
public:
    /// `can_have_enough`: a limit may be no more than a job holds. It then gets none until it holds
    /// fewer than that, a stage is done, or a job comes or goes; and executors that are idle because
    /// their job has nothing to start before another of its stages is done stay with it: to come
    /// back would cost more than they could do elsewhere meanwhile. Otherwise, as in the paper, a
    /// limit is always more than a job holds and all idle executors have to go somewhere.
    explicit DecimaOrder(std::span<const float> parameters, bool can_have_enough = false, bool records = false)
        : network_(parameters), can_have_enough_(can_have_enough), records_(records) {}
    void begin(const ClusterState&) override {
        heights_.clear();
        enough_.clear();
    }
    Choice next(ClusterState& state, Rng& rng) override;
    [[nodiscard]] bool keeps_idle(std::int32_t application) const override;
    [[nodiscard]] const DecimaRecord& record() const { return record_; }

protected:
    std::int32_t limit(const ClusterState& state, std::size_t drawn, Rng& rng) override;
    [[nodiscard]] std::int32_t offer(const ClusterState& state) override;
    [[nodiscard]] bool wants_more(const ClusterState& state, std::int32_t slot) const override;
    void weigh(const ClusterState& state) override;

private:
    /// When a job was found to have enough.
    struct Enough {
        std::int32_t job = -1, limit = 0;
        std::int64_t moment = -1;
    };

    /// Idle executors of an application that an offer left out.
    struct Kept {
        std::int64_t offer = 0;  // which one
        std::int32_t executors = 0;
    };

    static std::int64_t moment(const ClusterState& state);
    void look(const ClusterState& state);
    void write_down(const ClusterState& state, std::size_t drawn, std::int32_t limit);
    void find_heights(const ClusterState& state);

    Decima network_;
    bool can_have_enough_;
    bool records_;
    std::vector<Enough> enough_;  // by slot
    std::vector<Kept> kept_;      // by application
    std::int64_t offers_ = 0;
    DecimaRecord record_;
    std::vector<std::int32_t> heights_;  // of each stage of each kind
    std::vector<std::int32_t> job_first_, child_first_, child_, height_, ready_, node_of_, job_of_slot_;
    std::vector<float> job_executors_, work_ms_, tasks_;
    std::int32_t source_ = -1;
    float free_ = 0.0F;
    std::int32_t lowest_ = 1;
};

}  // namespace gnomon
