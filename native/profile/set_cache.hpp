// A cache of sets that forget the line that was touched longest ago: it sees the conflicts that distances do not show.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace gnomon::profile {

class SetCache {
public:
    SetCache(std::size_t lines, std::size_t ways) : ways_(ways), sets_(lines / ways), tags_(lines, empty) {}

    /// Whether the line was not there.
    bool misses(std::uint64_t line) {
        const auto first = tags_.begin() + static_cast<std::ptrdiff_t>(line % sets_ * ways_);
        const auto last = first + static_cast<std::ptrdiff_t>(ways_);
        const auto found = std::find(first, last, line);
        const bool is_miss = found == last;
        std::move_backward(first, is_miss ? last - 1 : found, is_miss ? last : found + 1);
        *first = line;
        return is_miss;
    }

private:
    static constexpr std::uint64_t empty = ~std::uint64_t{0};
    std::size_t ways_, sets_;
    std::vector<std::uint64_t> tags_;  // of each set the last touched first
};

}  // namespace gnomon::profile
