// What schedulers of requests know of a request, and the queues that they keep it in. Nothing here
// allocates once room has been made, reads a clock or takes a lock: the simulator and the runtime of
// preemptive threads drive the same objects.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

namespace gnomon::threads {

using Nanoseconds = std::int64_t;

inline constexpr Nanoseconds unlimited = std::numeric_limits<Nanoseconds>::max();

struct Task {
    Nanoseconds arrival = 0;
    Nanoseconds deadline = unlimited;
    Nanoseconds hint = unlimited;  // how long it should take, if somebody knows
    Nanoseconds attained = 0;      // service so far; of a running task, at the time of the call
    Nanoseconds started = 0;       // when it was last given a worker
    std::int32_t kind = 0;         // of request, such as GET or SCAN
    std::int32_t preemptions = 0;
    bool has_begun = false;  // then it stays on its worker

    // Of the queue that holds it.
    Task* next = nullptr;
    Nanoseconds key = 0;
    std::uint64_t order = 0;
};

/// First in, first out.
class Fifo {
public:
    [[nodiscard]] bool empty() const { return first_ == nullptr; }
    [[nodiscard]] std::size_t size() const { return size_; }
    [[nodiscard]] const Task* front() const { return first_; }

    void push(Task& task) {
        task.next = nullptr;
        (first_ == nullptr ? first_ : last_->next) = &task;
        last_ = &task;
        ++size_;
    }

    Task* pop() {
        Task* task = first_;
        if (task == nullptr) return nullptr;
        first_ = task->next;
        --size_;
        return task;
    }

    /// The first one that passes a test.
    template <typename Test>
    Task* pop_if(Test&& test) {
        Task* before = nullptr;
        for (Task* task = first_; task != nullptr; before = task, task = task->next) {
            if (!test(*task)) continue;
            (before == nullptr ? first_ : before->next) = task->next;
            if (last_ == task) last_ = before;
            --size_;
            return task;
        }
        return nullptr;
    }

private:
    Task* first_ = nullptr;
    Task* last_ = nullptr;
    std::size_t size_ = 0;
};

/// The least key first; of equal keys the one that came first.
class Ranked {
public:
    void reserve(std::size_t tasks) { heap_.reserve(tasks); }
    [[nodiscard]] bool empty() const { return heap_.empty(); }
    [[nodiscard]] std::size_t size() const { return heap_.size(); }
    [[nodiscard]] const Task* front() const { return heap_.empty() ? nullptr : heap_.front(); }

    void push(Task& task, Nanoseconds key) {
        task.key = key;
        task.order = ++pushed_;
        std::size_t at = heap_.size();
        heap_.push_back(&task);
        rise(at, task);
    }

    Task* pop() { return heap_.empty() ? nullptr : take(0); }

    /// Of those that pass a test the first.
    template <typename Test>
    Task* pop_if(Test&& test) {
        std::size_t found = heap_.size();
        for (std::size_t i = 0; i < heap_.size(); ++i) {
            if (test(*heap_[i]) && (found == heap_.size() || is_before(*heap_[i], *heap_[found]))) found = i;
        }
        return found == heap_.size() ? nullptr : take(found);
    }

private:
    static bool is_before(const Task& a, const Task& b) { return a.key != b.key ? a.key < b.key : a.order < b.order; }

    void rise(std::size_t at, Task& task) {
        for (std::size_t up = 0; at > 0 && is_before(task, *heap_[up = (at - 1) / 2]); at = up) heap_[at] = heap_[up];
        heap_[at] = &task;
    }

    Task* take(std::size_t at) {
        Task* taken = heap_[at];
        Task* moved = heap_.back();
        heap_.pop_back();
        if (at == heap_.size()) return taken;
        for (std::size_t below = 2 * at + 1; below < heap_.size(); below = 2 * at + 1) {
            if (below + 1 < heap_.size() && is_before(*heap_[below + 1], *heap_[below])) ++below;
            if (!is_before(*heap_[below], *moved)) break;
            heap_[at] = heap_[below];
            at = below;
        }
        rise(at, *moved);
        return taken;
    }

    std::vector<Task*> heap_;
    std::uint64_t pushed_ = 0;
};

}  // namespace gnomon::threads
