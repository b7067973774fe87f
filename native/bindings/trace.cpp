#include <nanobind/stl/string.h>

#include "bindings/structs.hpp"
#include "engine/trace/graph.hpp"
#include "engine/trace/reader.hpp"

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
    require(in.end.size() == n && in.event_class.size() == n && in.flags.size() == n && in.lane.size() == n &&
                in.correlation.size() == n && in.known_source.size() == in.known_target.size() &&
                in.identity.size() == n && in.step.size() == n,
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
        require(in.lane[e] >= (on_device ? in.host_lanes : 0) && in.lane[e] < (on_device ? in.lanes : in.host_lanes),
                "an event lies on a lane that does not exist, or of the other side");
        require(in.start[e] >= 0 && in.end[e] >= in.start[e], "an event ends before it starts");
    }
    const auto last = static_cast<std::int64_t>(n) - 1;
    require(all_within(in.known_source, 0, last) && all_within(in.known_target, 0, last),
            "a known wait names an event that does not exist");
}

}  // namespace

void bind_trace(nb::module_& m) {
    bind_result<TraceColumns>(
        m, "TraceColumns", "Complete events, as they stand in the trace.",
        Taken{"take_category", &TraceColumns::category}, Taken{"take_name", &TraceColumns::name},
        Taken{"take_thread", &TraceColumns::thread}, Taken{"take_start_ns", &TraceColumns::start_ns},
        Taken{"take_duration_ns", &TraceColumns::duration_ns}, Taken{"take_correlation", &TraceColumns::correlation},
        Taken{"take_stream", &TraceColumns::stream}, Taken{"take_device", &TraceColumns::device},
        Taken{"take_bytes", &TraceColumns::bytes}, Taken{"take_shape", &TraceColumns::shape},
        Taken{"take_extra", &TraceColumns::extra});
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
    bind_result<TraceGraph>(
        m, "TraceGraph", "Tasks, edges and waits rebuilt from a trace.", Taken{"take_lane", &TraceGraph::lane},
        Taken{"take_event", &TraceGraph::event}, Taken{"take_start", &TraceGraph::start},
        Taken{"take_end", &TraceGraph::end}, Taken{"take_sized", &TraceGraph::sized},
        Taken{"take_kind", &TraceGraph::kind}, Taken{"take_launched_by", &TraceGraph::launched_by},
        Taken{"take_source", &TraceGraph::source}, Taken{"take_target", &TraceGraph::target},
        Taken{"take_edge_kind", &TraceGraph::edge_kind}, Taken{"take_wait_task", &TraceGraph::wait_task},
        Taken{"take_wait_lane", &TraceGraph::wait_lane}, Taken{"take_inferred_source", &TraceGraph::inferred_source},
        Taken{"take_inferred_target", &TraceGraph::inferred_target}, Taken{"take_confidence", &TraceGraph::confidence},
        Value{"overlapping", &TraceGraph::overlapping}, Value{"before_launch", &TraceGraph::before_launch},
        Value{"refuted", &TraceGraph::refuted});
    m.def(
        "build_trace_graph",
        [](const Passed<TraceEvents>& events) {
            nb::gil_scoped_release release;
            return build_trace_graph(events);
        },
        nb::arg("events"), "Tasks, edges and waits of one trace.");
}

}  // namespace gnomon::bindings
