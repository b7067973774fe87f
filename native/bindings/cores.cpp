#include "engine/cores/cores.hpp"

#include "bindings/scheduling.hpp"
#include "engine/cores/quantum.hpp"

namespace gnomon::bindings {
namespace {

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

void check_scheduling(const Scheduling& scheduling) {
    require(scheduling.rule <= static_cast<std::uint8_t>(threads::last_policy), "no such policy");
    require(scheduling.quantum >= 1 && scheduling.hard_quantum >= 1 && scheduling.patience >= 1,
            "a quantum is a nanosecond at least");
    require(scheduling.share >= 0.0 && scheduling.share <= 1.0, "a share is 0 to 1");
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
    bind_input(m, "Scheduling", "A scheduling policy.", &check_scheduling, required("rule", &Scheduling::rule),
               optional("quantum", &Scheduling::quantum), optional("hard_quantum", &Scheduling::hard_quantum),
               optional("patience", &Scheduling::patience), optional("reserved", &Scheduling::reserved),
               optional("share", &Scheduling::share));
    bind_result<CoreRun>(m, "CoreRun", "Latency of each request, and what was lost.",
                         Taken{"take_latency", &CoreRun::latency}, Taken{"take_preemptions", &CoreRun::preemptions},
                         Value{"end", &CoreRun::end}, Value{"lost", &CoreRun::lost}, Value{"asked", &CoreRun::asked},
                         Taken{"take_quanta", &CoreRun::quanta});
    using threads::QuantumController;
    nb::class_<QuantumController>(m, "QuantumController", "Chooses a quantum by what it is told of the last requests.")
        .def(
            "__init__",
            [](QuantumController* self, bool is_paper, const Passed<Scheduling>& scheduling,
               const Passed<Mechanism>& mechanism) {
                new (self) QuantumController(is_paper, scheduling.settings(), mechanism);
            },
            nb::kw_only(), nb::arg("is_paper"), nb::arg("scheduling"), nb::arg("mechanism"))
        .def(
            "decide",
            [](QuantumController& self, std::int64_t period, std::uint64_t arrivals, std::uint64_t in_hand,
               std::size_t workers, const In<std::int64_t>& service) {
                require(workers >= 1 && workers <= 4096 && all_within(view(service), 0, longest), "no such requests");
                const auto choice = self.decide({period, arrivals, in_hand, workers, view(service)});
                return nb::make_tuple(choice.quantum, choice.load, choice.why);
            },
            nb::kw_only(), nb::arg("period"), nb::arg("arrivals"), nb::arg("in_hand"), nb::arg("workers"),
            nb::arg("service").noconvert());
    m.def(
        "run_cores",
        [](const Passed<CoreRequests>& requests, const Passed<Mechanism>& mechanism,
           const Passed<Scheduling>& scheduling, std::size_t workers, bool is_shared, std::uint8_t control,
           std::int64_t control_period, std::uint64_t seed) {
            check_workers(scheduling, workers);
            require(control <= 2 && control_period >= 1000, "a control period is a microsecond at least");
            std::vector<std::unique_ptr<threads::Policy>> policies;
            for (std::size_t i = 0; i < (is_shared ? 1 : workers); ++i)
                policies.push_back(threads::make_policy(scheduling.settings()));
            threads::QuantumController controller(control == 1, scheduling.settings(), mechanism);
            nb::gil_scoped_release release;
            return run_cores(requests, workers, policies, mechanism, seed,
                             {control == 0 ? nullptr : &controller, control_period});
        },
        nb::kw_only(), nb::arg("requests"), nb::arg("mechanism"), nb::arg("scheduling"), nb::arg("workers"),
        nb::arg("is_shared"), nb::arg("control"), nb::arg("control_period"), nb::arg("seed"),
        "Requests on workers under a scheduling policy.");
}

}  // namespace gnomon::bindings
