// Counters of a cell in a page that it shares with whoever started it.
//
// A throttled process answers no questions, so nobody asks: the page is a mapped file of int64, and
// a reader takes what stands there. All counters only grow; readers subtract.
//
//     head:   arrived, refused, in_flight, waiting, waiting_since_ns, waiting_integral_ns,
//             pool_waiting, pool_waits, pool_wait_ns, (spare)                 16 words
//     blocks: ok, errors, exclusive_ns, total_ns, exclusive[buckets], total[buckets]
//             one for each class, then one for each callee that is a store and each class, as its
//             caller saw it
//     pool:   buckets of the time that calls waited for a connection
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace gnomon::cell {

/// Buckets of a histogram of times: 16 to each octave from 2^10 ns on, so 6 % wide at most.
inline constexpr std::size_t bucket_count = 512;
inline constexpr int first_octave = 10, buckets_per_octave = 16;

inline std::size_t bucket_of(std::int64_t time_ns) {
    if (time_ns < (1 << first_octave)) return 0;
    const auto value = static_cast<std::uint64_t>(time_ns);
    const int octave = 63 - std::countl_zero(value);
    const auto within = (value >> (octave - 4)) & 15U;
    const auto index = static_cast<std::size_t>(octave - first_octave) * buckets_per_octave + within;
    return std::min(index, bucket_count - 1);
}

struct StatsHead {
    std::int64_t arrived, refused, in_flight, waiting, waiting_since_ns, waiting_integral_ns;
    std::int64_t pool_waiting, pool_waits, pool_wait_ns;
    std::int64_t spare[7];
};
static_assert(sizeof(StatsHead) == 16 * 8);

struct StatsBlock {
    std::int64_t ok, errors, exclusive_ns, total_ns;
    std::int64_t exclusive[bucket_count], total[bucket_count];

    void add(bool is_ok, std::int64_t own_ns, std::int64_t whole_ns) {
        ++(is_ok ? ok : errors);
        exclusive_ns += own_ns;
        total_ns += whole_ns;
        ++exclusive[bucket_of(own_ns)];
        ++total[bucket_of(whole_ns)];
    }
};

class Stats {
public:
    /// A page in the file; in private memory where the path is empty.
    Stats(const std::string& path, std::size_t blocks) : blocks_(blocks) {
        size_ = sizeof(StatsHead) + blocks * sizeof(StatsBlock) + bucket_count * sizeof(std::int64_t);
        int fd = -1;
        if (!path.empty()) {
            fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
            if (fd < 0 || ftruncate(fd, static_cast<off_t>(size_)) < 0)
                throw std::runtime_error(path + " cannot be written");
        }
        page_ = mmap(nullptr, size_, PROT_READ | PROT_WRITE, fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED, fd, 0);
        if (fd >= 0) close(fd);
        if (page_ == MAP_FAILED) throw std::runtime_error("no memory for the counters");
    }
    ~Stats() { munmap(page_, size_); }
    Stats(const Stats&) = delete;
    Stats& operator=(const Stats&) = delete;

    StatsHead& head() { return *static_cast<StatsHead*>(page_); }
    StatsBlock& block(std::size_t i) { return reinterpret_cast<StatsBlock*>(&head() + 1)[i]; }
    std::span<std::int64_t> pool_buckets() { return {reinterpret_cast<std::int64_t*>(&block(blocks_)), bucket_count}; }

private:
    std::size_t blocks_, size_ = 0;
    void* page_ = nullptr;
};

/// Prometheus text of a cell's counters.
std::string format_metrics(Stats& stats, const std::vector<std::string>& classes);

}  // namespace gnomon::cell
