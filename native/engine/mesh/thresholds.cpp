#include "engine/mesh/thresholds.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "engine/index.hpp"

namespace gnomon {
namespace {

constexpr double infinite = std::numeric_limits<double>::infinity();
constexpr double slack = 1e-9;  // of counts that rounding made a little too large
constexpr double drain_s = 1.0;
constexpr std::array<std::size_t, 5> spans{1, 2, 4, 8, 16};

struct Size {
    double count;
    double limit;
};

/// Replicas of a point that a load needs, with a fraction; infinite for a class it was not seen with.
double times_needed(const OperatingPoints& points, std::span<const double> rate, std::size_t service,
                    std::size_t point) {
    double needed = 0.0;
    for (std::size_t c = 0; c < rate.size(); ++c) {
        const double calls = points.visits[service * rate.size() + c] * rate[c];
        if (calls <= 0) continue;
        const double known = points.load[point * rate.size() + c];
        needed = std::max(needed, known > 0 ? calls / known : infinite);
    }
    return needed;
}

/// The smallest size that is at least as good as a point; a count of 0 if there is none.
Size size_at(const OperatingPoints& points, std::size_t service, std::size_t point, double needed, double running) {
    const double fewest = std::max(std::ceil(needed * points.limit[point] / points.most[point] - slack), 1.0);
    const auto greatest = static_cast<double>(points.replicas_max[service]);
    if (!(fewest <= greatest)) return {0.0, 0.0};
    // More replicas than the load needs would each be larger than the point for nothing.
    const double useful = std::min(std::max(fewest, std::floor(needed + slack)), greatest);
    const double count = std::min(std::max(running, fewest), useful);
    const double limit = points.limit[point] * std::max(needed / count, 1.0);
    return {count, std::min(std::max(limit, points.cpu_min[service]), points.most[point])};
}

double to_drain(const ServiceLoad& now, std::size_t service) {
    if (now.queue.empty() || !(now.queue[service] > 1) || !(now.rate[service] > 0)) return 0.0;
    return now.queue[service] * now.usage[service] / now.rate[service] / drain_s;
}

}  // namespace

ServiceSizes sizes_for(const OperatingPoints& points, const ServiceLoad& now) {
    const std::size_t services = points.cpu_min.size();
    ServiceSizes found{std::vector<double>(services), std::vector<std::int64_t>(services),
                       std::vector<std::uint8_t>(services)};
    for (std::size_t s = 0; s < services; ++s) {
        const std::size_t classes = now.class_rate.size();
        double calls = 0.0;
        for (std::size_t c = 0; c < classes; ++c) calls += points.visits[s * classes + c] * now.class_rate[c];
        Size best{1.0, points.cpu_min[s]};
        if (calls > 0) {
            best = {0.0, infinite};
            const auto running = static_cast<double>(std::max<std::int64_t>(now.replicas[s], 1));
            for (std::size_t p = index(points.first[s]); p < index(points.first[s + 1]); ++p) {
                if (!now.trusted.empty() && points.rank[p] >= now.trusted[s]) continue;
                const Size one = size_at(points, s, p, times_needed(points, now.class_rate, s, p), running);
                if (one.count > 0 && (best.count == 0 || one.count * one.limit < best.count * best.limit)) best = one;
            }
            if (best.count == 0) {
                found.is_lacking[s] = 1;
                best = {static_cast<double>(points.replicas_max[s]), points.cpu_max[s]};
            }
        }
        const double wanted = std::min(best.limit + to_drain(now, s) / best.count, points.cpu_max[s]);
        found.cpu_limit[s] = std::round(wanted * 1e4) / 1e4;
        found.replicas[s] = static_cast<std::int64_t>(best.count);
    }
    return found;
}

std::vector<double> load_ahead(std::span<const double> rates, std::size_t classes, double rise, double window_s,
                               double chance) {
    const std::size_t windows = rates.size() / classes;
    std::vector<double> ahead(classes);
    for (std::size_t c = 0; c < classes; ++c) {
        double sum = 0.0, level = 0.0;
        std::size_t next = 0;
        for (std::size_t back = 1; back <= windows; ++back) {
            sum += rates[(windows - back) * classes + c];
            if (next == spans.size() || back < spans[next]) continue;
            ++next;
            const auto count = static_cast<double>(back);
            const double mean = sum / count;
            level = std::max(level, mean - chance * std::sqrt(mean / (count * window_s)));
        }
        ahead[c] = std::max(level, sum / static_cast<double>(windows)) * (1.0 + rise);
    }
    return ahead;
}

}  // namespace gnomon
