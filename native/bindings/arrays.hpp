// Arrays cross the border without copies: inputs as spans over NumPy's memory, outputs as vectors
// that NumPy then owns or looks into.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <algorithm>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <type_traits>
#include <utility>
#include <vector>

#include "engine/index.hpp"

namespace gnomon::bindings {

namespace nb = nanobind;

template <typename T>
using In = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

template <typename T>
using Out = nb::ndarray<nb::numpy, T, nb::ndim<1>>;

/// None is an empty column.
template <typename T>
std::span<const T> view(const In<T>& array) {
    return array.is_valid() ? std::span<const T>{array.data(), array.size()} : std::span<const T>{};
}

template <typename T>
auto number_of() {
    if constexpr (std::is_enum_v<T>) return std::underlying_type_t<T>{};
    else return T{};
}

/// Numbers, or the numbers of an enumeration.
template <typename T>
using Numbers = Out<decltype(number_of<T>())>;

template <typename T>
Numbers<T> to_numpy(std::vector<T>&& values) {
    auto* owned = new std::vector<T>(std::move(values));
    nb::capsule owner(owned, [](void* p) noexcept { delete static_cast<std::vector<T>*>(p); });
    return {owned->data(), {owned->size()}, owner};
}

/// The engine trusts its input; this is the border where trust is earned. Raises ValueError.
inline void require(bool holds, const char* what) {
    if (!holds) throw std::invalid_argument(what);
}

template <typename T>
bool all_within(std::span<const T> values, std::int64_t low, std::int64_t high) {
    bool within = true;
    for (const T value : values) {
        within &= static_cast<std::int64_t>(value) >= low && static_cast<std::int64_t>(value) <= high;
    }
    return within;
}

template <typename T>
bool is_rising(std::span<const T> values) {
    return std::is_sorted(values.begin(), values.end());
}

/// Starts of ranges: from 0 up to `end`, never back.
template <typename T>
bool starts_ranges(std::span<const T> first, std::size_t count, std::size_t end) {
    return first.size() == count + 1 && first.front() == 0 && is_rising(first) && index(first.back()) == end;
}

void bind_placement(nb::module_& m);
void bind_choice(nb::module_& m);
void bind_cluster(nb::module_& m);
void bind_decima(nb::module_& m);
void bind_replay(nb::module_& m);
void bind_queueing(nb::module_& m);
void bind_perfetto(nb::module_& m);
void bind_trace(nb::module_& m);
void bind_cores(nb::module_& m);
void bind_threads(nb::module_& m);
void bind_mesh(nb::module_& m);
void bind_thresholds(nb::module_& m);

}  // namespace gnomon::bindings
