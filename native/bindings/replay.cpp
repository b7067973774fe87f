#include "engine/replay/replay.hpp"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bindings/arrays.hpp"
#include "engine/replay/samples.hpp"
#include "engine/timeline.hpp"

namespace gnomon::bindings {
namespace {

using Ints = std::optional<In<std::int32_t>>;

// Keeps the arrays alive and hands out views of them.
struct Graph {
    In<std::int32_t> lane;
    In<std::int64_t> duration;
    In<std::int64_t> edge_offset;
    In<std::int32_t> edge_target;
    In<std::uint8_t> edge_kind;
    std::int32_t lanes;
    Ints group, wait_task, wait_lane;
    int issue_kind;

    void check() const {
        const auto n = static_cast<std::int64_t>(lane.size());
        const auto offset = view(edge_offset);
        require(n < INT32_MAX && duration.size() == lane.size(), "durations and lanes differ in length");
        require(offset.size() == lane.size() + 1 && offset.front() == 0 &&
                    offset.back() == static_cast<std::int64_t>(edge_target.size()) &&
                    std::is_sorted(offset.begin(), offset.end()),
                "edge offsets do not fit the tasks and edges");
        require(edge_kind.size() == edge_target.size(), "edge kinds and targets differ in length");
        require(all_within(view(lane), 0, lanes - 1), "a task is on a lane that does not exist");
        require(all_within(view(duration), 0, INT64_MAX), "a duration is negative");
        require(all_within(view(edge_target), 0, n - 1), "an edge ends at a task that does not exist");
        require(!group || (group->size() == lane.size() && all_within(view(group), -1, n - 1)),
                "rendezvous groups do not fit the tasks");
        require(wait_task.has_value() == wait_lane.has_value() &&
                    (!wait_task || wait_task->size() == wait_lane->size()),
                "waits need a task and a lane each");
        const auto waiting = view(wait_task);
        require(all_within(waiting, 0, n - 1) && std::is_sorted(waiting.begin(), waiting.end()) &&
                    all_within(view(wait_lane), 0, lanes - 1),
                "a wait names a task or lane that does not exist, or waits are not sorted");
    }

    [[nodiscard]] GraphView as_view() const {
        return {view(lane),  view(duration),  view(edge_offset), view(edge_target), view(edge_kind),
                lanes,       view(group),     view(wait_task),   view(wait_lane),   issue_kind};
    }
};

struct LimitArrays {
    In<std::int32_t> resource;
    std::optional<In<std::int64_t>> demand;
    In<std::int64_t> capacity;
};

struct SlowDownArrays {
    In<std::uint8_t> kind;
    Ints device;
    In<double> factor;
    std::int32_t kinds;
};

void check_options(const Graph& graph, const LimitArrays* limits, const SlowDownArrays* slow) {
    const auto n = graph.lane.size();
    if (limits != nullptr) {
        require(limits->resource.size() == n && (!limits->demand || limits->demand->size() == n) &&
                    all_within(view(limits->resource), -1,
                               static_cast<std::int64_t>(limits->capacity.size()) - 1) &&
                    all_within(view(limits->demand), 0, INT64_MAX),
                "limits do not fit the tasks");
    }
    if (slow != nullptr) {
        const auto kinds = static_cast<std::size_t>(slow->kinds);
        require(slow->kinds > 0 && slow->kind.size() == n && slow->factor.size() == kinds * kinds &&
                    all_within(view(slow->kind), 0, slow->kinds - 1) &&
                    (!slow->device || (slow->device->size() == n &&
                                       all_within(view(slow->device), 0, static_cast<std::int64_t>(n)))),
                "slow-down does not fit the tasks");
    }
}

struct Played {
    Replay replay;
};

nb::object play(const Graph& graph, const LimitArrays* limit_arrays,
                const SlowDownArrays* slow_arrays, bool causes) {
    check_options(graph, limit_arrays, slow_arrays);
    Played* played = new Played;
    nb::object result = nb::cast(played, nb::rv_policy::take_ownership);
    const GraphView graph_view = graph.as_view();
    Limits limits;
    SlowDown slow;
    if (limit_arrays != nullptr)
        limits = {view(limit_arrays->resource), view(limit_arrays->demand), view(limit_arrays->capacity)};
    if (slow_arrays != nullptr)
        slow = {view(slow_arrays->kind), view(slow_arrays->device), view(slow_arrays->factor),
                slow_arrays->kinds};
    {
        nb::gil_scoped_release release;
        played->replay = replay(graph_view, limit_arrays ? &limits : nullptr,
                                slow_arrays ? &slow : nullptr, causes);
    }
    return result;
}

auto play_samples(const Graph& graph, const In<std::int32_t>& cell, const In<double>& factor,
                  std::int64_t cells, const Ints& mark, std::int64_t marks, double noise,
                  std::uint64_t seed, std::uint64_t first) {
    require(cells > 0 && marks > 0 && factor.size() % static_cast<std::size_t>(cells) == 0,
            "factors are not a row of cells a sample");
    require(cell.size() == graph.lane.size() && all_within(view(cell), 0, cells - 1),
            "cells do not fit the tasks");
    require(!mark || (mark->size() == graph.lane.size() && all_within(view(mark), 0, marks - 1)),
            "marks do not fit the tasks");
    const Stretch stretch{view(cell), view(factor), cells, view(mark), marks, noise, seed, first};
    std::vector<std::int64_t> ends;
    {
        nb::gil_scoped_release release;
        ends = replay_samples(graph.as_view(), stretch);
    }
    return to_numpy(std::move(ends));
}

}  // namespace

void bind_replay(nb::module_& m) {
    nb::class_<Graph>(m, "Graph", "Columns of a work graph, checked by the caller.")
        .def(
            "__init__",
            [](Graph* self, In<std::int32_t> lane, In<std::int64_t> duration,
               In<std::int64_t> edge_offset, In<std::int32_t> edge_target,
               In<std::uint8_t> edge_kind, std::int32_t lanes, Ints group, Ints wait_task,
               Ints wait_lane, int issue_kind) {
                const Graph graph{lane,  duration, edge_offset, edge_target, edge_kind,
                                  lanes, group,    wait_task,   wait_lane,   issue_kind};
                graph.check();
                new (self) Graph(graph);
            },
            nb::arg("lane").noconvert(), nb::arg("duration").noconvert(),
            nb::arg("edge_offset").noconvert(), nb::arg("edge_target").noconvert(),
            nb::arg("edge_kind").noconvert(), nb::arg("lanes"),
            nb::arg("group").noconvert().none() = nb::none(),
            nb::arg("wait_task").noconvert().none() = nb::none(),
            nb::arg("wait_lane").noconvert().none() = nb::none(), nb::arg("issue_kind") = -1)
        .def("is_forward", [](const Graph& g) {
            nb::gil_scoped_release release;
            return is_forward(g.as_view());
        })
        .def("first_cycle", [](const Graph& g) {
            nb::gil_scoped_release release;
            return first_cycle(g.as_view());
        });

    nb::class_<LimitArrays>(m, "Limits", "Which task uses which resource, and how much there is.")
        .def(
            "__init__",
            [](LimitArrays* self, In<std::int32_t> resource, In<std::int64_t> capacity,
               std::optional<In<std::int64_t>> demand) {
                new (self) LimitArrays{resource, demand, capacity};
            },
            nb::arg("resource").noconvert(), nb::arg("capacity").noconvert(),
            nb::arg("demand").noconvert().none() = nb::none());

    nb::class_<SlowDownArrays>(m, "SlowDown", "How much kinds slow one another on a device.")
        .def(
            "__init__",
            [](SlowDownArrays* self, In<std::uint8_t> kind, In<double> factor, std::int32_t kinds,
               Ints device) { new (self) SlowDownArrays{kind, device, factor, kinds}; },
            nb::arg("kind").noconvert(), nb::arg("factor").noconvert(), nb::arg("kinds"),
            nb::arg("device").noconvert().none() = nb::none());

    nb::class_<Played>(m, "Played", "What a replay gave; each column can be taken once.")
        .def("take_start", [](Played& p) { return to_numpy(std::move(p.replay.start)); })
        .def("take_end", [](Played& p) { return to_numpy(std::move(p.replay.end)); })
        .def("take_cause", [](Played& p) { return to_numpy(std::move(p.replay.cause)); })
        .def("take_reason",
             [](Played& p) { return to_numpy<std::uint8_t>(std::move(p.replay.reason)); })
        .def_prop_ro("makespan", [](const Played& p) { return p.replay.makespan; })
        .def_prop_ro("finished", [](const Played& p) { return p.replay.finished; })
        .def_prop_ro("stuck_at", [](const Played& p) { return p.replay.stuck_at; })
        .def_prop_ro("stuck", [](const Played& p) { return p.replay.stuck; })
        .def_prop_ro("method", [](const Played& p) { return p.replay.method; });

    m.def("replay", &play, nb::arg("graph"), nb::arg("limits").none() = nb::none(),
          nb::arg("slow_down").none() = nb::none(), nb::arg("causes") = true,
          nb::sig("def replay(graph: Graph, limits: Limits | None = None, "
                  "slow_down: SlowDown | None = None, causes: bool = True) -> Played"),
          "Plays a graph; the rules are in native/engine/replay/replay.hpp.");

    m.def("replay_samples", &play_samples, nb::arg("graph"), nb::arg("cell").noconvert(),
          nb::arg("factor").noconvert(), nb::arg("cells"),
          nb::arg("mark").noconvert().none() = nb::none(), nb::arg("marks") = 1,
          nb::arg("noise") = 0.0, nb::arg("seed") = 0, nb::arg("first") = 0,
          "Latest end of each mark in every sample; empty when the graph cannot be played.");

    m.def(
        "class_overlap",
        [](In<std::int64_t> start, In<std::int64_t> end, In<std::uint8_t> span_class,
           std::optional<In<std::int32_t>> device, std::int32_t devices, std::int32_t classes) {
            const auto classified = view(span_class);
            require(end.size() == start.size() && classified.size() == start.size() &&
                        (!device || device->size() == start.size()),
                    "columns differ in length");
            require(classes >= 0 && classes <= 16 && devices >= 1 &&
                        all_within(view(device), 0, devices - 1) &&
                        std::all_of(classified.begin(), classified.end(),
                                    [=](std::uint8_t c) { return c < classes || c == no_class; }),
                    "a span has a class or device that does not exist");
            std::vector<std::int64_t> result;
            {
                nb::gil_scoped_release release;
                result = class_overlap(view(start), view(end), view(span_class), view(device),
                                       devices, classes);
            }
            return to_numpy(std::move(result));
        },
        nb::arg("start").noconvert(), nb::arg("end").noconvert(), nb::arg("span_class").noconvert(),
        nb::arg("device").noconvert().none(),
        nb::arg("devices"), nb::arg("classes"),
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
