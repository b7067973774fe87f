#include "engine/timeline.hpp"

#include "bindings/arrays.hpp"

namespace gnomon::bindings {

void bind_timeline(nb::module_& m) {
    m.def(
        "class_overlap",
        [](In<std::int64_t> start, In<std::int64_t> end, In<std::uint8_t> span_class,
           std::optional<In<std::int32_t>> device, std::int32_t devices, std::int32_t classes) {
            std::vector<std::int64_t> result;
            {
                nb::gil_scoped_release release;
                result = class_overlap(view(start), view(end), view(span_class), view(device),
                                       devices, classes);
            }
            return to_numpy(std::move(result));
        },
        nb::arg("start"), nb::arg("end"), nb::arg("span_class"), nb::arg("device").none(),
        nb::arg("devices"), nb::arg("classes"),
        "Nanoseconds in which exactly each set of classes was active, device by device.");
    m.def(
        "follow_causes",
        [](In<std::int32_t> cause, std::int32_t from) {
            return to_numpy(follow_causes(view(cause), from));
        },
        nb::arg("cause"), nb::arg("from_task"), "The chain of causes, latest first.");
}

}  // namespace gnomon::bindings
