#include "engine/mesh/mesh.hpp"

#include <algorithm>
#include <tuple>

#include "bindings/structs.hpp"
#include "engine/mesh/histogram.hpp"

namespace gnomon::bindings {
namespace {

using mesh::Input;
using mesh::Mesh;
using mesh::Observation;
using mesh::Requests;
using mesh::Spent;

void check_mesh(const Input& in) {
    const auto services = in.service_replicas.size(), calls = in.call_service.size(), classes = in.class_call.size(),
               draws = in.draw_shape.size(), hosts = in.host_cores.size(), pools = in.pool_service.size();
    const auto of = [](std::size_t count, auto... columns) { return ((columns.size() == count) && ...); };
    const auto last = [](std::size_t count) { return static_cast<std::int64_t>(count) - 1; };
    require(services > 0 && classes > 0 && draws > 0 && in.period > 0 && in.tick >= 0 && in.network >= 0 &&
                in.network <= last(draws),
            "a mesh needs services, classes, draws and a period");
    require(of(services, in.service_workers, in.service_host, in.service_overhead, in.service_queue_limit,
               in.service_startup, in.service_is_blocking, in.service_limit, in.service_request) &&
                all_within(in.service_replicas, 0, 1'000'000) && all_within(in.service_workers, 1, INT32_MAX) &&
                all_within(in.service_host, -1, last(hosts)) && all_within(in.service_overhead, 0, last(draws)) &&
                all_within(in.service_startup, 0, INT64_MAX),
            "columns of services");
    require(of(pools, in.pool_callee, in.pool_size) && all_within(in.pool_service, 0, last(services)) &&
                all_within(in.pool_callee, 0, last(services)) && all_within(in.pool_size, 1, INT32_MAX),
            "columns of pools");
    require(of(hosts, in.host_noise_cores, in.host_noise_on, in.host_noise_off), "columns of hosts");
    require(of(calls, in.call_cpu, in.call_wait, in.call_retries, in.call_timeout, in.call_is_queued,
               in.call_probability, in.call_error_share) &&
                all_within(in.call_service, 0, last(services)) && all_within(in.call_cpu, 0, last(draws)) &&
                all_within(in.call_wait, 0, last(draws)) && in.stage_call.size() > 0 &&
                starts_ranges(in.call_stage, calls, in.stage_call.size() - 1) && is_rising(in.stage_call) &&
                all_within(in.stage_call, 0, static_cast<std::int64_t>(calls)),
            "columns of calls");
    require(
        of(classes, in.class_priority, in.class_timeout, in.class_bound, in.class_until_all, in.class_correlation) &&
            all_within(in.class_call, 0, last(calls)),
        "columns of classes");
    require(of(draws, in.draw_mean, in.draw_cv) && all_within(in.draw_shape, 0, 3) &&
                in.share.size() == in.value.size() && starts_ranges(in.draw_points, draws, in.share.size()),
            "columns of draws");
    for (std::size_t d = 0; d < draws; ++d)
        require(in.draw_shape[d] != 3 || in.draw_points[d + 1] - in.draw_points[d] >= 2, "quantiles need two points");
    require(in.arrival_time.size() == in.arrival_class.size() && is_rising(in.arrival_time) &&
                (in.arrival_time.empty() || in.arrival_time.front() >= 0) &&
                all_within(in.arrival_class, 0, last(classes)),
            "arrivals are sorted, and each has a class");
}

}  // namespace

void bind_mesh(nb::module_& m) {
    m.attr("MESH_PERCENTILES") =
        std::apply([](auto... share) { return nb::make_tuple(100 * share...); }, mesh::percentiles);
    bind_input<Input>(
        m, "MeshInput", "An application as columns.", check_mesh,
        required("service_replicas", &Input::service_replicas), required("service_workers", &Input::service_workers),
        required("service_host", &Input::service_host), required("service_overhead", &Input::service_overhead),
        required("service_queue_limit", &Input::service_queue_limit),
        required("service_startup", &Input::service_startup),
        required("service_is_blocking", &Input::service_is_blocking), required("service_limit", &Input::service_limit),
        required("service_request", &Input::service_request), required("pool_service", &Input::pool_service),
        required("pool_callee", &Input::pool_callee), required("pool_size", &Input::pool_size),
        required("host_cores", &Input::host_cores), required("host_noise_cores", &Input::host_noise_cores),
        required("host_noise_on", &Input::host_noise_on), required("host_noise_off", &Input::host_noise_off),
        required("call_service", &Input::call_service), required("call_cpu", &Input::call_cpu),
        required("call_wait", &Input::call_wait), required("call_stage", &Input::call_stage),
        required("call_retries", &Input::call_retries), required("call_timeout", &Input::call_timeout),
        required("call_is_queued", &Input::call_is_queued), required("call_probability", &Input::call_probability),
        required("call_error_share", &Input::call_error_share), required("stage_call", &Input::stage_call),
        required("class_call", &Input::class_call), required("class_priority", &Input::class_priority),
        required("class_timeout", &Input::class_timeout), required("class_bound", &Input::class_bound),
        required("class_until_all", &Input::class_until_all), required("class_correlation", &Input::class_correlation),
        required("draw_shape", &Input::draw_shape), required("draw_mean", &Input::draw_mean),
        required("draw_cv", &Input::draw_cv), required("draw_points", &Input::draw_points),
        required("share", &Input::share), required("value", &Input::value),
        required("arrival_time", &Input::arrival_time), required("arrival_class", &Input::arrival_class),
        optional("network", &Input::network), optional("period", &Input::period), optional("tick", &Input::tick),
        optional("seed", &Input::seed), optional("most_events", &Input::most_events),
        optional("keeps_requests", &Input::keeps_requests));
    bind_result<Observation>(
        m, "MeshObservation", "What happened since the last look.", Column{"used", &Observation::used},
        Column{"allocated", &Observation::allocated}, Column{"periods", &Observation::periods},
        Column{"throttled", &Observation::throttled}, Column{"queue", &Observation::queue},
        Column{"pool_wait", &Observation::pool_wait}, Column{"calls", &Observation::calls},
        Column{"replicas", &Observation::replicas}, Column{"used_slices", &Observation::used_slices},
        Column{"throttled_slices", &Observation::throttled_slices},
        Column{"service_latency", &Observation::service_latency}, Column{"arrived", &Observation::arrived},
        Column{"answered", &Observation::answered}, Column{"failed", &Observation::failed},
        Column{"violated", &Observation::violated}, Column{"class_latency", &Observation::class_latency});
    bind_result<Spent>(m, "MeshSpent", "Where the time goes, by class and service.",
                       Column{"request_class", &Spent::request_class}, Column{"service", &Spent::service},
                       Column{"calls", &Spent::calls}, Column{"exclusive", &Spent::exclusive},
                       Column{"cpu", &Spent::cpu}, Column{"queued", &Spent::queued}, Column{"counts", &Spent::counts});

    const auto checked = [](std::int64_t service, const Passed<Input>& in) {
        require(service >= 0 && index(service) < in.service_replicas.size(), "no such service");
    };
    struct Held {  // the columns live as long as the simulator
        Passed<Input> input;
        Mesh mesh;
        explicit Held(const Passed<Input>& given) : input(given), mesh(input) {}
    };
    nb::class_<Held>(m, "Mesh", "Services that call one another, simulated request by request.")
        .def(nb::init<const Passed<Input>&>(), nb::arg("input"))
        .def(
            "advance", [](Held& held, std::int64_t until) { held.mesh.advance(until); }, nb::arg("until"),
            nb::call_guard<nb::gil_scoped_release>(), "Plays everything up to a time.")
        .def("observe", [](Held& held) { return held.mesh.observe(); })
        .def(
            "set_limit",
            [checked](Held& held, std::int32_t service, double cores) {
                checked(service, held.input);
                require(cores >= 0.0, "a limit is 0 or more cores");
                held.mesh.set_limit(service, cores);
            },
            nb::arg("service"), nb::arg("cores"))
        .def(
            "set_request",
            [checked](Held& held, std::int32_t service, double weight) {
                checked(service, held.input);
                require(weight > 0.0, "a weight is more than 0");
                held.mesh.set_request(service, weight);
            },
            nb::arg("service"), nb::arg("weight"))
        .def(
            "set_replicas",
            [checked](Held& held, std::int32_t service, std::int32_t count) {
                checked(service, held.input);
                require(count >= 0 && count <= 1'000'000, "0 or more replicas");
                held.mesh.set_replicas(service, count);
            },
            nb::arg("service"), nb::arg("count"))
        .def("spent", [](Held& held) { return held.mesh.spent(); })
        .def("request_latency",
             [](Held& held) { return to_numpy(std::vector<std::int64_t>(held.mesh.requests().latency)); })
        .def("request_status",
             [](Held& held) { return to_numpy(std::vector<mesh::Status>(held.mesh.requests().status)); })
        .def_prop_ro("events", [](Held& held) { return held.mesh.events(); })
        .def_prop_ro("pending", [](Held& held) { return held.mesh.pending(); });
    m.def(
        "mesh_buckets",
        [] {
            std::vector<double> edges;
            for (std::size_t i = 0; i <= mesh::Histogram::size; ++i) edges.push_back(mesh::Histogram::lower(i));
            return to_numpy(std::move(edges));
        },
        "Edges of the buckets of exclusive latency, in ns.");
}

}  // namespace gnomon::bindings
