// Workers, each with a queue under a scheduling policy of its own. A task goes to the worker with the least to do; a
// worker without work takes tasks that have not begun from others; whoever has begun stays.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "engine/cores/quantum.hpp"
#include "policy/policy.hpp"
#include "threads/source.hpp"
#include "threads/spin.hpp"

namespace gnomon::threads {

/// Contexts that a worker keeps for itself.
inline constexpr std::size_t contexts_kept = 64;

struct PoolSettings {
    std::size_t workers = 1;
    PolicySettings policy;
    std::size_t max_tasks = 4096;
    std::size_t stack_bytes = 0;
    Nanoseconds spin_ns = 50'000;
    std::vector<int> cpus;  // of the workers
    Placement timer;
    int realtime = 0;
    void (*poll)(void*) = nullptr;
    void* poll_argument = nullptr;
    unsigned control = GNT_CONTROL_OFF;
    Nanoseconds control_period = 100'000'000;
    Mechanism mechanism;  // what preempting costs: for the controller
};

/// A task; slots are used again.
struct Slot : Task {
    gnt_context* context = nullptr;  // from when it begins to its end
    gnt_job job{};
    std::uint32_t index = 0;
    std::uint64_t number = 0;  // index and generation; 0: free
    Nanoseconds begun = 0;
    std::atomic<bool> is_cancelled{false};
    Slot* next_free = nullptr;
};

class Pool;

class Worker final : public Judge {
public:
    Worker(Pool& pool, std::size_t index);

    void loop();
    /// By whoever submits.
    void take(Slot& slot, Nanoseconds now);
    Slot* give(std::size_t thief);
    bool must_stop(Nanoseconds now, Nanoseconds& again_ns) override;
    [[nodiscard]] bool is_cancelled() const override {
        return current != nullptr && current->is_cancelled.load(std::memory_order_relaxed);
    }
    /// If what it runs was cancelled, a tick.
    void interrupt_cancelled();
    /// A cancelled task that waits here is the next to end, whatever the policy.
    void end_soon(Slot& slot);

    std::atomic<std::size_t> in_hand{0};    // waiting or running
    std::atomic<std::size_t> waiting{0};    // in the queue
    std::atomic<std::uint32_t> wakeups{0};  // what it sleeps on
    std::atomic<bool> is_asleep{false};
    SpinLock lock;  // of the policy and what follows
    std::unique_ptr<Policy> policy;
    Fifo withdrawn;  // from the policy: cancelled
    Slot* current = nullptr;
    bool must_make_room = false;
    Lane lane;

    // Its own; others may read.
    std::atomic<Nanoseconds> busy{0}, longest_stall{0};
    Counter completed, cancelled, stolen;
    std::array<std::atomic<Nanoseconds>, 8192> served{};  // by the last tasks, without what preempting them cost

private:
    Slot* next(Nanoseconds& now);
    void run(Slot& slot, Nanoseconds now);
    void finish(Slot& slot, int status, Nanoseconds ran);
    void rest();
    gnt_context& begin(Slot& slot, Nanoseconds now);

    std::vector<gnt_context*> contexts_;  // free ones, the last used last: its stack is in the cache
    Pool& pool_;
    std::size_t index_;
    Nanoseconds rest_ns_ = 1'000'000;
    bool is_first_ = false;  // whether what `next` found has not run yet
};

class Pool {
public:
    Pool(PoolSettings settings, std::unique_ptr<Source> source);
    ~Pool();
    Pool(const Pool&) = delete;
    Pool& operator=(const Pool&) = delete;

    int submit(const gnt_job& job, std::uint64_t* number);
    int cancel(std::uint64_t number);
    void stop(bool drain);
    void read(gnt_pool_stats& stats) const;
    void set_quantum(Nanoseconds quantum);

    [[nodiscard]] bool is_forked() const { return born_.is_forked(); }
    [[nodiscard]] const PoolSettings& settings() const { return settings_; }
    [[nodiscard]] Source& source() { return *source_; }
    [[nodiscard]] const Source& source() const { return *source_; }
    std::vector<std::unique_ptr<Worker>>& workers() { return workers_; }
    void release(Slot& slot);
    void note_end() { open_.fetch_sub(1, std::memory_order_release); }
    /// There is one for every slot.
    gnt_context& acquire_context();
    void release_context(gnt_context& context);
    [[nodiscard]] bool is_ending() const { return is_ending_.load(std::memory_order_acquire); }
    void note_start(bool has_priority);
    void note_failure(const char* what);
    /// Stopped, and nothing is left to run.
    [[nodiscard]] bool is_finished() const { return is_ending() && open_.load(std::memory_order_acquire) == 0; }

private:
    Slot* acquire();
    /// For whoever asks.
    [[nodiscard]] bool is_open() const;
    void start(bool is_polling);
    void control();

    Born born_;
    PoolSettings settings_;
    std::unique_ptr<Source> source_;
    Stacks stacks_;
    std::vector<std::unique_ptr<gnt_context>> contexts_;
    std::vector<std::unique_ptr<Slot>> slots_;
    SpinLock free_lock_;
    Slot* free_ = nullptr;
    std::vector<gnt_context*> free_contexts_;
    std::atomic<std::uint64_t> submitted_{0}, refused_{0};
    std::atomic<std::size_t> open_{0};  // tasks that have not ended
    std::string failure_;
    std::uint32_t generation_ = 0;
    std::atomic<bool> is_closed_{false}, is_draining_{false}, is_ending_{false};
    std::atomic<std::size_t> started_{0};
    std::atomic<Nanoseconds> quantum_;
    std::vector<std::unique_ptr<Worker>> workers_;
    std::vector<std::thread> threads_, helpers_;
    std::mutex control_mutex_;
    std::condition_variable control_wake_;
    std::optional<QuantumController> controller_;
};

}  // namespace gnomon::threads
