#include "engine/trace/graph.hpp"
#include "engine/trace/reader.hpp"

#include <nanobind/stl/string.h>

#include "bindings/arrays.hpp"

namespace gnomon::bindings {
namespace {

// As bytes: names in traces need not be valid UTF-8, and Python decides what to do about that.
nb::list texts_of(const TextTable& table) {
    nb::list out;
    for (const auto& text : table.texts()) out.append(nb::bytes(text.data(), text.size()));
    return out;
}

void check(const TraceEvents& in) {
    const std::size_t n = in.start.size();
    require(in.end.size() == n && in.event_class.size() == n && in.flags.size() == n &&
                in.lane.size() == n && in.correlation.size() == n &&
                in.known_source.size() == in.known_target.size() && in.identity.size() == n &&
                in.step.size() == n,
            "columns differ in length");
    require(n <= 500'000'000, "more events than a graph can hold");
    require(in.host_lanes >= 0 && in.lanes >= in.host_lanes, "there are fewer lanes than host lanes");
    require(all_within(in.event_class, 0, 4), "an event has a class that does not exist");
    std::int64_t last_start = n > 0 ? in.start[0] : 0;
    for (std::size_t e = 0; e < n; ++e) {
        require(in.start[e] >= last_start, "events must be in order of their start");
        last_start = in.start[e];
        const auto what = static_cast<EventClass>(in.event_class[e]);
        if (what == EventClass::ignored) continue;
        const bool on_device = what == EventClass::device;
        require(in.lane[e] >= (on_device ? in.host_lanes : 0) &&
                    in.lane[e] < (on_device ? in.lanes : in.host_lanes),
                "an event lies on a lane that does not exist, or of the other side");
        require(in.start[e] >= 0 && in.end[e] >= in.start[e], "an event ends before it starts");
    }
    const auto last = static_cast<std::int64_t>(n) - 1;
    require(all_within(in.known_source, 0, last) && all_within(in.known_target, 0, last),
            "a known wait names an event that does not exist");
}

}  // namespace

void bind_trace(nb::module_& m) {
    nb::class_<TraceReader>(m, "TraceReader", "Chrome trace JSON to columns, piece by piece.")
        .def(nb::init<>())
        .def(
            "feed",
            [](TraceReader& reader, nb::bytes text) {
                const std::string_view view(text.c_str(), text.size());
                nb::gil_scoped_release release;
                reader.feed(view);
            },
            nb::arg("text"))
        .def("finish", &TraceReader::finish)
        .def("take_category", [](TraceReader& r) { return to_numpy(std::move(r.columns.category)); })
        .def("take_name", [](TraceReader& r) { return to_numpy(std::move(r.columns.name)); })
        .def("take_thread", [](TraceReader& r) { return to_numpy(std::move(r.columns.thread)); })
        .def("take_start_ns", [](TraceReader& r) { return to_numpy(std::move(r.columns.start_ns)); })
        .def("take_duration_ns",
             [](TraceReader& r) { return to_numpy(std::move(r.columns.duration_ns)); })
        .def("take_correlation",
             [](TraceReader& r) { return to_numpy(std::move(r.columns.correlation)); })
        .def("take_stream", [](TraceReader& r) { return to_numpy(std::move(r.columns.stream)); })
        .def("take_device", [](TraceReader& r) { return to_numpy(std::move(r.columns.device)); })
        .def("take_bytes", [](TraceReader& r) { return to_numpy(std::move(r.columns.bytes)); })
        .def("take_shape", [](TraceReader& r) { return to_numpy(std::move(r.columns.shape)); })
        .def("take_extra", [](TraceReader& r) { return to_numpy(std::move(r.columns.extra)); })
        .def("categories", [](const TraceReader& r) { return texts_of(r.categories); },
             nb::sig("def categories(self) -> list[bytes]"))
        .def("names", [](const TraceReader& r) { return texts_of(r.names); },
             nb::sig("def names(self) -> list[bytes]"))
        .def("threads", [](const TraceReader& r) { return texts_of(r.threads); },
             nb::sig("def threads(self) -> list[bytes]"))
        .def("shapes", [](const TraceReader& r) { return texts_of(r.shapes); },
             nb::sig("def shapes(self) -> list[bytes]"))
        .def("extras", [](const TraceReader& r) { return texts_of(r.extras); },
             nb::sig("def extras(self) -> list[bytes]"))
        .def("base_time",
             [](const TraceReader& r) { return nb::bytes(r.base_time.data(), r.base_time.size()); })
        .def("device_properties",
             [](const TraceReader& r) {
                 return nb::bytes(r.device_properties.data(), r.device_properties.size());
             })
        .def("distributed_info",
             [](const TraceReader& r) {
                 return nb::bytes(r.distributed_info.data(), r.distributed_info.size());
             })
        .def_ro("events", &TraceReader::events)
        .def_ro("without_end", &TraceReader::without_end)
        .def_ro("begin_end", &TraceReader::begin_end)
        .def_ro("odd_arguments", &TraceReader::odd_arguments);

    nb::class_<TraceGraph>(m, "TraceGraph", "Tasks, edges and waits rebuilt from a trace.")
        .def("take_lane", [](TraceGraph& g) { return to_numpy(std::move(g.lane)); })
        .def("take_event", [](TraceGraph& g) { return to_numpy(std::move(g.event)); })
        .def("take_start", [](TraceGraph& g) { return to_numpy(std::move(g.start)); })
        .def("take_end", [](TraceGraph& g) { return to_numpy(std::move(g.end)); })
        .def("take_sized", [](TraceGraph& g) { return to_numpy(std::move(g.sized)); })
        .def("take_kind", [](TraceGraph& g) { return to_numpy(std::move(g.kind)); })
        .def("take_launched_by", [](TraceGraph& g) { return to_numpy(std::move(g.launched_by)); })
        .def("take_source", [](TraceGraph& g) { return to_numpy(std::move(g.source)); })
        .def("take_target", [](TraceGraph& g) { return to_numpy(std::move(g.target)); })
        .def("take_edge_kind", [](TraceGraph& g) { return to_numpy(std::move(g.edge_kind)); })
        .def("take_wait_task", [](TraceGraph& g) { return to_numpy(std::move(g.wait_task)); })
        .def("take_wait_lane", [](TraceGraph& g) { return to_numpy(std::move(g.wait_lane)); })
        .def("take_inferred_source",
             [](TraceGraph& g) { return to_numpy(std::move(g.inferred_source)); })
        .def("take_inferred_target",
             [](TraceGraph& g) { return to_numpy(std::move(g.inferred_target)); })
        .def("take_confidence", [](TraceGraph& g) { return to_numpy(std::move(g.confidence)); })
        .def_ro("overlapping", &TraceGraph::overlapping)
        .def_ro("before_launch", &TraceGraph::before_launch)
        .def_ro("refuted", &TraceGraph::refuted);
    m.def(
        "build_trace_graph",
        [](In<std::int64_t> start, In<std::int64_t> end, In<std::uint8_t> event_class,
           In<std::uint8_t> flags, In<std::int32_t> lane, In<std::int64_t> correlation,
           std::int32_t host_lanes, std::int32_t lanes, In<std::int32_t> known_source,
           In<std::int32_t> known_target, In<std::int32_t> identity, In<std::int32_t> step) {
            const TraceEvents in{view(start), view(end), view(event_class), view(flags), view(lane),
                                 view(correlation), host_lanes, lanes, view(known_source),
                                 view(known_target), view(identity), view(step)};
            check(in);
            nb::gil_scoped_release release;
            return build_trace_graph(in);
        },
        nb::arg("start").noconvert(), nb::arg("end").noconvert(), nb::arg("event_class").noconvert(),
        nb::arg("flags").noconvert(), nb::arg("lane").noconvert(),
        nb::arg("correlation").noconvert(), nb::arg("host_lanes"), nb::arg("lanes"),
        nb::arg("known_source").noconvert(), nb::arg("known_target").noconvert(),
        nb::arg("identity").noconvert(), nb::arg("step").noconvert(),
        "Tasks, edges and waits of one trace.");
}

}  // namespace gnomon::bindings
