#include "engine/trace/graph.hpp"
#include "engine/trace/reader.hpp"

#include <nanobind/stl/string.h>

#include "bindings/structs.hpp"

namespace gnomon::bindings {
namespace {

// As bytes: names in traces need not be valid UTF-8, and Python decides what to do about that.
nb::bytes bytes_of(const std::string& text) { return nb::bytes(text.data(), text.size()); }

nb::typed<nb::list, nb::bytes> texts_of(const TextTable& table) {
    nb::typed<nb::list, nb::bytes> out;
    for (const auto& text : table.texts()) out.append(bytes_of(text));
    return out;
}

void check_events(const TraceEvents& in) {
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
    Columns<TraceColumns>(m, "TraceColumns", "Complete events, as they stand in the trace.")
        .taken("take_category", &TraceColumns::category)
        .taken("take_name", &TraceColumns::name)
        .taken("take_thread", &TraceColumns::thread)
        .taken("take_start_ns", &TraceColumns::start_ns)
        .taken("take_duration_ns", &TraceColumns::duration_ns)
        .taken("take_correlation", &TraceColumns::correlation)
        .taken("take_stream", &TraceColumns::stream)
        .taken("take_device", &TraceColumns::device)
        .taken("take_bytes", &TraceColumns::bytes)
        .taken("take_shape", &TraceColumns::shape)
        .taken("take_extra", &TraceColumns::extra);
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
        .def(
            "finish",
            [](TraceReader& reader) {
                reader.finish();
                return std::move(reader.columns);
            },
            "The columns of all events.")
        .def("categories", [](const TraceReader& r) { return texts_of(r.categories); })
        .def("names", [](const TraceReader& r) { return texts_of(r.names); })
        .def("threads", [](const TraceReader& r) { return texts_of(r.threads); })
        .def("shapes", [](const TraceReader& r) { return texts_of(r.shapes); })
        .def("extras", [](const TraceReader& r) { return texts_of(r.extras); })
        .def("base_time", [](const TraceReader& r) { return bytes_of(r.base_time); })
        .def("device_properties", [](const TraceReader& r) { return bytes_of(r.device_properties); })
        .def("distributed_info", [](const TraceReader& r) { return bytes_of(r.distributed_info); })
        .def_ro("events", &TraceReader::events)
        .def_ro("without_end", &TraceReader::without_end)
        .def_ro("begin_end", &TraceReader::begin_end)
        .def_ro("odd_arguments", &TraceReader::odd_arguments);

    using Events = TraceEvents;
    bind_input(m, "TraceEvents", "Events of one trace, in order of their start.", &check_events,
               required("start", &Events::start), required("end", &Events::end),
               required("event_class", &Events::event_class), required("flags", &Events::flags),
               required("lane", &Events::lane), required("correlation", &Events::correlation),
               required("host_lanes", &Events::host_lanes), required("lanes", &Events::lanes),
               required("known_source", &Events::known_source), required("known_target", &Events::known_target),
               required("identity", &Events::identity), required("step", &Events::step));
    Columns<TraceGraph>(m, "TraceGraph", "Tasks, edges and waits rebuilt from a trace.")
        .taken("take_lane", &TraceGraph::lane)
        .taken("take_event", &TraceGraph::event)
        .taken("take_start", &TraceGraph::start)
        .taken("take_end", &TraceGraph::end)
        .taken("take_sized", &TraceGraph::sized)
        .taken("take_kind", &TraceGraph::kind)
        .taken("take_launched_by", &TraceGraph::launched_by)
        .taken("take_source", &TraceGraph::source)
        .taken("take_target", &TraceGraph::target)
        .taken("take_edge_kind", &TraceGraph::edge_kind)
        .taken("take_wait_task", &TraceGraph::wait_task)
        .taken("take_wait_lane", &TraceGraph::wait_lane)
        .taken("take_inferred_source", &TraceGraph::inferred_source)
        .taken("take_inferred_target", &TraceGraph::inferred_target)
        .taken("take_confidence", &TraceGraph::confidence)
        .value("overlapping", &TraceGraph::overlapping)
        .value("before_launch", &TraceGraph::before_launch)
        .value("refuted", &TraceGraph::refuted);
    m.def(
        "build_trace_graph",
        [](const Passed<TraceEvents>& events) {
            nb::gil_scoped_release release;
            return build_trace_graph(events);
        },
        nb::arg("events"), "Tasks, edges and waits of one trace.");
}

}  // namespace gnomon::bindings
