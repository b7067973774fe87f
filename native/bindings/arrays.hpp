// Arrays cross the border without copies: inputs as spans over NumPy's memory, outputs as vectors
// that NumPy then owns.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <stdexcept>
#include <utility>
#include <vector>

namespace gnomon::bindings {

namespace nb = nanobind;

template <typename T>
using In = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

template <typename T>
std::span<const T> view(const In<T>& array) {
    return {array.data(), array.size()};
}

template <typename T>
std::span<const T> view(const std::optional<In<T>>& array) {
    return array ? view(*array) : std::span<const T>{};
}

template <typename T, typename Source>
auto to_numpy(std::vector<Source>&& values) {
    static_assert(sizeof(T) == sizeof(Source));
    auto* owned = new std::vector<Source>(std::move(values));
    nb::capsule owner(owned, [](void* p) noexcept { delete static_cast<std::vector<Source>*>(p); });
    return nb::ndarray<nb::numpy, T, nb::ndim<1>>(owned->data(), {owned->size()}, owner);
}

template <typename T>
auto to_numpy(std::vector<T>&& values) {
    return to_numpy<T, T>(std::move(values));
}

/// The engine trusts its input; this is the border where trust is earned. Raises ValueError.
inline void require(bool holds, const char* what) {
    if (!holds) throw std::invalid_argument(what);
}

template <typename T>
bool all_within(std::span<const T> values, std::int64_t low, std::int64_t high) {
    if (values.empty()) return true;
    const auto [least, most] = std::minmax_element(values.begin(), values.end());
    return static_cast<std::int64_t>(*least) >= low && static_cast<std::int64_t>(*most) <= high;
}

void bind_placement(nb::module_& m);
void bind_cluster(nb::module_& m);
void bind_decima(nb::module_& m);
void bind_replay(nb::module_& m);
void bind_queueing(nb::module_& m);
void bind_perfetto(nb::module_& m);
void bind_trace(nb::module_& m);

}  // namespace gnomon::bindings
