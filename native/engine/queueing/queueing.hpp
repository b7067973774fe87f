// Jobs that queue for a number of equal servers: the smallest simulator, first user of the event
// queue and the random streams, and the building brick of service models.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace gnomon {

enum class Discipline : std::uint8_t { fifo, lifo, shortest, random, custom };

struct Served {
    std::vector<std::int64_t> start;
    std::vector<std::int64_t> end;
    std::vector<std::int32_t> server;
};

/// Chooses among waiting jobs (given by index, in order of arrival): a position, or ~t (negative)
/// to leave the server idle until time t, the next arrival or the next departure, whichever comes
/// first. ~0, which is -1, names no time: the past cannot come.
using Choose = std::function<std::int64_t(std::int64_t now, std::span<const std::int64_t> waiting)>;

Served serve(std::span<const std::int64_t> arrival, std::span<const std::int64_t> size, std::int32_t servers,
             Discipline discipline, std::uint64_t seed, const Choose& choose);

/// Arrival times of a Poisson process and exponential sizes, each from its own stream.
std::vector<std::int64_t> poisson_arrivals(std::int64_t count, double mean_gap_ns, std::uint64_t seed);
std::vector<std::int64_t> exponential_sizes(std::int64_t count, double mean_ns, std::uint64_t seed);

}  // namespace gnomon
