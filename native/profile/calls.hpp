// System calls of the emulated machines that the profiler has to know.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "profile/handlers.hpp"

namespace gnomon::profile {

/// Of one machine.
struct Numbers {
    const char* target;
    std::uint8_t machine;  // in the header of a program
    std::int64_t executes;
    std::int64_t sets_handler;         // of a signal; where handlers need help
    std::vector<std::int64_t> timely;  // locks, and returns from handlers: they come when they come, and end no edge
    std::vector<std::int64_t> clocks;  // enter no kernel natively: no system calls to us
    std::vector<std::int64_t> accepts, opens, events, closes;
    std::vector<std::int64_t> of_descriptor;                   // their first argument is one
    std::vector<std::int64_t> in_vain;                         // a result of 0 or an error means that there was nothing
    std::vector<std::int64_t> reads, vectors, messages;        // into a buffer; through an iovec, also one in a msghdr
    std::vector<std::int64_t> waits;                           // for events: their result is how many there are
    std::vector<std::pair<std::int64_t, std::size_t>> sleeps;  // and which argument points to how long
};
inline const std::vector<Numbers> machines{
    {"x86_64",
     62,
     59,
     Handlers::call,
     {202, 15},
     {96, 201, 228, 309},
     {43, 288},
     {2, 85, 257},
     {22, 284, 290, 293},
     {3},
     {0, 1, 3, 5, 8, 16, 17, 18, 19, 20, 40, 44, 45, 46, 47, 48, 51, 52, 54, 55, 72, 74, 75, 262, 295, 296},
     {0, 7, 19, 23, 43, 45, 47, 232, 270, 271, 281, 288},
     {0, 19, 45, 47},
     {19, 47},
     {47},
     {7, 23, 232, 270, 271, 281},
     {{35, 0}, {230, 2}}},
    {"aarch64",
     183,
     221,
     -1,
     {98, 139},
     {113, 169},
     {202, 242},
     {56},
     {19, 59},
     {57},
     {63, 64, 57, 80, 62, 29, 67, 68, 65, 66, 71, 206, 207, 211, 212, 210, 204, 205, 208, 209, 25, 82, 83, 79},
     {63, 73, 65, 202, 207, 212, 22, 72, 242},
     {63, 65, 207, 212},
     {65, 212},
     {212},
     {22, 72, 73},
     {{101, 0}, {115, 2}}},
};

inline bool is_one_of(const std::vector<std::int64_t>& numbers, std::int64_t number) {
    return std::find(numbers.begin(), numbers.end(), number) != numbers.end();
}

}  // namespace gnomon::profile
