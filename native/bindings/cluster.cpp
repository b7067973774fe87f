#include "engine/cluster/cluster.hpp"

#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <string>

#include "bindings/arrays.hpp"
#include "engine/cluster/carbon_rules.hpp"
#include "engine/cluster/decima_order.hpp"
#include "engine/cluster/gates.hpp"
#include "engine/cluster/orders.hpp"

namespace gnomon::bindings {
namespace {

/// A column of a tuple of columns; the tuple keeps it alive.
template <typename T>
std::span<const T> column(const nb::tuple& columns, std::size_t place) {
    return view(nb::cast<In<T>>(columns[place], false));
}

template <typename T>
bool is_rising(std::span<const T> values) {
    return std::is_sorted(values.begin(), values.end());
}

JobKindColumns kinds_of(const nb::tuple& c) {
    JobKindColumns kinds{column<std::int64_t>(c, 0), column<std::int32_t>(c, 1), column<std::int64_t>(c, 2),
                         column<std::int32_t>(c, 3), column<std::int32_t>(c, 4), column<std::int64_t>(c, 5),
                         column<std::int32_t>(c, 6), column<std::int64_t>(c, 7), column<std::int64_t>(c, 8),
                         column<double>(c, 9),       column<double>(c, 10),      column<double>(c, 11)};
    const auto stages = kinds.tasks.size();
    const auto runs = stages * kWaves * kinds.levels.size();
    require(!kinds.first_stage.empty() && kinds.first_stage[0] == 0 && is_rising(kinds.first_stage) &&
                kinds.first_stage.back() == static_cast<std::int64_t>(stages) && stages < (1U << 30),
            "kinds do not hold all stages");
    require(kinds.first_parent.size() == stages + 1 && kinds.first_parent[0] == 0 && is_rising(kinds.first_parent) &&
                kinds.first_parent.back() == static_cast<std::int64_t>(kinds.parents.size()),
            "stages do not hold all parents");
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
    require(all_within(kinds.sample, 1, std::int64_t{1} << 60), "a duration lies under a nanosecond or over 36 years");
    require(kinds.cpu.size() == stages && kinds.typical.size() == stages && kinds.path.size() == stages &&
                kinds.work_at_level.size() == (kinds.first_stage.size() - 1) * kinds.levels.size(),
            "a column of stages is too short");
    return kinds;
}

JobColumns jobs_of(const nb::tuple& c, const JobKindColumns& kinds) {
    JobColumns jobs{column<std::int32_t>(c, 0), column<std::int64_t>(c, 1), column<std::int32_t>(c, 2),
                    column<std::int32_t>(c, 3), column<std::int64_t>(c, 4), column<double>(c, 5)};
    const auto count = jobs.kind.size();
    require(jobs.arrival.size() == count && jobs.after.size() == count && jobs.application.size() == count &&
                jobs.deadline.size() == count && jobs.weight.size() == count && count < (1U << 30),
            "a column of jobs is too short");
    require(all_within(jobs.kind, 0, static_cast<std::int64_t>(kinds.first_stage.size()) - 2) &&
                all_within(jobs.arrival, 0, std::int64_t{1} << 60) && all_within(jobs.application, 0, 1 << 30),
            "a job's kind, arrival or application is none");
    for (std::size_t j = 0; j < count; ++j) {
        require(jobs.after[j] >= -1 && jobs.after[j] < static_cast<std::int32_t>(j) && jobs.weight[j] > 0.0,
                "a job comes after one that is not before it, or has no weight");
    }
    return jobs;
}

ExecutorSettings executors_of(std::int32_t count, const std::optional<In<double>>& speed,
                              const nb::object& stays, const nb::tuple& times,
                              const nb::tuple& chances) {
    ExecutorSettings settings;
    settings.count = count;
    settings.speed = view(speed);
    if (!stays.is_none()) {
        const auto columns = nb::cast<nb::tuple>(stays);
        settings.from = column<std::int64_t>(columns, 0);
        settings.until = column<std::int64_t>(columns, 1);
        require(settings.from.size() == static_cast<std::size_t>(count) && settings.until.size() == settings.from.size(),
                "every executor comes and leaves");
        for (std::size_t e = 0; e < settings.from.size(); ++e) {
            require(settings.from[e] >= 0 && settings.from[e] < settings.until[e], "an executor leaves after it has come");
        }
    }
    settings.moving_delay = nb::cast<std::int64_t>(times[0]);
    settings.startup = nb::cast<std::int64_t>(times[1]);
    settings.off_after = nb::cast<std::int64_t>(times[2]);
    settings.straggler_chance = nb::cast<double>(chances[0]);
    settings.straggler_factor = nb::cast<double>(chances[1]);
    settings.task_failure_chance = nb::cast<double>(chances[2]);
    settings.failures_per_ns = nb::cast<double>(chances[3]);
    require(count >= 1 && count < (1 << 24), "a cluster has from 1 to 16 million executors");
    require(settings.speed.empty() ||
                (settings.speed.size() == static_cast<std::size_t>(count) &&
                 std::all_of(settings.speed.begin(), settings.speed.end(), [](double s) { return s > 1e-6 && s < 1e6; })),
            "every executor needs a speed above zero");
    const auto is_chance = [](double p) { return p >= 0.0 && p < 1.0; };
    const auto is_span = [](std::int64_t t) { return t >= 0 && (t <= std::int64_t{1} << 60 || t == kNever); };
    require(is_span(settings.moving_delay) && settings.moving_delay != kNever && is_span(settings.startup) &&
                settings.startup != kNever && is_span(settings.off_after) &&
                is_chance(settings.straggler_chance) && settings.straggler_factor > 0.0 &&
                settings.straggler_factor < 1e6 && is_chance(settings.task_failure_chance) &&
                settings.failures_per_ns >= 0.0,
            "delays are not below zero, chances lie from 0 up to but not at 1");
    return settings;
}

GridColumns grid_of(std::int64_t step, const nb::object& columns, std::int32_t horizon) {
    require(step >= 1, "a step of the grid takes time");
    GridColumns grid;
    grid.step = step;
    if (columns.is_none()) return grid;
    const auto c = nb::cast<nb::tuple>(columns);
    grid.actual = column<double>(c, 0);
    grid.seen = column<double>(c, 1);
    grid.low = column<double>(c, 2);
    grid.high = column<double>(c, 3);
    grid.outlook = column<double>(c, 4);
    grid.horizon = horizon;
    const auto steps = grid.seen.size();
    require(steps >= 1 && grid.actual.size() >= 1 && grid.low.size() == steps && grid.high.size() == steps &&
                horizon >= 1 && grid.outlook.size() == steps * static_cast<std::size_t>(horizon),
            "a column of the grid is too short");
    return grid;
}

/// What a policy in Python is shown: copies, which it may keep.
nb::object ask(const nb::callable& choose, const ClusterState& state, std::vector<Candidate>& candidates) {
    std::vector<std::int32_t> number, held;
    std::vector<std::int64_t> arrival;
    std::vector<double> left;
    std::vector<std::int32_t> job_at, stage, unstarted;
    std::vector<double> way;
    candidates.clear();
    for (const auto slot : state.active()) {
        const auto& job = state.job(slot);
        const auto place = static_cast<std::int32_t>(number.size());
        number.push_back(job.job);
        held.push_back(job.executors);
        arrival.push_back(job.arrival);
        left.push_back(job.work_left);
        if (!state.is_served(slot)) continue;
        for (const auto s : job.ready) {
            if (!state.is_open(slot, s)) continue;
            candidates.push_back({slot, s});
            job_at.push_back(place);
            stage.push_back(s);
            unstarted.push_back(job.stage[static_cast<std::size_t>(s)].unstarted);
            way.push_back(state.kinds().path[static_cast<std::size_t>(job.first_stage + s)]);
        }
    }
    if (candidates.empty()) return nb::none();  // all that is ready is served already
    const auto grid = state.has_grid() ? nb::make_tuple(state.intensity(), state.low(), state.high())
                                       : nb::make_tuple();
    std::int32_t source = -1;
    for (std::size_t j = 0; j < state.active().size(); ++j) {
        if (state.active()[j] == state.source()) source = static_cast<std::int32_t>(j);
    }
    return choose(state.now(), nb::make_tuple(state.executors(), state.idle(), state.busy(), source), grid,
                  nb::make_tuple(to_numpy(std::move(number)), to_numpy(std::move(held)), to_numpy(std::move(arrival)),
                                 to_numpy(std::move(left))),
                  nb::make_tuple(to_numpy(std::move(job_at)), to_numpy(std::move(stage)), to_numpy(std::move(unstarted)),
                                 to_numpy(std::move(way))));
}

std::shared_ptr<Order> asked_order(nb::callable choose) {
    return std::make_shared<AskedOrder>([choose, candidates = std::vector<Candidate>()](
                                            const ClusterState& state, Rng&) mutable -> Choice {
        nb::gil_scoped_acquire acquire;
        const auto reply = ask(choose, state, candidates);
        if (candidates.empty()) return {};
        const auto answer = nb::cast<nb::tuple>(reply);
        const auto place = nb::cast<std::int64_t>(answer[0]);
        Choice choice;
        if (place < 0) {
            choice.held = !candidates.empty();
            return choice;
        }
        require(place < static_cast<std::int64_t>(candidates.size()), "a policy chose a stage that is not there");
        const auto& chosen = candidates[static_cast<std::size_t>(place)];
        choice.slot = chosen.slot;
        choice.stage = chosen.stage;
        choice.limit = nb::cast<std::int32_t>(answer[1]);
        return choice;
    });
}

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

template <typename Row, typename Field>
auto field(const std::vector<Row>& rows, Field Row::*member) {
    std::vector<std::conditional_t<std::is_same_v<Field, bool>, std::uint8_t, Field>> values;
    values.reserve(rows.size());
    for (const auto& row : rows) values.push_back(row.*member);
    return to_numpy(std::move(values));
}

nb::dict to_dict(ClusterRun&& run) {
    nb::dict out;
    out["start"] = to_numpy(std::move(run.start));
    out["finish"] = to_numpy(std::move(run.finish));
    out["busy"] = to_numpy(std::move(run.busy));
    out["weighted"] = to_numpy(std::move(run.weighted));
    out["busy_at"] = to_numpy(std::move(run.busy_at));
    out["cpu_at"] = to_numpy(std::move(run.cpu_at));
    out["moving_at"] = to_numpy(std::move(run.moving_at));
    out["on_at"] = to_numpy(std::move(run.on_at));
    out["quota_at"] = to_numpy(std::move(run.quota_at));
    out["end"] = run.end;
    out["events"] = run.events;
    out["tasks"] = run.tasks;
    out["decisions"] = run.decisions;
    out["holds"] = run.holds;
    out["moves"] = run.moves;
    out["starts"] = run.starts;
    out["failed_tasks"] = run.failed_tasks;
    out["failed_executors"] = run.failed_executors;
    out["wasted"] = run.wasted;
    out["unfinished"] = run.unfinished;
    out["held"] = nb::make_tuple(
        field(run.held, &HeldStage::job), field(run.held, &HeldStage::stage), field(run.held, &HeldStage::held),
        field(run.held, &HeldStage::resumed), field(run.held, &HeldStage::intensity),
        field(run.held, &HeldStage::importance), field(run.held, &HeldStage::threshold),
        field(run.held, &HeldStage::busy), field(run.held, &HeldStage::weighted));
    out["records"] = nb::make_tuple(
        field(run.records, &TaskRecord::job), field(run.records, &TaskRecord::stage),
        field(run.records, &TaskRecord::executor), field(run.records, &TaskRecord::wave),
        field(run.records, &TaskRecord::failed), field(run.records, &TaskRecord::start),
        field(run.records, &TaskRecord::end));
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
    m.def("asked_order", &asked_order, nb::arg("choose"), "An order that asks a function of Python.");
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

}  // namespace

void bind_cluster(nb::module_& m) {
    bind_orders(m);
    bind_gates(m);
    bind_rules(m);
    m.def(
        "run_cluster",
        [](nb::tuple kinds, nb::tuple jobs, std::int32_t executors, std::optional<In<double>> speed, nb::object stays, nb::tuple times,
           nb::tuple chances, std::int64_t grid_step, nb::object grid, std::int32_t horizon, nb::tuple guard,
           std::shared_ptr<Order> order, std::vector<std::shared_ptr<Gate>> gates, std::uint64_t seed,
           std::uint64_t policy_seed, bool record_tasks, bool record_holds) {
            ClusterInput input;
            input.kinds = kinds_of(kinds);
            input.jobs = jobs_of(jobs, input.kinds);
            input.executors = executors_of(executors, speed, stays, times, chances);
            input.grid = grid_of(grid_step, grid, horizon);
            input.guard = {nb::cast<std::int64_t>(guard[0]), nb::cast<std::int64_t>(guard[1]), nb::cast<std::int64_t>(guard[2])};
            const auto is_bound = [](std::int64_t t) { return t >= 0 && (t <= std::int64_t{1} << 60 || t == kNever); };
            require(is_bound(input.guard.patience) && is_bound(input.guard.longest_hold) && is_bound(input.guard.finish_by),
                    "a guard's bounds are not below zero, nor 36 years off");
            require(gates.empty() || !input.grid.seen.empty(), "a gate needs a grid");
            input.seed = seed;
            input.policy_seed = policy_seed;
            input.record_tasks = record_tasks;
            input.record_holds = record_holds;
            std::vector<Gate*> asked;
            for (const auto& gate : gates) asked.push_back(gate.get());
            ClusterRun run;
            {
                nb::gil_scoped_release release;
                run = run_cluster(input, *order, asked);
            }
            return to_dict(std::move(run));
        },
        nb::arg("kinds"), nb::arg("jobs"), nb::arg("executors"), nb::arg("speed").none(), nb::arg("stays").none(), nb::arg("times"),
        nb::arg("chances"), nb::arg("grid_step"), nb::arg("grid").none(), nb::arg("horizon"), nb::arg("guard"),
        nb::arg("order"), nb::arg("gates"), nb::arg("seed"), nb::arg("policy_seed"), nb::arg("record_tasks"), nb::arg("record_holds"),
        "Runs jobs on a cluster: what came of each, and what was busy when.");
}

}  // namespace gnomon::bindings
