// An application as the simulator looks things up: draws, ranks, and all about a call in one place.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "engine/draw.hpp"
#include "engine/mesh/input.hpp"

namespace gnomon::mesh {

/// A call of a class's tree.
struct CallAbout {
    std::int32_t service, cpu, wait;      // cpu and wait are draws
    std::int32_t first_stage, end_stage;  // its stages
    std::int32_t pair;                    // of its class and service: where its time is counted
    std::int32_t pool;                    // of the caller's replica, -1 without one
    std::int32_t retries;
    std::int64_t timeout;  // -1 without one
    double probability, error_share;
    bool is_queued;
};

struct Tables {
    explicit Tables(const Input& in);

    std::vector<Draw> draws;
    std::vector<CallAbout> calls;
    std::vector<std::pair<std::int32_t, std::int32_t>> pairs;  // class, service
    std::vector<std::int32_t> rank;                            // of each class; 0 is the highest priority
    std::size_t ranks = 1;
    /// Of each service: callee and connections.
    std::vector<std::vector<std::pair<std::int32_t, std::int32_t>>> pools;
};

}  // namespace gnomon::mesh
