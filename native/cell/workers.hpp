// The workers of a cell: threads that burn stretches of CPU time, and the queue before them.
//
// A worker is a slot, not a thread: a blocking request holds its slot while it waits for calls, and
// no thread need sit there. Threads are made when slots are in use, so many workers cost nothing
// until they work.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "cell/loop.hpp"
#include "cell/stats.hpp"

namespace gnomon::cell {

struct Request;

struct Stretch {
    Request* request = nullptr;
    std::int64_t cpu_ns = 0;
    bool keeps_slot = false;  // the slot stays with the request when the stretch is over
};

class Workers final : public Source {
public:
    /// `done` is called in the loop's thread for every stretch that ended.
    Workers(Loop& loop, Stats& stats, std::size_t slots, std::function<void(Request*)> done);
    ~Workers() override;

    /// Takes its place in the queue: higher priorities first, then in order.
    void enqueue(std::int32_t priority, Stretch stretch);
    /// The request holds a slot already: it need not queue.
    void resume(Stretch stretch);
    /// Gives back a kept slot.
    void release();
    /// Requests that wait, beyond the slots that are free for them.
    std::int64_t backlog();

    void on_event(std::uint32_t events) override;

private:
    void work();
    void wake_thread();
    void count_waiting();

    Loop& loop_;
    StatsHead& head_;
    std::function<void(Request*)> done_callback_;
    int done_event_;
    std::mutex mutex_;
    std::condition_variable ready_event_;
    std::map<std::pair<std::int64_t, std::uint64_t>, Stretch> ready_;  // by (-priority, order)
    std::deque<Stretch> resumed_;
    std::uint64_t enqueued_ = 0;
    std::size_t slots_, free_slots_, idle_threads_ = 0;
    bool is_ending_ = false;
    std::vector<Request*> done_;
    std::vector<std::thread> threads_;
};

}  // namespace gnomon::cell
