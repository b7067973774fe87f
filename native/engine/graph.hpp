// A view of a work graph: tasks on in-order lanes, edges in CSR by source. Owns nothing.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/index.hpp"

namespace gnomon {

using Task = std::int32_t;

struct GraphView {
    std::span<const std::int32_t> lane;         // a lane runs its tasks one by one, by index
    std::span<const std::int64_t> duration;     // nanoseconds, never negative
    std::span<const std::int64_t> edge_offset;  // tasks + 1
    std::span<const std::int32_t> edge_target;
    std::span<const std::uint8_t> edge_kind;  // as long as edge_target
    std::int32_t lanes = 0;

    // Optional; empty when the graph has none.
    std::span<const std::int32_t> group;      // rendezvous group of each task, -1 for none
    std::span<const std::int32_t> wait_task;  // run-time waits, sorted by task:
    std::span<const std::int32_t> wait_lane;  //   wait_task[i] waits for what wait_lane[i] holds
    int issue_kind = -1;                      // edge kind that puts a task onto its lane's queue

    [[nodiscard]] std::int64_t tasks() const { return static_cast<std::int64_t>(lane.size()); }

    [[nodiscard]] std::span<const std::int32_t> successors(std::int64_t task) const {
        const auto begin = index(edge_offset[index(task)]);
        const auto end = index(edge_offset[index(task) + 1]);
        return edge_target.subspan(begin, end - begin);
    }
};

/// The next task of the same lane, -1 at its end.
std::vector<Task> next_on_lane(const GraphView& graph);

/// True when every edge points forward, so that the index order is a topological one.
bool is_forward(const GraphView& graph);

/// One cycle through edges and lane order, as the tasks along it; empty when there is none.
std::vector<Task> first_cycle(const GraphView& graph);

}  // namespace gnomon
