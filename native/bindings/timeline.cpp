#include "engine/timeline.hpp"

#include "bindings/arrays.hpp"

namespace gnomon::bindings {

void bind_timeline(nb::module_& m) {
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
