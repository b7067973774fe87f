#include "engine/replay/replay.hpp"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bindings/structs.hpp"
#include "engine/index.hpp"
#include "engine/replay/samples.hpp"
#include "engine/timeline.hpp"

namespace gnomon::bindings {
namespace {

/// A column that may be left out.
template <typename T>
bool fits(std::span<const T> column, std::size_t count) {
    return column.empty() || column.size() == count;
}

void check_graph(const GraphView& graph) {
    const auto count = graph.lane.size();
    const auto n = static_cast<std::int64_t>(count);
    require(n < INT32_MAX && graph.duration.size() == count, "durations and lanes differ in length");
    require(starts_ranges(graph.edge_offset, count, graph.edge_target.size()),
            "edge offsets do not fit the tasks and edges");
    require(graph.edge_kind.size() == graph.edge_target.size(), "edge kinds and targets differ in length");
    require(all_within(graph.lane, 0, graph.lanes - 1), "a task is on a lane that does not exist");
    require(all_within(graph.duration, 0, INT64_MAX), "a duration is negative");
    require(all_within(graph.edge_target, 0, n - 1), "an edge ends at a task that does not exist");
    require(fits(graph.group, count) && all_within(graph.group, -1, n - 1), "rendezvous groups do not fit the tasks");
    require(graph.wait_task.size() == graph.wait_lane.size(), "waits need a task and a lane each");
    require(all_within(graph.wait_task, 0, n - 1) && is_rising(graph.wait_task) &&
                all_within(graph.wait_lane, 0, graph.lanes - 1),
            "a wait names a task or lane that does not exist, or waits are not sorted");
}

void check_limits(const Limits& limits) {
    require(fits(limits.demand, limits.resource.size()) && all_within(limits.demand, 0, INT64_MAX) &&
                all_within(limits.resource, -1, static_cast<std::int64_t>(limits.capacity.size()) - 1),
            "limits do not fit the tasks");
}

void check_slow_down(const SlowDown& slow) {
    const auto kinds = index(slow.kinds), count = slow.kind.size();
    require(slow.kinds > 0 && slow.factor.size() == kinds * kinds && all_within(slow.kind, 0, slow.kinds - 1) &&
                fits(slow.device, count) && all_within(slow.device, 0, static_cast<std::int64_t>(count)),
            "slow-down does not fit the tasks");
}

void check_stretch(const Stretch& stretch) {
    require(stretch.cells > 0 && stretch.marks > 0 && stretch.factor.size() % index(stretch.cells) == 0,
            "factors are not a row of cells a sample");
    require(all_within(stretch.cell, 0, stretch.cells - 1), "cells do not fit the tasks");
    require(fits(stretch.mark, stretch.cell.size()) && all_within(stretch.mark, 0, stretch.marks - 1),
            "marks do not fit the tasks");
}

}  // namespace

void bind_replay(nb::module_& m) {
    bind_input(m, "Graph", "Columns of a work graph.", &check_graph, required("lane", &GraphView::lane),
               required("duration", &GraphView::duration), required("edge_offset", &GraphView::edge_offset),
               required("edge_target", &GraphView::edge_target), required("edge_kind", &GraphView::edge_kind),
               required("lanes", &GraphView::lanes), optional("group", &GraphView::group),
               optional("wait_task", &GraphView::wait_task), optional("wait_lane", &GraphView::wait_lane),
               optional("issue_kind", &GraphView::issue_kind))
        .def(
            "is_forward", [](const Passed<GraphView>& graph) { return is_forward(graph); },
            nb::call_guard<nb::gil_scoped_release>())
        .def(
            "first_cycle", [](const Passed<GraphView>& graph) { return first_cycle(graph); },
            nb::call_guard<nb::gil_scoped_release>());
    bind_input(m, "Limits", "Which task uses which resource, and how much there is.", &check_limits,
               required("resource", &Limits::resource), required("capacity", &Limits::capacity),
               optional("demand", &Limits::demand));
    bind_input(m, "SlowDown", "How much kinds slow one another on a device.", &check_slow_down,
               required("kind", &SlowDown::kind), required("factor", &SlowDown::factor),
               required("kinds", &SlowDown::kinds), optional("device", &SlowDown::device));
    bind_input(m, "Stretch", "By what each sample stretches the durations.", &check_stretch,
               required("cell", &Stretch::cell), required("factor", &Stretch::factor),
               required("cells", &Stretch::cells), optional("mark", &Stretch::mark), optional("marks", &Stretch::marks),
               optional("noise", &Stretch::noise), optional("seed", &Stretch::seed),
               optional("first", &Stretch::first));
    bind_result<Replay>(
        m, "Played", "What a replay gave; each column can be taken once.", Taken{"take_start", &Replay::start},
        Taken{"take_end", &Replay::end}, Taken{"take_cause", &Replay::cause}, Taken{"take_reason", &Replay::reason},
        Value{"makespan", &Replay::makespan}, Value{"finished", &Replay::finished},
        Value{"stuck_at", &Replay::stuck_at}, Value{"stuck", &Replay::stuck}, Value{"method", &Replay::method});
    m.def(
        "replay",
        [](const Passed<GraphView>& graph, const Passed<Limits>* limits, const Passed<SlowDown>* slow_down,
           bool causes) {
            const auto tasks = graph.lane.size();
            require(limits == nullptr || limits->resource.size() == tasks, "limits do not fit the tasks");
            require(slow_down == nullptr || slow_down->kind.size() == tasks, "slow-down does not fit the tasks");
            nb::gil_scoped_release release;
            return replay(graph, limits, slow_down, causes);
        },
        nb::arg("graph"), nb::kw_only(), nb::arg("limits").none() = nb::none(),
        nb::arg("slow_down").none() = nb::none(), nb::arg("causes") = true,
        "Plays a graph; the rules are in native/engine/replay/replay.hpp.");
    m.def(
        "replay_samples",
        [](const Passed<GraphView>& graph, const Passed<Stretch>& stretch) {
            require(stretch.cell.size() == graph.lane.size(), "cells do not fit the tasks");
            std::vector<std::int64_t> ends;
            {
                nb::gil_scoped_release release;
                ends = replay_samples(graph, stretch);
            }
            return to_numpy(std::move(ends));
        },
        nb::arg("graph"), nb::arg("stretch"),
        "Latest end of each mark in every sample; empty when the graph cannot be played.");
    m.def(
        "class_overlap",
        [](In<std::int64_t> start, In<std::int64_t> end, In<std::uint8_t> span_class, In<std::int32_t> device,
           std::int32_t devices, std::int32_t classes) {
            const auto classified = view(span_class);
            require(end.size() == start.size() && classified.size() == start.size() && fits(view(device), start.size()),
                    "columns differ in length");
            require(classes >= 0 && classes <= 16 && devices >= 1 && all_within(view(device), 0, devices - 1) &&
                        std::all_of(classified.begin(), classified.end(),
                                    [=](std::uint8_t c) { return c < classes || c == no_class; }),
                    "a span has a class or device that does not exist");
            std::vector<std::int64_t> result;
            {
                nb::gil_scoped_release release;
                result = class_overlap(view(start), view(end), view(span_class), view(device), devices, classes);
            }
            return to_numpy(std::move(result));
        },
        nb::arg("start").noconvert(), nb::arg("end").noconvert(), nb::arg("span_class").noconvert(),
        nb::arg("device").noconvert().none(), nb::arg("devices"), nb::arg("classes"),
        "Nanoseconds in which exactly each set of classes was active, device by device.");
    m.def(
        "follow_causes",
        [](In<std::int32_t> cause, std::int32_t from) {
            const auto n = static_cast<std::int64_t>(cause.size());
            require(from >= 0 && from < n && all_within(view(cause), -1, n - 1),
                    "a cause is a task that does not exist");
            return to_numpy(follow_causes(view(cause), from));
        },
        nb::arg("cause").noconvert(), nb::arg("from_task"), "The chain of causes, latest first.");
}

}  // namespace gnomon::bindings
