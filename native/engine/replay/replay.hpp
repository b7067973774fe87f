// Plays a work graph: when does each task start and end, and what made it wait.
//
// Rules
//  - A lane runs its tasks in index order, one at a time.
//  - A task is ready when its lane is free and the sources of all its edges have ended.
//  - The members of a rendezvous group start together, when the last of them is ready.
//  - A task with run-time waits starts when ready, then waits on each named lane for the last
//    task that had been issued to it by then (issued: the sources of its issue edges have ended),
//    and ends `duration` after the last of those has ended. Such a task is in no group.
//  - A task that uses a resource starts once its demand fits, first come first served; a group
//    asks for the sum of its members' demands at once, so partial holding cannot deadlock.
//  - With slow-down, a task of kind a progresses at 1 / max(slow[a][b]) over the kinds b that run
//    beside it on the same device.
//
// At one instant: first everything that ends, then everything that can start (by index), until
// nothing more happens; only then are the run-time waits of that instant resolved. The order of
// pushing never matters, so the answer depends on the graph alone.
//
// Graphs with none of waits, limits or slow-down need no clock: one pass in topological order.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "engine/graph.hpp"

namespace gnomon {

struct Limits {
    std::span<const std::int32_t> resource;  // per task, -1 for none
    std::span<const std::int64_t> demand;    // per task; empty means 1 each
    std::span<const std::int64_t> capacity;  // per resource
};

struct SlowDown {
    std::span<const std::uint8_t> kind;    // per task
    std::span<const std::int32_t> device;  // per task; empty means one device
    std::span<const double> factor;        // kinds x kinds, row: who is slowed
    std::int32_t kinds = 0;
};

enum class Reason : std::uint8_t { none, lane, edge, rendezvous, wait, resource };

struct Replay {
    std::vector<std::int64_t> start;
    std::vector<std::int64_t> end;    // empty when every end is start + duration
    std::vector<std::int32_t> cause;  // the task that held this one back longest, -1 for none
    std::vector<Reason> reason;       // how; both empty unless asked for
    std::int64_t makespan = 0;
    std::int64_t finished = 0;  // tasks played; less than all when stuck
    std::int64_t stuck_at = 0;
    std::vector<Task> stuck;  // ready-but-waiting or never-ready tasks, the first few
    std::string method;       // "forward", "worklist" or "events"
};

Replay replay(const GraphView& graph, const Limits* limits, const SlowDown* slow, bool causes);

}  // namespace gnomon
