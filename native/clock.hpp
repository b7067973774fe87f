// Clocks. Monotonic times compare between the processes of one machine, so messages carry them.
#pragma once

#include <cstdint>
#include <ctime>

namespace gnomon {

inline std::int64_t read_clock_ns(clockid_t clock) {
    timespec now{};
    clock_gettime(clock, &now);
    return static_cast<std::int64_t>(now.tv_sec) * 1'000'000'000 + now.tv_nsec;
}

inline std::int64_t now_ns() { return read_clock_ns(CLOCK_MONOTONIC); }

}  // namespace gnomon
