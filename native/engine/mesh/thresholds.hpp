// A plan at work: the smallest size of every service that carries a load, at one of the operating
// points that the plan allows. No model is asked, so that a decision takes microseconds.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace gnomon {

/// Services and, side by side for each, their operating points.
struct OperatingPoints {
    // By service.
    std::span<const std::int32_t> first;  // its points are first[s] to first[s + 1]
    std::span<const double> cpu_min;      // of one replica; so `cpu_max`
    std::span<const double> cpu_max;
    std::span<const std::int64_t> replicas_max;
    std::span<const double> visits;  // services x classes: calls of one request
    // By point.
    std::span<const double> limit;       // cores of one replica
    std::span<const double> most;        // that one may grow to
    std::span<const std::int64_t> rank;  // among those of its service, least utilised first
    std::span<const double> load;        // points x classes: calls per second that one replica carried
};

/// What is known of services now. Empty columns: every point is trusted, nothing waits.
struct ServiceLoad {
    std::span<const double> class_rate;
    std::span<const std::int64_t> replicas;
    std::span<const std::int64_t> trusted;  // so many points, least utilised first
    std::span<const double> queue;          // requests that wait, on average
    std::span<const double> usage;          // cores
    std::span<const double> rate;           // calls per second
};

struct ServiceSizes {
    std::vector<double> cpu_limit;
    std::vector<std::int64_t> replicas;
    std::vector<std::uint8_t> is_lacking;  // no point carries the load: the service is at its cap
};

/// A replica with twice the limit and twice the load is no slower: more quota in the same period,
/// less chance that a burst uses it up. So replicas grow up to `most`, and beyond that there are more
/// of them; of equal sizes the one nearest to the replicas that run now is taken. What waits is worked
/// off within a second on top. A service without load gets one replica at `cpu_min`.
ServiceSizes sizes_for(const OperatingPoints& points, const ServiceLoad& now);

/// Requests per second of each class to be ready for: the greatest mean over the last 1, 2, 4, 8, 16 and
/// all windows, each but the last less what chance explains, and a rise on top. So load rises
/// quickly and falls slowly.
/// `rates` is windows x classes, oldest first; `chance` is in standard deviations of a Poisson count.
std::vector<double> load_ahead(std::span<const double> rates, std::size_t classes, double rise, double window_s,
                               double chance);

}  // namespace gnomon
