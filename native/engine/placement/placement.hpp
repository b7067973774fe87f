// Jobs onto the slots of a mixed fleet: each job goes to the first candidate, in an order of
// preference, that has a server with room; inside a candidate to the fullest such server. Jobs that
// fit nowhere wait in line. A candidate is a group of equal servers, or the part of it that is
// awake or asleep, so that an order can say 'wake the small one before you use the hungry one'.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace gnomon {

/// No time is farther from zero, so that sums and differences of two fit.
inline constexpr std::int64_t farthest = std::int64_t{1} << 62;

enum class Part : std::uint8_t { any, awake, asleep };

/// Candidates, the best first.
struct Preference {
    std::span<const std::int32_t> group;
    std::span<const std::uint8_t> part;  // numbers of `Part`

    [[nodiscard]] std::size_t size() const { return group.size(); }
    [[nodiscard]] Part part_of(std::size_t candidate) const { return static_cast<Part>(part[candidate]); }
};

struct ServerGroups {
    std::span<const std::int32_t> servers;
    std::span<const std::int32_t> slots;  // of each server
    std::span<const double> speed;        // a job's work is divided by it
};

/// In order of release.
struct PlacementJobs {
    std::span<const std::int64_t> release;
    std::span<const std::int32_t> slots;
    std::span<const std::int64_t> work;
};

struct PlacedJobs {
    std::vector<std::int64_t> start;
    std::vector<std::int64_t> end;
    std::vector<std::int32_t> group;
    std::vector<std::int32_t> server;  // inside its group
    // Where empty servers sleep: every stretch of being awake.
    std::vector<std::int32_t> awake_group;
    std::vector<std::int64_t> awake_from;
    std::vector<std::int64_t> awake_until;
};

/// Every job has to fit on an empty server of some candidate.
/// Throws std::invalid_argument where a job would end beyond `farthest`.
PlacedJobs place(const ServerGroups& groups, const Preference& order, const PlacementJobs& jobs,
                 bool empty_servers_sleep);

/// For each job the start between `earliest` and `latest` whose stretch of `length` has the least
/// area under a step function, the earliest of equals: `area[i]` is the area up to `time[i]`.
/// The optimum begins or ends at a step, or at one of the two bounds.
std::vector<std::int64_t> cleanest_starts(std::span<const std::int64_t> time, std::span<const double> area,
                                          std::span<const std::int64_t> earliest, std::span<const std::int64_t> latest,
                                          std::span<const std::int64_t> length);

}  // namespace gnomon
