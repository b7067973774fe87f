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
                const Slices slices{view(lane), view(start),    view(end),       view(name),
                                    view(kind), view(critical), view(flow_from), view(flow_to)};
                const auto tracks = view(lane_tracks);
                nb::gil_scoped_release release;
                w.write_slices(slices, tracks, names, kinds);
            },
            nb::arg("lane_tracks"), nb::arg("lane"), nb::arg("start"), nb::arg("end"),
            nb::arg("name"), nb::arg("kind"), nb::arg("names"), nb::arg("kinds"),
            nb::arg("critical").none() = nb::none(), nb::arg("flow_from").none() = nb::none(),
            nb::arg("flow_to").none() = nb::none())
        .def(
            "write_counter",
            [](PerfettoWriter& w, std::uint64_t track, In<std::int64_t> time, In<double> value) {
                w.write_counter(track, view(time), view(value));
            },
            nb::arg("track"), nb::arg("time"), nb::arg("value"))
        .def("close", &PerfettoWriter::close);
}

}  // namespace gnomon::bindings
