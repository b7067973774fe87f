#include "engine/perfetto.hpp"

#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include "bindings/structs.hpp"

namespace gnomon::bindings {

namespace {

template <typename T>
bool within(std::span<const T> column, std::size_t count) {
    return all_within(column, 0, static_cast<std::int64_t>(count) - 1);
}

void check_slices(const Slices& slices) {
    const auto n = slices.lane.size();
    require(slices.start.size() == n && slices.end.size() == n && slices.name.size() == n && slices.kind.size() == n &&
                (slices.critical.empty() || slices.critical.size() == n) &&
                slices.flow_from.size() == slices.flow_to.size(),
            "columns differ in length");
    require(within(slices.flow_from, n) && within(slices.flow_to, n), "an arrow names a slice that does not exist");
}

}  // namespace

void bind_perfetto(nb::module_& m) {
    bind_input(m, "Slices", "Tasks as Perfetto shows them.", &check_slices, required("lane", &Slices::lane),
               required("start", &Slices::start), required("end", &Slices::end), required("name", &Slices::name),
               required("kind", &Slices::kind), optional("critical", &Slices::critical),
               optional("flow_from", &Slices::flow_from), optional("flow_to", &Slices::flow_to));
    nb::class_<PerfettoWriter>(m, "PerfettoWriter", "Writes a .pftrace file.")
        .def(nb::init<const std::string&>(), nb::arg("path"))
        .def("add_process", &PerfettoWriter::add_process, nb::arg("name"))
        .def("add_lane", &PerfettoWriter::add_lane, nb::arg("process"), nb::arg("name"))
        .def("add_counter", &PerfettoWriter::add_counter, nb::arg("process"), nb::arg("name"), nb::arg("unit"))
        .def(
            "write_slices",
            [](PerfettoWriter& w, const Passed<Slices>& slices, In<std::uint64_t> lane_tracks,
               const std::vector<std::string>& names, const std::vector<std::string>& kinds) {
                require(within(slices.lane, lane_tracks.size()) && within(slices.name, names.size()) &&
                            within(slices.kind, kinds.size()),
                        "a slice names a lane, name or kind that does not exist");
                const auto tracks = view(lane_tracks);
                nb::gil_scoped_release release;
                w.write_slices(slices, tracks, names, kinds);
            },
            nb::arg("slices"), nb::kw_only(), nb::arg("lane_tracks").noconvert(), nb::arg("names"), nb::arg("kinds"))
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
