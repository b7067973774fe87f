// How many other cache lines were touched since a line was touched last: the stack distance, exact, in one pass. From
// its histogram the miss ratio of every fully associative LRU cache can be read.
//
// The last few lines are a list that is searched; most accesses end there. A line that falls out of it gets the next
// time stamp, in a Fenwick tree that counts those with a later one. When stamps run out the lines are numbered anew.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <unordered_map>
#include <vector>

namespace gnomon::profile {

inline constexpr std::uint64_t line_bytes = 64;
/// 0: the line of the access before; 1, 2 to 3, 4 to 7, 8 to 15 lines; from there on four to an octave; the last: never
/// seen.
inline constexpr std::size_t buckets = 86;
using ReuseCounts = std::array<std::uint64_t, buckets>;

inline std::size_t bucket_of(std::uint64_t distance) {
    const auto width = static_cast<std::size_t>(std::bit_width(distance));
    if (width < 5) return width;
    return std::min<std::size_t>(5 + 4 * (width - 5) + (distance >> (width - 3) & 3), buckets - 2);
}

class ReuseStack {
public:
    explicit ReuseStack(std::size_t room = std::size_t{1} << 20) : tree_(room + 1), line_at_(room + 1) {}

    /// The bucket of an access.
    std::size_t touch(std::uint64_t line) {
        for (std::size_t i = 0; i < count_; ++i) {
            if (recent_[i] != line) continue;
            std::move_backward(recent_.begin(), recent_.begin() + i, recent_.begin() + i + 1);
            recent_[0] = line;
            return bucket_of(i);
        }
        const auto [found, is_new] = stamp_of_.try_emplace(line, 0);
        std::size_t bucket = buckets - 1;
        if (!is_new && found->second != 0) {
            bucket = bucket_of(count_ + live_ - sum(found->second));
            add(found->second, -1);
            --live_;
        }
        found->second = 0;  // in the list
        if (count_ == recent_.size()) retire(recent_[count_ - 1]);
        else ++count_;
        std::move_backward(recent_.begin(), recent_.begin() + count_ - 1, recent_.begin() + count_);
        recent_[0] = line;
        return bucket;
    }

private:
    void retire(std::uint64_t line) {
        if (next_ == tree_.size()) renumber();
        stamp_of_[line] = next_;
        line_at_[next_] = line;
        add(next_, 1);
        ++next_;
        ++live_;
    }

    void renumber() {
        std::vector<std::uint64_t> order;
        for (std::uint32_t i = 1; i < next_; ++i) {
            const auto found = stamp_of_.find(line_at_[i]);
            if (found != stamp_of_.end() && found->second == i) order.push_back(line_at_[i]);
        }
        if (2 * order.size() > tree_.size()) {
            tree_.resize(2 * tree_.size());
            line_at_.resize(tree_.size());
        }
        std::fill(tree_.begin(), tree_.end(), 0);
        next_ = 1;
        for (const auto line : order) {
            stamp_of_[line] = next_;
            line_at_[next_] = line;
            add(next_++, 1);
        }
    }

    void add(std::uint32_t at, std::int32_t by) {
        for (std::size_t i = at; i < tree_.size(); i += i & (~i + 1)) tree_[i] += by;
    }
    /// Of those up to a stamp.
    [[nodiscard]] std::uint64_t sum(std::uint32_t at) const {
        std::int64_t total = 0;
        for (std::size_t i = at; i > 0; i &= i - 1) total += tree_[i];
        return static_cast<std::uint64_t>(total);
    }

    std::array<std::uint64_t, 32> recent_{};
    std::size_t count_ = 0;
    std::unordered_map<std::uint64_t, std::uint32_t> stamp_of_;  // 0: in the list
    std::vector<std::int32_t> tree_;
    std::vector<std::uint64_t> line_at_;
    std::uint32_t next_ = 1;
    std::uint64_t live_ = 0;
};

}  // namespace gnomon::profile
