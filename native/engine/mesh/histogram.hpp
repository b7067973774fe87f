// Latencies counted in buckets: 32 to each doubling, so that a bucket is at most 3.2 % wide.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>

#include "engine/index.hpp"

namespace gnomon::mesh {

class Histogram {
public:
    static constexpr int per_octave = 32, lowest_bit = 10, highest_bit = 42;  // 1 us to 73 min
    static constexpr std::size_t size = (highest_bit - lowest_bit) * per_octave;

    void add(std::int64_t ns) {
        ++counts_[bucket(ns)];
        ++count_;
    }

    void add(const Histogram& other) {
        for (std::size_t i = 0; i < size; ++i) counts_[i] += other.counts_[i];
        count_ += other.count_;
    }

    void clear() {
        if (count_ == 0) return;
        counts_.fill(0);
        count_ = 0;
    }

    [[nodiscard]] std::int64_t count() const { return count_; }
    [[nodiscard]] const std::array<std::uint32_t, size>& counts() const { return counts_; }

    /// The middle of the bucket that holds a share of the values; 0 of none.
    [[nodiscard]] double quantile(double share) const {
        const double rank = share * static_cast<double>(count_);
        double seen = 0.0;
        for (std::size_t i = 0; i < size; ++i) {
            seen += counts_[i];
            if (seen >= rank && counts_[i] > 0) return (lower(i) + lower(i + 1)) / 2.0;
        }
        return 0.0;
    }

    static std::size_t bucket(std::int64_t ns) {
        const auto value = static_cast<std::uint64_t>(std::max<std::int64_t>(ns, 1 << lowest_bit));
        const auto octave = static_cast<int>(std::bit_width(value)) - 1;
        if (octave >= highest_bit) return size - 1;
        const auto within = (value >> (octave - 5)) & (per_octave - 1);
        return index(octave - lowest_bit) * per_octave + within;
    }

    static double lower(std::size_t bucket) {
        const auto octave = static_cast<int>(bucket) / per_octave + lowest_bit;
        const auto within = static_cast<double>(bucket % per_octave);
        return static_cast<double>(std::int64_t{1} << octave) * (1.0 + within / per_octave);
    }

private:
    std::array<std::uint32_t, size> counts_{};
    std::int64_t count_ = 0;
};

}  // namespace gnomon::mesh
