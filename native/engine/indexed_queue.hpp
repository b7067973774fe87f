// The next event of each of a fixed set of owners: a heap whose entries can be moved.
//
// An owner has at most one event. `set` moves it, to `never` if it has none; ties go to the owner
// with the lower number. Owners are few and change often, which is where it beats an event queue
// with outdated entries.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/event_queue.hpp"
#include "engine/index.hpp"

namespace gnomon {

class IndexedQueue {
public:
    /// One more owner, without an event; its number is the count before.
    void add_owner() {
        time_.push_back(never);
        place_.push_back(static_cast<std::int32_t>(heap_.size()));
        heap_.push_back(static_cast<std::int32_t>(heap_.size()));
    }

    /// The earliest event's time, `never` if there is none.
    [[nodiscard]] std::int64_t next_time() const { return heap_.empty() ? never : time_[index(heap_.front())]; }
    [[nodiscard]] std::int32_t next_owner() const { return heap_.front(); }

    void set(std::int32_t owner, std::int64_t time) {
        const auto before = time_[index(owner)];
        if (before == time) return;
        time_[index(owner)] = time;
        if (time < before) rise(owner);
        else sink(owner);
    }

private:
    [[nodiscard]] bool before(std::int32_t a, std::int32_t b) const {
        const auto ta = time_[index(a)], tb = time_[index(b)];
        return ta != tb ? ta < tb : a < b;
    }

    void put(std::size_t at, std::int32_t owner) {
        heap_[at] = owner;
        place_[index(owner)] = static_cast<std::int32_t>(at);
    }

    void rise(std::int32_t owner) {
        auto at = index(place_[index(owner)]);
        while (at > 0) {
            const std::size_t parent = (at - 1) / 4;
            if (!before(owner, heap_[parent])) break;
            put(at, heap_[parent]);
            at = parent;
        }
        put(at, owner);
    }

    void sink(std::int32_t owner) {
        auto at = index(place_[index(owner)]);
        const std::size_t count = heap_.size();
        for (;;) {
            std::size_t child = 4 * at + 1;
            if (child >= count) break;
            const std::size_t last = child + 4 < count ? child + 4 : count;
            std::size_t least = child;
            for (++child; child < last; ++child)
                if (before(heap_[child], heap_[least])) least = child;
            if (!before(heap_[least], owner)) break;
            put(at, heap_[least]);
            at = least;
        }
        put(at, owner);
    }

    std::vector<std::int64_t> time_;
    std::vector<std::int32_t> place_;
    std::vector<std::int32_t> heap_;
};

}  // namespace gnomon
