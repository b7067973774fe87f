#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <string>

#include "bindings/structs.hpp"
#include "engine/cluster/carbon_rules.hpp"
#include "engine/cluster/cluster.hpp"
#include "engine/cluster/decima_order.hpp"
#include "engine/cluster/gates.hpp"
#include "engine/cluster/orders.hpp"

namespace gnomon::bindings {
namespace {

/// 36 years: no time is longer, so that sums of two fit.
constexpr std::int64_t longest = std::int64_t{1} << 60;
constexpr const char* is_none = "a job's kind, arrival or application is none";

void check_kinds(const JobKindColumns& kinds) {
    const auto stages = kinds.tasks.size();
    const auto runs = stages * kWaves * kinds.levels.size();
    require(!kinds.first_stage.empty() && starts_ranges(kinds.first_stage, kinds.first_stage.size() - 1, stages) &&
                stages < (1U << 30),
            "kinds do not hold all stages");
    require(starts_ranges(kinds.first_parent, stages, kinds.parents.size()), "stages do not hold all parents");
    for (std::size_t k = 0; k + 1 < kinds.first_stage.size(); ++k) {
        require(kinds.first_stage[k + 1] - kinds.first_stage[k] < (1 << 20), "a job has a million stages or more");
        for (auto s = kinds.first_stage[k]; s < kinds.first_stage[k + 1]; ++s) {
            const auto begin = static_cast<std::size_t>(kinds.first_parent[static_cast<std::size_t>(s)]);
            const auto end = static_cast<std::size_t>(kinds.first_parent[static_cast<std::size_t>(s) + 1]);
            require(all_within(kinds.parents.subspan(begin, end - begin), kinds.first_stage[k], s - 1),
                    "a stage waits for one that does not come before it in its job");
        }
    }
    require(all_within(kinds.tasks, 1, 1 << 30) && !kinds.levels.empty() && is_rising(kinds.levels) &&
                kinds.levels[0] >= 1,
            "stages need tasks, and durations levels of executors");
    require(kinds.sample_first.size() == runs && kinds.sample_count.size() == runs &&
                all_within(kinds.sample_count, 1, 1 << 30),
            "every stage, wave and level needs a duration");
    for (std::size_t r = 0; r < runs; ++r) {
        require(kinds.sample_first[r] >= 0 && kinds.sample_first[r] + kinds.sample_count[r] <=
                                                  static_cast<std::int64_t>(kinds.sample.size()),
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
bool is_bound(std::int64_t time) { return is_span(time) || time == kNever; }

void check_executors(const ExecutorSettings& settings) {
    const auto count = static_cast<std::size_t>(settings.count);
    const auto fits = [count](auto column) { return column.empty() || column.size() == count; };
    require(settings.count >= 1 && settings.count < (1 << 24), "a cluster has from 1 to 16 million executors");
    require(fits(settings.from) && fits(settings.until), "every executor comes and leaves");
    for (std::size_t e = 0; e < std::max(settings.from.size(), settings.until.size()); ++e) {
        const auto from = settings.from.empty() ? 0 : settings.from[e];
        require(from >= 0 && from < (settings.until.empty() ? kNever : settings.until[e]),
                "an executor leaves after it has come");
    }
    require(fits(settings.speed) && std::all_of(settings.speed.begin(), settings.speed.end(),
                                                [](double s) { return s > 1e-6 && s < 1e6; }),
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
                (steps == 0 || grid.horizon >= 1) &&
                grid.outlook.size() == steps * static_cast<std::size_t>(grid.horizon),
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
                seen.stage_tasks.push_back(job.stage[static_cast<std::size_t>(stage)].unstarted);
                seen.stage_way.push_back(state.kinds().path[static_cast<std::size_t>(job.first_stage + stage)]);
            }
        }
    }

    nb::callable choose_;
    std::vector<OpenStage> candidates_;
};

nb::dict record_of(const DecimaOrder& order) {
    const auto& r = order.record();
    nb::dict out;
    const auto put = [&out](const char* name, const auto& values) {
        out[name] = to_numpy(std::remove_cvref_t<decltype(values)>(values));
    };
    put("first_job", r.first_job);
    put("first_node", r.first_node);
    put("first_edge", r.first_edge);
    put("first_ready", r.first_ready);
    put("job_nodes", r.job_nodes);
    put("job_executors", r.job_executors);
    put("work_ms", r.work_ms);
    put("tasks", r.tasks);
    put("height", r.height);
    put("edge_parent", r.edge_parent);
    put("edge_child", r.edge_child);
    put("ready", r.ready);
    put("source_job", r.source_job);
    put("free_executors", r.free_executors);
    put("chosen", r.chosen);
    put("job", r.job);
    put("limit", r.limit);
    put("lowest", r.lowest);
    put("highest", r.highest);
    put("time", r.time);
    return out;
}

void bind_orders(nb::module_& m) {
    nb::class_<Order>(m, "Order");
    nb::class_<ProbabilisticOrder, Order>(m, "ProbabilisticOrder");
    nb::class_<DecimaOrder, ProbabilisticOrder>(m, "DecimaOrder")
        .def("record", &record_of, "What it saw and drew at each decision of its last runs.");
    m.def("fifo_order", [](std::int32_t per_job, bool keep) -> std::shared_ptr<Order> {
        return std::make_shared<FifoOrder>(per_job, keep);
    }, nb::arg("per_job"), nb::arg("keep"));
    m.def("fair_order", [](double exponent) -> std::shared_ptr<Order> {
        return std::make_shared<FairOrder>(exponent);
    }, nb::arg("exponent"));
    m.def("shortest_order", []() -> std::shared_ptr<Order> { return std::make_shared<ShortestOrder>(); });
    m.def("critical_path_order", []() -> std::shared_ptr<Order> { return std::make_shared<CriticalPathOrder>(); });
    m.def("path_softmax_order", [](double sharpness) -> std::shared_ptr<ProbabilisticOrder> {
        return std::make_shared<PathSoftmaxOrder>(sharpness);
    }, nb::arg("sharpness"));
    m.def("decima_order", [](In<float> parameters, bool records, bool can_have_enough) {
        require(parameters.size() == Decima::parameter_count, "Decima has 4,770 parameters");
        return std::make_shared<DecimaOrder>(view(parameters), can_have_enough, records);
    }, nb::arg("parameters").noconvert(), nb::arg("records") = false, nb::arg("can_have_enough") = false);
    m.def("pcaps_order", [](std::shared_ptr<ProbabilisticOrder> inner, double gamma, int narrowing) -> std::shared_ptr<Order> {
        require(narrowing >= 0 && narrowing <= 3, "no such way to narrow");
        return std::make_shared<PcapsOrder>(std::move(inner), gamma, static_cast<Narrowing>(narrowing));
    }, nb::arg("inner"), nb::arg("gamma"), nb::arg("narrowing"));
    m.def("asked_order", [](nb::callable choose) -> std::shared_ptr<Order> {
        return std::make_shared<PythonOrder>(std::move(choose));
    }, nb::arg("choose"),
        nb::sig("def asked_order(choose: collections.abc.Callable[[AskedState], object]) -> Order"),
        "An order that asks a function: it answers with an `index` among the stages and a `limit`, or None to wait.");
}

void bind_gates(nb::module_& m) {
    nb::class_<Gate>(m, "Gate");
    m.def("quota_gate", [](In<std::int32_t> quota, bool narrows, bool each_task,
                           bool of_held) -> std::shared_ptr<Gate> {
        require(quota.size() > 0 && all_within(view(quota), 0, 1 << 24), "a quota for every step, none below zero");
        return std::make_shared<QuotaGate>(view(quota), narrows, each_task, of_held);
    }, nb::arg("quota").noconvert(), nb::arg("narrows"), nb::arg("each_task") = true, nb::arg("of_held") = false);
    m.def("green_hadoop_gate", [](double theta) -> std::shared_ptr<Gate> {
        return std::make_shared<GreenHadoopGate>(theta);
    }, nb::arg("theta"));
    m.def("window_gate", [](std::int32_t window, bool whole) -> std::shared_ptr<Gate> {
        return std::make_shared<WindowGate>(window, whole);
    }, nb::arg("window"), nb::arg("whole"));
    m.def("scaler_gate", [](std::int32_t window) -> std::shared_ptr<Gate> {
        return std::make_shared<ScalerGate>(window);
    }, nb::arg("window"));
    m.def("look_ahead_gate", [](std::int32_t window, double margin, double spread, double careful,
                                In<std::int32_t> width) -> std::shared_ptr<Gate> {
        return std::make_shared<LookAheadGate>(LookAheadGate::Settings{window, margin, spread, careful, view(width)});
    }, nb::arg("window"), nb::arg("margin"), nb::arg("spread"), nb::arg("careful"), nb::arg("width").noconvert());
}

void bind_rules(nb::module_& m) {
    m.def("pcaps_threshold", &pcaps_threshold, nb::arg("importance"), nb::arg("gamma"), nb::arg("low"), nb::arg("high"));
    m.def("pcaps_narrowed", [](std::int32_t limit, int how, double gamma, double intensity, double low, double high) {
        require(how >= 0 && how <= 3, "no such way to narrow");
        return narrowed(limit, static_cast<Narrowing>(how), gamma, intensity, low, high);
    }, nb::arg("limit"), nb::arg("how"), nb::arg("gamma"), nb::arg("intensity"), nb::arg("low"), nb::arg("high"));
    m.def("runs_now", [](double intensity, In<double> coming, double needed, double margin) {
        return runs_now(intensity, view(coming), needed, margin);
    }, nb::arg("intensity"), nb::arg("coming").noconvert(), nb::arg("needed"), nb::arg("margin"));
    m.def("cap_alpha", &cap_alpha, nb::arg("low"), nb::arg("high"), nb::arg("steps"));
    m.def("cap_thresholds", [](double high, std::int32_t steps, double alpha) {
        return to_numpy(cap_thresholds(high, steps, alpha));
    }, nb::arg("high"), nb::arg("steps"), nb::arg("alpha"));
    m.def("cap_quota", [](In<double> intensity, In<double> low, In<double> high, std::int32_t least, std::int32_t executors) {
        require(intensity.size() == low.size() && low.size() == high.size(), "one of each for every step");
        std::vector<std::int32_t> quota(intensity.size());
        for (std::size_t s = 0; s < quota.size(); ++s) {
            quota[s] = cap_quota(intensity.data()[s], low.data()[s], high.data()[s], least, executors);
        }
        return to_numpy(std::move(quota));
    }, nb::arg("intensity").noconvert(), nb::arg("low").noconvert(), nb::arg("high").noconvert(), nb::arg("least"), nb::arg("executors"));
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
    Columns<AskedState>(m, "AskedState", "What a policy in Python sees.")
        .value("now", &AskedState::now)
        .value("executors", &AskedState::executors)
        .value("idle", &AskedState::idle)
        .value("busy", &AskedState::busy)
        .value("source", &AskedState::source)
        .value("intensity", &AskedState::intensity)
        .value("low", &AskedState::low)
        .value("high", &AskedState::high)
        .column("job", &AskedState::job)
        .column("job_executors", &AskedState::job_executors)
        .column("job_arrival", &AskedState::job_arrival)
        .column("job_work", &AskedState::job_work)
        .column("stage_job", &AskedState::stage_job)
        .column("stage", &AskedState::stage)
        .column("stage_tasks", &AskedState::stage_tasks)
        .column("stage_way", &AskedState::stage_way);
    Columns<HeldStages>(m, "ClusterHeld", "Stages that could have run and were held.")
        .column("job", &HeldStages::job)
        .column("stage", &HeldStages::stage)
        .column("held", &HeldStages::held)
        .column("resumed", &HeldStages::resumed)
        .column("intensity", &HeldStages::intensity)
        .column("importance", &HeldStages::importance)
        .column("threshold", &HeldStages::threshold)
        .column("busy", &HeldStages::busy)
        .column("weighted", &HeldStages::weighted);
    Columns<TaskLog>(m, "ClusterLog", "Tasks that ran, in the order of their ends.")
        .column("job", &TaskLog::job)
        .column("stage", &TaskLog::stage)
        .column("executor", &TaskLog::executor)
        .column("wave", &TaskLog::wave)
        .column("failed", &TaskLog::failed)
        .column("start", &TaskLog::start)
        .column("end", &TaskLog::end);
    Columns<ClusterRun>(m, "ClusterRun", "What became of each job, and what was busy when.")
        .column("start", &ClusterRun::start)
        .column("finish", &ClusterRun::finish)
        .column("busy", &ClusterRun::busy)
        .column("weighted", &ClusterRun::weighted)
        .column("busy_at", &ClusterRun::busy_at)
        .column("cpu_at", &ClusterRun::cpu_at)
        .column("moving_at", &ClusterRun::moving_at)
        .column("on_at", &ClusterRun::on_at)
        .column("quota_at", &ClusterRun::quota_at)
        .value("end", &ClusterRun::end)
        .value("events", &ClusterRun::events)
        .value("tasks", &ClusterRun::tasks)
        .value("decisions", &ClusterRun::decisions)
        .value("holds", &ClusterRun::holds)
        .value("moves", &ClusterRun::moves)
        .value("starts", &ClusterRun::starts)
        .value("failed_tasks", &ClusterRun::failed_tasks)
        .value("failed_executors", &ClusterRun::failed_executors)
        .value("wasted", &ClusterRun::wasted)
        .value("held", &ClusterRun::held)
        .value("log", &ClusterRun::log)
        .value("unfinished", &ClusterRun::unfinished);
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
