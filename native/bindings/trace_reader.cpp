#include "engine/trace_reader.hpp"

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

}  // namespace

void bind_trace_reader(nb::module_& m) {
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
}

}  // namespace gnomon::bindings
