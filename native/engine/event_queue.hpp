// A priority queue of timed events, shared by every simulator.
//
// Events leave in order of (time, key). The key makes ties deterministic: whatever order events
// were pushed in, the same set leaves in the same order. A 4-ary heap: shallower than a binary
// one, and the four children share a cache line.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace gnomon {

inline constexpr std::int64_t never = INT64_MAX;

struct Event {
    std::int64_t time = 0;
    std::int64_t key = 0;

    friend bool operator<(const Event& a, const Event& b) { return a.time != b.time ? a.time < b.time : a.key < b.key; }
};

class EventQueue {
public:
    [[nodiscard]] bool empty() const { return heap_.empty(); }
    [[nodiscard]] const Event& top() const { return heap_.front(); }

    void push(std::int64_t time, std::int64_t key) {
        heap_.push_back({time, key});
        std::size_t i = heap_.size() - 1;
        const Event moving = heap_[i];
        while (i > 0) {
            const std::size_t parent = (i - 1) / 4;
            if (!(moving < heap_[parent])) break;
            heap_[i] = heap_[parent];
            i = parent;
        }
        heap_[i] = moving;
    }

    Event pop() {
        const Event first = heap_.front();
        const Event moving = heap_.back();
        heap_.pop_back();
        const std::size_t n = heap_.size();
        if (n == 0) return first;
        std::size_t i = 0;
        for (;;) {
            std::size_t child = 4 * i + 1;
            if (child >= n) break;
            const std::size_t last = child + 4 < n ? child + 4 : n;
            std::size_t least = child;
            for (++child; child < last; ++child)
                if (heap_[child] < heap_[least]) least = child;
            if (!(heap_[least] < moving)) break;
            heap_[i] = heap_[least];
            i = least;
        }
        heap_[i] = moving;
        return first;
    }

private:
    std::vector<Event> heap_;
};

}  // namespace gnomon
