// What both replays share: the rule that decides which task counts as the cause of a late start.
#pragma once

#include "engine/index.hpp"
#include "engine/replay/replay.hpp"

namespace gnomon {

/// Keeps the latest finisher as the cause; among equals the lowest index, so that the answer does
/// not depend on the order in which tasks are visited.
template <bool Causes>
void hold_back_by_edge(Replay& out, Task task, std::int64_t until, Task by) {
    std::int64_t& start = out.start[index(task)];
    if constexpr (Causes) {
        const bool tie = until == start && out.reason[index(task)] == Reason::edge;
        if (until > start || (tie && by < out.cause[index(task)])) {
            out.cause[index(task)] = by;
            out.reason[index(task)] = Reason::edge;
        }
    }
    if (until > start) start = until;
}

/// A lane that frees at the same instant as the last edge is satisfied counts as the cause: the
/// task could not have started earlier even without the edge.
template <bool Causes>
void hold_back_by_lane(Replay& out, Task task, std::int64_t until, Task by) {
    std::int64_t& start = out.start[index(task)];
    if (until < start || until == 0) return;
    start = until;
    if constexpr (Causes) {
        out.cause[index(task)] = by;
        out.reason[index(task)] = Reason::lane;
    }
}

/// Members of each rendezvous group, CSR.
struct Groups {
    std::vector<std::int32_t> offset;
    std::vector<Task> member;

    explicit Groups(std::span<const std::int32_t> group);

    [[nodiscard]] std::size_t size() const { return offset.size() - 1; }
    [[nodiscard]] std::span<const Task> of(std::int64_t g) const {
        return std::span(member).subspan(index(offset[index(g)]), index(offset[index(g) + 1] - offset[index(g)]));
    }
};

/// The member that became ready last; the lowest index among equals.
Task latest_of(const Replay& out, std::span<const Task> members);

}  // namespace gnomon
