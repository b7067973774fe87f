// Numbers of things are signed, places in memory are not.
#pragma once

#include <concepts>
#include <cstddef>

namespace gnomon {

constexpr std::size_t index(std::integral auto number) { return static_cast<std::size_t>(number); }

}  // namespace gnomon
