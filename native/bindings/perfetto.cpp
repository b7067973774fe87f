#include "engine/perfetto.hpp"

#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include "bindings/arrays.hpp"

namespace gnomon::bindings {

void bind_perfetto(nb::module_& m) {
    nb::class_<PerfettoWriter>(m, "PerfettoWriter", "Writes a .pftrace file.")
        .def(nb::init<const std::string&>(), nb::arg("path"))
        .def("add_process", &PerfettoWriter::add_process, nb::arg("name"))
        .def("add_lane", &PerfettoWriter::add_lane, nb::arg("process"), nb::arg("name"))
        .def("add_counter", &PerfettoWriter::add_counter, nb::arg("process"), nb::arg("name"),
             nb::arg("unit"))
        .def(
            "write_slices",
            [](PerfettoWriter& w, In<std::uint64_t> lane_tracks, In<std::int32_t> lane,
               In<std::int64_t> start, In<std::int64_t> end, In<std::int32_t> name,
               In<std::uint8_t> kind, const std::vector<std::string>& names,
               const std::vector<std::string>& kinds, std::optional<In<std::uint8_t>> critical,
               std::optional<In<std::int32_t>> flow_from, std::optional<In<std::int32_t>> flow_to) {
                const auto n = lane.size();
                const auto within = [](const auto& column, std::size_t count) {
                    return all_within(view(column), 0, static_cast<std::int64_t>(count) - 1);
                };
                require(start.size() == n && end.size() == n && name.size() == n &&
                            kind.size() == n && (!critical || critical->size() == n) &&
                            flow_from.has_value() == flow_to.has_value() &&
                            (!flow_from || flow_from->size() == flow_to->size()),
                        "columns differ in length");
                require(within(lane, lane_tracks.size()) && within(name, names.size()) &&
                            within(kind, kinds.size()) && within(flow_from, n) && within(flow_to, n),
                        "a slice names a lane, name, kind or slice that does not exist");
                const Slices slices{view(lane), view(start),    view(end),       view(name),
                                    view(kind), view(critical), view(flow_from), view(flow_to)};
                const auto tracks = view(lane_tracks);
                nb::gil_scoped_release release;
                w.write_slices(slices, tracks, names, kinds);
            },
            nb::arg("lane_tracks").noconvert(), nb::arg("lane").noconvert(),
            nb::arg("start").noconvert(), nb::arg("end").noconvert(), nb::arg("name").noconvert(),
            nb::arg("kind").noconvert(), nb::arg("names"), nb::arg("kinds"),
            nb::arg("critical").noconvert().none() = nb::none(),
            nb::arg("flow_from").noconvert().none() = nb::none(),
            nb::arg("flow_to").noconvert().none() = nb::none())
        .def(
            "write_counter",
            [](PerfettoWriter& w, std::uint64_t track, In<std::int64_t> time, In<double> value) {
                require(time.size() == value.size(), "columns differ in length");
                w.write_counter(track, view(time), view(value));
            },
            nb::arg("track"), nb::arg("time").noconvert(), nb::arg("value").noconvert())
        .def("close", &PerfettoWriter::close);
}

}  // namespace gnomon::bindings
