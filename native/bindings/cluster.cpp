#include "engine/cluster/cluster.hpp"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <string>

#include "bindings/structs.hpp"
#include "engine/cluster/carbon_rules.hpp"
#include "engine/cluster/decima_order.hpp"
#include "engine/cluster/gates.hpp"
#include "engine/cluster/orders.hpp"
#include "engine/index.hpp"

namespace gnomon::bindings {
namespace {

/// 36 years: no time is longer, so that sums of two fit.
constexpr std::int64_t longest = std::int64_t{1} << 60;
constexpr const char* is_none = "a job's kind, arrival or application is none";

void check_kinds(const JobKindColumns& kinds) {
    const auto stages = kinds.tasks.size();
    const auto runs = stages * wave_count * kinds.levels.size();
    require(!kinds.first_stage.empty() && starts_ranges(kinds.first_stage, kinds.first_stage.size() - 1, stages) &&
                stages < (1U << 30),
            "kinds do not hold all stages");
    require(starts_ranges(kinds.first_parent, stages, kinds.parents.size()), "stages do not hold all parents");
    for (std::size_t k = 0; k + 1 < kinds.first_stage.size(); ++k) {
        require(kinds.first_stage[k + 1] - kinds.first_stage[k] < (1 << 20), "a job has a million stages or more");
        for (auto s = kinds.first_stage[k]; s < kinds.first_stage[k + 1]; ++s) {
            const auto begin = index(kinds.first_parent[index(s)]);
            const auto end = index(kinds.first_parent[index(s) + 1]);
            require(all_within(kinds.parents.subspan(begin, end - begin), kinds.first_stage[k], s - 1),
                    "a stage waits for one that does not come before it in its job");
        }
    }
    require(
        all_within(kinds.tasks, 1, 1 << 30) && !kinds.levels.empty() && is_rising(kinds.levels) && kinds.levels[0] >= 1,
        "stages need tasks, and durations levels of executors");
    require(kinds.sample_first.size() == runs && kinds.sample_count.size() == runs &&
                all_within(kinds.sample_count, 1, 1 << 30),
            "every stage, wave and level needs a duration");
    for (std::size_t r = 0; r < runs; ++r) {
        require(kinds.sample_first[r] >= 0 &&
                    kinds.sample_first[r] + kinds.sample_count[r] <= static_cast<std::int64_t>(kinds.sample.size()),
                "samples lie outside of their column");
    }
    require(all_within(kinds.sample, 1, longest), "a duration lies under a nanosecond or over 36 years");
    require(kinds.cpu.size() == stages && kinds.typical.size() == stages && kinds.path.size() == stages &&
                kinds.work_at_level.size() == (kinds.first_stage.size() - 1) * kinds.levels.size(),
            "a column of stages is too short");
}

void check_jobs(const JobColumns& jobs) {
    const auto count = jobs.kind.size();
    require(jobs.arrival.size() == count && jobs.after.size() == count && jobs.application.size() == count &&
                jobs.deadline.size() == count && jobs.weight.size() == count && count < (1U << 30),
            "a column of jobs is too short");
    require(all_within(jobs.arrival, 0, longest) && all_within(jobs.application, 0, 1 << 30), is_none);
    for (std::size_t j = 0; j < count; ++j) {
        require(jobs.after[j] >= -1 && jobs.after[j] < static_cast<std::int32_t>(j) && jobs.weight[j] > 0.0,
                "a job comes after one that is not before it, or has no weight");
    }
}

bool is_span(std::int64_t time) { return time >= 0 && time <= longest; }
bool is_bound(std::int64_t time) { return is_span(time) || time == never; }

void check_executors(const ExecutorSettings& settings) {
    const auto count = index(settings.count);
    const auto fits = [count](auto column) { return column.empty() || column.size() == count; };
    require(settings.count >= 1 && settings.count < (1 << 24), "a cluster has from 1 to 16 million executors");
    require(fits(settings.from) && fits(settings.until), "every executor comes and leaves");
    for (std::size_t e = 0; e < std::max(settings.from.size(), settings.until.size()); ++e) {
        const auto from = settings.from.empty() ? 0 : settings.from[e];
        require(from >= 0 && from < (settings.until.empty() ? never : settings.until[e]),
                "an executor leaves after it has come");
    }
    require(fits(settings.speed) &&
                std::all_of(settings.speed.begin(), settings.speed.end(), [](double s) { return s > 1e-6 && s < 1e6; }),
            "every executor needs a speed above zero");
    const auto is_chance = [](double p) { return p >= 0.0 && p < 1.0; };
    require(is_span(settings.moving_delay) && is_span(settings.startup) && is_bound(settings.off_after) &&
                is_chance(settings.straggler_chance) && settings.straggler_factor > 0.0 &&
                settings.straggler_factor < 1e6 && is_chance(settings.task_failure_chance) &&
                settings.failures_per_ns >= 0.0,
            "delays are not below zero, chances lie from 0 up to but not at 1");
}

void check_grid(const GridColumns& grid) {
    require(grid.step >= 1, "a step of the grid takes time");
    const auto steps = grid.seen.size();
    require(grid.low.size() == steps && grid.high.size() == steps && grid.actual.empty() == grid.seen.empty() &&
                (steps == 0 || grid.horizon >= 1) && grid.outlook.size() == steps * index(grid.horizon),
            "a column of the grid is too short");
}

void check_guard(const Guard& guard) {
    require(is_bound(guard.patience) && is_bound(guard.longest_hold) && is_bound(guard.finish_by),
            "a guard's bounds are not below zero, nor 36 years off");
}

/// What a policy in Python is shown. It may keep it.
struct AskedState {
    std::int64_t now;
    std::int32_t executors, idle, busy, source = -1;
    std::optional<double> intensity, low, high;
    std::vector<std::int32_t> job, job_executors;
    std::vector<std::int64_t> job_arrival;
    std::vector<double> job_work;
    std::vector<std::int32_t> stage_job, stage, stage_tasks;
    std::vector<double> stage_way;

    explicit AskedState(const ClusterState& state)
        : now(state.now()), executors(state.executors()), idle(state.idle()), busy(state.busy()) {
        if (!state.has_grid()) return;
        intensity = state.intensity();
        low = state.low();
        high = state.high();
    }
};

/// Asks a function of Python.
class PythonOrder final : public Order {
public:
    explicit PythonOrder(nb::callable choose) : choose_(std::move(choose)) {}

    Choice next(ClusterState& state, Rng&) override {
        nb::gil_scoped_acquire acquire;
        AskedState seen(state);
        list_stages(state, seen);
        if (candidates_.empty()) return {};  // all that is ready is served already
        const auto answer = choose_(std::move(seen));
        Choice choice;
        choice.held = answer.is_none();
        if (choice.held) return choice;
        const auto place = nb::cast<std::size_t>(answer.attr("index"));
        require(place < candidates_.size(), "a policy chose a stage that is not there");
        choice.slot = candidates_[place].slot;
        choice.stage = candidates_[place].stage;
        choice.limit = nb::cast<std::int32_t>(answer.attr("limit"));
        return choice;
    }

private:
    void list_stages(ClusterState& state, AskedState& seen) {
        candidates_.clear();
        for (const auto slot : state.active()) {
            const auto& job = state.job(slot);
            const auto place = static_cast<std::int32_t>(seen.job.size());
            if (slot == state.source()) seen.source = place;
            seen.job.push_back(job.job);
            seen.job_executors.push_back(job.executors);
            seen.job_arrival.push_back(job.arrival);
            seen.job_work.push_back(job.work_left);
            if (!state.is_served(slot)) continue;
            for (const auto stage : job.ready) {
                if (!state.is_open(slot, stage)) continue;
                candidates_.push_back({slot, stage});
                seen.stage_job.push_back(place);
                seen.stage.push_back(stage);
                seen.stage_tasks.push_back(job.stage[index(stage)].unstarted);
                seen.stage_way.push_back(state.kinds().path[index(job.first_stage + stage)]);
            }
        }
    }

    nb::callable choose_;
    std::vector<OpenStage> candidates_;
};

nb::dict record_of(const DecimaOrder& order) {
    using R = DecimaRecord;
    nb::dict out;
    const auto put = [&](auto... columns) {
        ((out[columns.name] = to_numpy(std::vector(order.record().*columns.member))), ...);
    };
    put(Column{"first_job", &R::first_job}, Column{"first_node", &R::first_node}, Column{"first_edge", &R::first_edge},
        Column{"first_ready", &R::first_ready}, Column{"job_nodes", &R::job_nodes},
        Column{"job_executors", &R::job_executors}, Column{"work_ms", &R::work_ms}, Column{"tasks", &R::tasks},
        Column{"height", &R::height}, Column{"edge_parent", &R::edge_parent}, Column{"edge_child", &R::edge_child},
        Column{"ready", &R::ready}, Column{"source_job", &R::source_job}, Column{"free_executors", &R::free_executors},
        Column{"chosen", &R::chosen}, Column{"job", &R::job}, Column{"limit", &R::limit}, Column{"lowest", &R::lowest},
        Column{"highest", &R::highest}, Column{"time", &R::time});
    return out;
}

template <typename Base, typename Made, typename... Parameters>
std::shared_ptr<Base> make(Parameters... parameters) {
    return std::make_shared<Made>(std::move(parameters)...);
}

void bind_orders(nb::module_& m) {
    nb::class_<Order>(m, "Order");
    nb::class_<ProbabilisticOrder, Order>(m, "ProbabilisticOrder");
    nb::class_<DecimaOrder, ProbabilisticOrder>(m, "DecimaOrder")
        .def("record", &record_of, "What it saw and drew at each decision of its last runs.");
    m.def("fifo_order", &make<Order, FifoOrder, std::int32_t, bool>, nb::arg("per_job"), nb::arg("keep"));
    m.def("fair_order", &make<Order, FairOrder, double>, nb::arg("exponent"));
    m.def("shortest_order", &make<Order, ShortestOrder>);
    m.def("critical_path_order", &make<Order, CriticalPathOrder>);
    m.def("path_softmax_order", &make<ProbabilisticOrder, PathSoftmaxOrder, double>, nb::arg("sharpness"));
    m.def(
        "decima_order",
        [](In<float> parameters, bool records, bool can_have_enough) {
            require(parameters.size() == Decima::parameter_count, "Decima has 4,770 parameters");
            return std::make_shared<DecimaOrder>(view(parameters), can_have_enough, records);
        },
        nb::arg("parameters").noconvert(), nb::arg("records") = false, nb::arg("can_have_enough") = false);
    m.def(
        "pcaps_order",
        [](std::shared_ptr<ProbabilisticOrder> inner, double gamma, int narrowing) -> std::shared_ptr<Order> {
            require(narrowing >= 0 && narrowing <= 3, "no such way to narrow");
            return std::make_shared<PcapsOrder>(std::move(inner), gamma, static_cast<Narrowing>(narrowing));
        },
        nb::arg("inner"), nb::arg("gamma"), nb::arg("narrowing"));
    m.def("asked_order", &make<Order, PythonOrder, nb::callable>, nb::arg("choose"),
          nb::sig("def asked_order(choose: collections.abc.Callable[[AskedState], object]) -> Order"),
          "An order that asks a function: it answers with an `index` among the stages and a `limit`, or None to wait.");
}

void bind_gates(nb::module_& m) {
    nb::class_<Gate>(m, "Gate");
    m.def(
        "quota_gate",
        [](In<std::int32_t> quota, bool narrows, bool each_task, bool of_held) -> std::shared_ptr<Gate> {
            require(quota.size() > 0 && all_within(view(quota), 0, 1 << 24), "a quota for every step, none below zero");
            return std::make_shared<QuotaGate>(view(quota), narrows, each_task, of_held);
        },
        nb::arg("quota").noconvert(), nb::arg("narrows"), nb::arg("each_task") = true, nb::arg("of_held") = false);
    m.def("green_hadoop_gate", &make<Gate, GreenHadoopGate, double>, nb::arg("theta"));
    m.def("window_gate", &make<Gate, WindowGate, std::int32_t, bool>, nb::arg("window"), nb::arg("whole"));
    m.def("scaler_gate", &make<Gate, ScalerGate, std::int32_t>, nb::arg("window"));
    m.def(
        "look_ahead_gate",
        [](std::int32_t window, double margin, double spread, double careful,
           In<std::int32_t> width) -> std::shared_ptr<Gate> {
            return std::make_shared<LookAheadGate>(
                LookAheadGate::Settings{window, margin, spread, careful, view(width)});
        },
        nb::arg("window"), nb::arg("margin"), nb::arg("spread"), nb::arg("careful"), nb::arg("width").noconvert());
}

void bind_rules(nb::module_& m) {
    m.def("pcaps_threshold", &pcaps_threshold, nb::arg("importance"), nb::arg("gamma"), nb::arg("low"),
          nb::arg("high"));
    m.def(
        "pcaps_narrowed",
        [](std::int32_t limit, int how, double gamma, double intensity, double low, double high) {
            require(how >= 0 && how <= 3, "no such way to narrow");
            return narrowed(limit, static_cast<Narrowing>(how), gamma, intensity, low, high);
        },
        nb::arg("limit"), nb::arg("how"), nb::arg("gamma"), nb::arg("intensity"), nb::arg("low"), nb::arg("high"));
    m.def(
        "runs_now",
        [](double intensity, In<double> coming, double needed, double margin) {
            return runs_now(intensity, view(coming), needed, margin);
        },
        nb::arg("intensity"), nb::arg("coming").noconvert(), nb::arg("needed"), nb::arg("margin"));
    m.def("cap_alpha", &cap_alpha, nb::arg("low"), nb::arg("high"), nb::arg("steps"));
    m.def(
        "cap_thresholds",
        [](double high, std::int32_t steps, double alpha) { return to_numpy(cap_thresholds(high, steps, alpha)); },
        nb::arg("high"), nb::arg("steps"), nb::arg("alpha"));
    m.def(
        "cap_quota",
        [](In<double> intensity, In<double> low, In<double> high, std::int32_t least, std::int32_t executors) {
            require(intensity.size() == low.size() && low.size() == high.size(), "one of each for every step");
            std::vector<std::int32_t> quota(intensity.size());
            for (std::size_t s = 0; s < quota.size(); ++s) {
                quota[s] = cap_quota(intensity.data()[s], low.data()[s], high.data()[s], least, executors);
            }
            return to_numpy(std::move(quota));
        },
        nb::arg("intensity").noconvert(), nb::arg("low").noconvert(), nb::arg("high").noconvert(), nb::arg("least"),
        nb::arg("executors"));
}

void bind_inputs(nb::module_& m) {
    using Kinds = JobKindColumns;
    bind_input(m, "ClusterKinds", "Shapes of jobs, stage by stage.", &check_kinds,
               required("first_stage", &Kinds::first_stage), required("tasks", &Kinds::tasks),
               required("first_parent", &Kinds::first_parent), required("parents", &Kinds::parents),
               required("levels", &Kinds::levels), required("sample_first", &Kinds::sample_first),
               required("sample_count", &Kinds::sample_count), required("sample", &Kinds::sample),
               required("cpu", &Kinds::cpu), required("typical", &Kinds::typical), required("path", &Kinds::path),
               required("work_at_level", &Kinds::work_at_level));
    using Jobs = JobColumns;
    bind_input(m, "ClusterJobs", "Jobs that arrive.", &check_jobs, required("kind", &Jobs::kind),
               required("arrival", &Jobs::arrival), required("after", &Jobs::after),
               required("application", &Jobs::application), required("deadline", &Jobs::deadline),
               required("weight", &Jobs::weight));
    using Executors = ExecutorSettings;
    bind_input(m, "ClusterExecutors", "What runs tasks.", &check_executors, required("count", &Executors::count),
               optional("speed", &Executors::speed), optional("from_", &Executors::from),
               optional("until", &Executors::until), optional("moving_delay", &Executors::moving_delay),
               optional("startup", &Executors::startup), optional("off_after", &Executors::off_after),
               optional("straggler_chance", &Executors::straggler_chance),
               optional("straggler_factor", &Executors::straggler_factor),
               optional("task_failure_chance", &Executors::task_failure_chance),
               optional("failures_per_ns", &Executors::failures_per_ns));
    using Grid = GridColumns;
    bind_input(m, "ClusterGrid", "The grid in equal steps; without columns only their length.", &check_grid,
               required("step", &Grid::step), optional("actual", &Grid::actual), optional("seen", &Grid::seen),
               optional("low", &Grid::low), optional("high", &Grid::high), optional("horizon", &Grid::horizon),
               optional("outlook", &Grid::outlook));
    bind_input(m, "ClusterGuard", "How long the grid may keep work waiting.", &check_guard,
               optional("patience", &Guard::patience), optional("longest_hold", &Guard::longest_hold),
               optional("finish_by", &Guard::finish_by));
}

void bind_results(nb::module_& m) {
    using State = AskedState;
    bind_result<AskedState>(
        m, "AskedState", "What a policy in Python sees.", Value{"now", &State::now},
        Value{"executors", &State::executors}, Value{"idle", &State::idle}, Value{"busy", &State::busy},
        Value{"source", &State::source}, Value{"intensity", &State::intensity}, Value{"low", &State::low},
        Value{"high", &State::high}, Column{"job", &State::job}, Column{"job_executors", &State::job_executors},
        Column{"job_arrival", &State::job_arrival}, Column{"job_work", &State::job_work},
        Column{"stage_job", &State::stage_job}, Column{"stage", &State::stage},
        Column{"stage_tasks", &State::stage_tasks}, Column{"stage_way", &State::stage_way});
    using Held = HeldStages;
    bind_result<HeldStages>(m, "ClusterHeld", "Stages that could have run and were held.", Column{"job", &Held::job},
                            Column{"stage", &Held::stage}, Column{"held", &Held::held},
                            Column{"resumed", &Held::resumed}, Column{"intensity", &Held::intensity},
                            Column{"importance", &Held::importance}, Column{"threshold", &Held::threshold},
                            Column{"busy", &Held::busy}, Column{"weighted", &Held::weighted});
    using Log = TaskLog;
    bind_result<TaskLog>(m, "ClusterLog", "Tasks that ran, in the order of their ends.", Column{"job", &Log::job},
                         Column{"stage", &Log::stage}, Column{"executor", &Log::executor}, Column{"wave", &Log::wave},
                         Column{"failed", &Log::failed}, Column{"start", &Log::start}, Column{"end", &Log::end});
    using Run = ClusterRun;
    bind_result<ClusterRun>(
        m, "ClusterRun", "What became of each job, and what was busy when.", Column{"start", &Run::start},
        Column{"finish", &Run::finish}, Column{"busy", &Run::busy}, Column{"weighted", &Run::weighted},
        Column{"busy_at", &Run::busy_at}, Column{"cpu_at", &Run::cpu_at}, Column{"moving_at", &Run::moving_at},
        Column{"on_at", &Run::on_at}, Column{"quota_at", &Run::quota_at}, Value{"end", &Run::end},
        Value{"events", &Run::events}, Value{"tasks", &Run::tasks}, Value{"decisions", &Run::decisions},
        Value{"holds", &Run::holds}, Value{"moves", &Run::moves}, Value{"starts", &Run::starts},
        Value{"failed_tasks", &Run::failed_tasks}, Value{"failed_executors", &Run::failed_executors},
        Value{"wasted", &Run::wasted}, Value{"held", &Run::held}, Value{"log", &Run::log},
        Value{"unfinished", &Run::unfinished});
}

}  // namespace

void bind_cluster(nb::module_& m) {
    bind_inputs(m);
    bind_results(m);
    bind_orders(m);
    bind_gates(m);
    bind_rules(m);
    m.def(
        "run_cluster",
        [](const Passed<JobKindColumns>& kinds, const Passed<JobColumns>& jobs,
           const Passed<ExecutorSettings>& executors, const Passed<GridColumns>& grid, const Passed<Guard>& guard,
           std::shared_ptr<Order> order, std::vector<std::shared_ptr<Gate>> gates, std::uint64_t seed,
           std::uint64_t policy_seed, bool log_tasks, bool log_holds) {
            require(all_within(jobs.kind, 0, static_cast<std::int64_t>(kinds.first_stage.size()) - 2), is_none);
            require(gates.empty() || !grid.seen.empty(), "a gate needs a grid");
            std::vector<Gate*> asked;
            for (const auto& gate : gates) asked.push_back(gate.get());
            nb::gil_scoped_release release;
            return run_cluster({kinds, jobs, executors, grid, guard, seed, policy_seed, log_tasks, log_holds}, *order,
                               asked);
        },
        nb::kw_only(), nb::arg("kinds"), nb::arg("jobs"), nb::arg("executors"), nb::arg("grid"), nb::arg("guard"),
        nb::arg("order"), nb::arg("gates"), nb::arg("seed"), nb::arg("policy_seed"), nb::arg("log_tasks"),
        nb::arg("log_holds"), "Runs jobs on a cluster.");
}

}  // namespace gnomon::bindings
