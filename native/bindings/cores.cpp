#include "engine/cores/cores.hpp"

#include "bindings/structs.hpp"

namespace gnomon::bindings {
namespace {

using threads::PolicyKind;
using threads::PolicySettings;

/// So that sums of a run's times fit.
constexpr std::int64_t longest = std::int64_t{1} << 60;

void check_requests(const CoreRequests& requests) {
    const auto has_size = [&](auto column) { return column.empty() || column.size() == requests.arrival.size(); };
    require(requests.service.size() == requests.arrival.size() && has_size(requests.kind) && has_size(requests.hint) &&
                has_size(requests.deadline),
            "every column has a value for each request");
    require(is_rising(requests.arrival) && all_within(requests.arrival, 0, longest) &&
                all_within(requests.service, 0, longest) && all_within(requests.kind, 0, 1 << 20) &&
                all_within(requests.hint, 0, threads::unlimited),
            "requests come in order, their times are not below zero");
}

void check_mechanism(const Mechanism& mechanism) {
    require(mechanism.cost_ns >= 0 && mechanism.cost_ns < longest && mechanism.dispatch_ns >= 0 &&
                mechanism.dispatch_ns < longest && all_within(mechanism.late_ns, 0, longest),
            "costs and lateness are not below zero");
}

}  // namespace

void bind_cores(nb::module_& m) {
    bind_input(m, "CoreRequests", "Requests in order of arrival; times in ns.", &check_requests,
               required("arrival", &CoreRequests::arrival), required("service", &CoreRequests::service),
               optional("kind", &CoreRequests::kind), optional("hint", &CoreRequests::hint),
               optional("deadline", &CoreRequests::deadline));
    bind_input(m, "Mechanism", "What preempting costs, and how late it is.", &check_mechanism,
               optional("cost_ns", &Mechanism::cost_ns), optional("dispatch_ns", &Mechanism::dispatch_ns),
               optional("late_ns", &Mechanism::late_ns));
    bind_result<CoreRun>(m, "CoreRun", "Latency of each request, and what was lost.",
                         Taken{"take_latency", &CoreRun::latency}, Taken{"take_preemptions", &CoreRun::preemptions},
                         Value{"end", &CoreRun::end}, Value{"lost", &CoreRun::lost}, Value{"asked", &CoreRun::asked});
    m.def(
        "run_cores",
        [](const Passed<CoreRequests>& requests, const Passed<Mechanism>& mechanism, std::size_t workers,
           std::uint8_t policy, std::int64_t quantum, std::int64_t hard_quantum, std::int64_t patience,
           std::size_t reserved, std::uint64_t seed) {
            require(workers >= 1 && workers <= 4096, "1 to 4096 workers");
            require(policy <= static_cast<std::uint8_t>(PolicyKind::reserved), "no such policy");
            require(quantum >= 1 && hard_quantum >= 1 && patience >= 1, "a quantum is a nanosecond at least");
            require(reserved < workers || policy != static_cast<std::uint8_t>(PolicyKind::reserved),
                    "a worker has to be left for other requests");
            const auto made =
                threads::make_policy({static_cast<PolicyKind>(policy), quantum, hard_quantum, patience, reserved});
            nb::gil_scoped_release release;
            return run_cores(requests, workers, *made, mechanism, seed);
        },
        nb::kw_only(), nb::arg("requests"), nb::arg("mechanism"), nb::arg("workers"), nb::arg("policy"),
        nb::arg("quantum"), nb::arg("hard_quantum"), nb::arg("patience"), nb::arg("reserved"), nb::arg("seed"),
        "Requests on workers under a scheduling policy.");
}

}  // namespace gnomon::bindings
