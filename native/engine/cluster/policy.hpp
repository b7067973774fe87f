// What a policy is made of: an order that says which stage is next, gates that forbid it for now.
#pragma once

#include <cstdint>

#include "engine/cluster/state.hpp"
#include "engine/rng.hpp"

namespace gnomon {

/// One stage that could be given executors.
struct OpenStage {
    std::int32_t slot = -1;
    std::int32_t stage = -1;
};

/// What an order answers: up to `most` executors for a stage, its job never over `limit`.
struct Choice {
    std::int32_t slot = -1;  // -1: nothing now
    std::int32_t stage = -1;
    std::int32_t limit = 0;
    std::int32_t most = INT32_MAX;
    bool held = false;  // with slot -1: something could have run and was held
};

/// Which stage is next.
class Order {
public:
    virtual ~Order() = default;
    /// Forgets earlier runs.
    virtual void begin(const ClusterState&) {}
    virtual Choice next(ClusterState& state, Rng& rng) = 0;
    /// Whether executors stay with their application until it is done.
    [[nodiscard]] virtual bool keeps_executors() const { return false; }
    /// Whether executors that an application left idle stay with it for now.
    [[nodiscard]] virtual bool keeps_idle(std::int32_t) const { return false; }
};

/// What the grid forbids for now.
class Gate {
public:
    virtual ~Gate() = default;
    virtual void begin(const ClusterState&) {}
    virtual void at_step(const ClusterState&) {}
    virtual void on_arrival(const ClusterState&, std::int32_t) {}
    virtual void on_finish(const ClusterState&, std::int32_t) {}
    [[nodiscard]] virtual std::int32_t quota(const ClusterState& state) { return state.executors(); }
    [[nodiscard]] virtual bool admits(const ClusterState&, std::int32_t, std::int32_t) { return true; }
    [[nodiscard]] virtual std::int32_t limit(const ClusterState&, std::int32_t, std::int32_t limit) { return limit; }
    /// Whether its quota is of executors that applications hold, idle or not, in place of busy ones.
    [[nodiscard]] virtual bool counts_held() const { return false; }
    /// Whether its quota and limit hold for every task that starts. If not, executors are given out
    /// while fewer are busy than the quota says, however many a decision gives; and they go on with
    /// their stage until it has no task to start.
    [[nodiscard]] virtual bool asks_each_task() const { return true; }
};

}  // namespace gnomon
