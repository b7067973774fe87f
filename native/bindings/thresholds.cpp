#include "engine/mesh/thresholds.hpp"

#include "bindings/structs.hpp"

namespace gnomon::bindings {
namespace {

void check_points(const OperatingPoints& points) {
    const std::size_t services = points.cpu_min.size(), count = points.limit.size();
    require(points.cpu_max.size() == services && points.replicas_max.size() == services &&
                starts_ranges(points.first, services, count) && all_within(points.replicas_max, 1, 1 << 30),
            "every service needs points, bounds and at least one replica");
    require(points.most.size() == count && points.rank.size() == count, "every point needs a limit and a rank");
    require(services > 0 && points.visits.size() % services == 0 &&
                points.load.size() * services == points.visits.size() * count,
            "visits are services x classes, loads points x classes");
    require(std::all_of(points.most.begin(), points.most.end(), [](double most) { return most > 0; }),
            "a replica needs a limit above zero");
}

void check_load(const ServiceLoad& now) {
    require(now.queue.size() == now.usage.size() && now.queue.size() == now.rate.size(),
            "what waits comes with usage and rate");
}

}  // namespace

void bind_thresholds(nb::module_& m) {
    bind_input(m, "OperatingPoints", "Points that a plan allows, service by service.", &check_points,
               required("first", &OperatingPoints::first), required("cpu_min", &OperatingPoints::cpu_min),
               required("cpu_max", &OperatingPoints::cpu_max), required("replicas_max", &OperatingPoints::replicas_max),
               required("visits", &OperatingPoints::visits), required("limit", &OperatingPoints::limit),
               required("most", &OperatingPoints::most), required("rank", &OperatingPoints::rank),
               required("load", &OperatingPoints::load));
    bind_input(m, "ServiceLoad", "What is known of services now.", &check_load,
               required("class_rate", &ServiceLoad::class_rate), required("replicas", &ServiceLoad::replicas),
               optional("trusted", &ServiceLoad::trusted), optional("queue", &ServiceLoad::queue),
               optional("usage", &ServiceLoad::usage), optional("rate", &ServiceLoad::rate));
    bind_result<ServiceSizes>(
        m, "ServiceSizes", "Limits and replicas, by service.", Column{"cpu_limit", &ServiceSizes::cpu_limit},
        Column{"replicas", &ServiceSizes::replicas}, Column{"is_lacking", &ServiceSizes::is_lacking});
    m.def(
        "sizes_for",
        [](const Passed<OperatingPoints>& points, const Passed<ServiceLoad>& now) {
            const std::size_t services = points.cpu_min.size();
            require(now.replicas.size() == services && now.class_rate.size() * services == points.visits.size() &&
                        (now.trusted.empty() || now.trusted.size() == services) &&
                        (now.queue.empty() || now.queue.size() == services),
                    "a load of other services or classes");
            return sizes_for(points, now);
        },
        nb::arg("points"), nb::arg("now"), "The smallest size of every service for a load.");
    m.def(
        "load_ahead",
        [](In<double> rates, std::size_t classes, double rise, double window_s, double chance) {
            require(classes > 0 && rates.size() >= classes && rates.size() % classes == 0 && window_s > 0,
                    "rates are windows x classes, one window at least");
            return to_numpy(load_ahead(view(rates), classes, rise, window_s, chance));
        },
        nb::arg("rates").noconvert(), nb::arg("classes"), nb::arg("rise"), nb::arg("window_s"), nb::kw_only(),
        nb::arg("chance"), "Requests per second of each class to be ready for.");
}

}  // namespace gnomon::bindings
