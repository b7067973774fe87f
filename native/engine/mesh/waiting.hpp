// What waits: by rank of priority (0 is the highest), then first come, first served.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/index.hpp"

namespace gnomon::mesh {

/// A queue in a ring that grows.
template <typename T>
class Fifo {
public:
    [[nodiscard]] bool empty() const { return count_ == 0; }
    [[nodiscard]] std::size_t size() const { return count_; }

    void push(T value) {
        if (count_ == ring_.size()) grow();
        ring_[(first_ + count_++) & (ring_.size() - 1)] = value;
    }

    T pop() {
        const T value = ring_[first_];
        first_ = (first_ + 1) & (ring_.size() - 1);
        --count_;
        return value;
    }

private:
    void grow() {
        std::vector<T> wider(ring_.empty() ? 8 : 2 * ring_.size());
        for (std::size_t i = 0; i < count_; ++i) wider[i] = ring_[(first_ + i) & (ring_.size() - 1)];
        ring_ = std::move(wider);
        first_ = 0;
    }

    std::vector<T> ring_;
    std::size_t first_ = 0, count_ = 0;
};

template <typename T>
class Waiting {
public:
    explicit Waiting(std::size_t ranks) : ranks_(ranks) {}

    [[nodiscard]] bool empty() const { return count_ == 0; }
    [[nodiscard]] std::int64_t size() const { return count_; }

    void push(T value, std::int32_t rank) {
        ranks_[index(rank)].push(value);
        ++count_;
    }

    T pop() {
        std::size_t rank = 0;
        while (ranks_[rank].empty()) ++rank;
        --count_;
        return ranks_[rank].pop();
    }

private:
    std::vector<Fifo<T>> ranks_;
    std::int64_t count_ = 0;
};

}  // namespace gnomon::mesh
