// Plays one graph many times, each time with other durations, and keeps only when it ended.
//
// The tasks are put into an order in which each comes after what it waits for; that order does not
// depend on durations, so it is found once. Eight samples then go through the graph together, a
// row of eight ends a task. Times are whole numbers of nanoseconds held in doubles: exact below
// 2^53, and the only way to take eight maxima at once on any x86-64.
//
// A graph with run-time waits has no such order: each sample is then a replay of its own.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/graph.hpp"

namespace gnomon {

struct Stretch {
    std::span<const std::int32_t> cell;  // per task: which factor of a sample stretches it
    std::span<const double> factor;      // samples x cells
    std::int64_t cells = 0;
    std::span<const std::int32_t> mark;  // per task: which end it counts towards; empty: the first
    std::int64_t marks = 1;
    double noise = 0.0;      // deviation of the logarithm of each task's own factor
    std::uint64_t seed = 0;  // of the noise; sample i draws from stream first + i
    std::uint64_t first = 0;
};

/// Latest end of the tasks of each mark, samples x marks; empty when the graph cannot be played.
/// Stretched durations and their sums must stay below 2^51.
std::vector<std::int64_t> replay_samples(const GraphView& graph, const Stretch& stretch);

}  // namespace gnomon
