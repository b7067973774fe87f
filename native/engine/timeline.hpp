// Questions about a played or recorded timeline that need one pass over all its spans.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace gnomon {

inline constexpr std::uint8_t no_class = 255;

/// Time spent with exactly each set of classes active, device by device.
/// Entry [device * 2^classes + set] counts nanoseconds in which just the classes of the bit set
/// `set` had at least one span open; set 0 is idle time between the device's first and last span.
std::vector<std::int64_t> class_overlap(std::span<const std::int64_t> start, std::span<const std::int64_t> end,
                                        std::span<const std::uint8_t> span_class, std::span<const std::int32_t> device,
                                        std::int32_t devices, std::int32_t classes);

/// Follows causes from a task back to one without; the latest first.
std::vector<std::int32_t> follow_causes(std::span<const std::int32_t> cause, std::int32_t from);

}  // namespace gnomon
