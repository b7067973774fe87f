// A thread that runs preemptible functions, one at a time.
//
// A source decides that time is up and causes a tick on the thread: a flag that the function polls, or a signal.
// The tick, on the function's stack, decides whether the function goes (`must_stop`) and switches to the thread's own
// stack. `depth` is above zero whenever that must not happen: inside guards, and inside this library.
//
// A tick can be lost: it lands while the thread is between two functions, or inside code that may not be cut. Sources
// therefore repeat a tick until the lane disarms, instead of everybody keeping account of what is pending.
#pragma once

#include <atomic>
#include <csignal>
#include <cstdint>
#include <ctime>

#include "clock.hpp"
#include "policy/task.hpp"
#include "threads/born.hpp"
#include "threads/context.hpp"

namespace gnomon::threads {

class Source;

/// Counted by the lane's thread alone, read by others.
class Counter {
public:
    void operator++() { value_.store(value_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed); }
    [[nodiscard]] std::uint64_t read() const { return value_.load(std::memory_order_relaxed); }

private:
    std::atomic<std::uint64_t> value_{0};
};

struct Ticks {
    Counter preempted, stale, kept, guarded, outside;
};

/// Asked at a tick whether the function that runs has to go; on its stack, not preemptible.
class Judge {
public:
    virtual ~Judge() = default;
    /// Otherwise when to ask again, in `again_ns` from now.
    virtual bool must_stop(Nanoseconds now, Nanoseconds& again_ns) = 0;
    /// Whether somebody wants what runs to end.
    [[nodiscard]] virtual bool is_cancelled() const = 0;
};

struct Lane : gnt_lane {
    Lane();
    const std::uint64_t number;  // no two lanes of a process have the same
    Born born;

    // What timers look at, in a cache line of its own.
    alignas(64) std::atomic<Nanoseconds> deadline{unlimited};
    std::atomic<Nanoseconds> period{unlimited};  // a tick that nobody wants is put off by so much
    std::atomic<bool> is_wanted{true};           // whether a tick at the deadline could change anything
    std::atomic<bool> is_urgent{false};          // a tick at once

    alignas(64) Source* source = nullptr;
    Judge* judge = nullptr;
    gnt_context* running = nullptr;
    void* own_sp = nullptr;
    Fiber own_fiber;
    Exceptions* exceptions = nullptr;  // the thread's
    Nanoseconds slice_end = unlimited;
    Nanoseconds retry = 0;       // after a tick in code that may not be cut
    Nanoseconds stopped_at = 0;  // when the last function left
    int status = GNT_COMPLETED;  // and how
    bool polls_clock = false;    // the source's polls do
    bool is_masked = false;      // whether the source's signal is blocked in this thread
    unsigned odd_ticks = 0;      // that have found other signals blocked than usual, one after the other
    std::uint64_t usual_mask = 0;
    pid_t thread_id = 0;
    timer_t timer{};            // of `posix_timer`
    Nanoseconds timer_end = 0;  // when it fires next
    int interrupt_fd = -1;      // of `uintr`
    long interrupt_index = -1;
    Ticks ticks;
    Nanoseconds* late = nullptr;  // where lateness is noted, if somebody wants to know
    std::size_t late_count = 0, late_size = 0;

    void raise_flag(bool is_raised) { __atomic_store_n(&flag, is_raised ? 1U : 0U, __ATOMIC_RELAXED); }
    /// On the thread, before the first function: everything that a thread needs to run some.
    void begin(Source& from);
    void end();
    /// Runs a function until it ends, yields or is preempted.
    int run(gnt_context& context, Nanoseconds limit);
    /// At a poll, or at the end of the last guard.
    void poll();
    /// In the handler of a signal that interrupted the thread at `pc`, with `mask` blocked.
    void interrupt(const void* sp, const void* pc, std::uint64_t mask);
    /// The signals that are blocked now are those that the thread usually blocks.
    void note_mask();
    /// From inside a function.
    int yield();
    void rearm(Nanoseconds limit);

private:
    friend void ::gnt_begin(gnt_context*);

    bool must_stop(Nanoseconds now);
    void stop(int why, State state);
    /// On a stack that a function begins or goes on with: what ticks found meanwhile is done first.
    void arrived();
    void go_on();
};

/// This thread's; null if it runs no preemptible functions.
inline Lane* self() { return static_cast<Lane*>(gnt_self); }

/// The library is not preempted meanwhile; a preemption that comes up is done at the end.
class Guard {
public:
    Guard() { gnt_guard_enter(); }
    ~Guard() { gnt_guard_leave(); }
    Guard(const Guard&) = delete;
    Guard& operator=(const Guard&) = delete;
};

/// The signal of all sources that use one: debuggers let it pass, libc does not use it, a stray one does no harm.
inline constexpr int preemption_signal = SIGURG;
/// Handlers for preemption and for overflows of stacks, once a process; a stack for the latter, once a thread.
void install_handlers();
class OverflowStack {
public:
    OverflowStack();
    ~OverflowStack();
    OverflowStack(const OverflowStack&) = delete;
    OverflowStack& operator=(const OverflowStack&) = delete;

private:
    void* memory_ = nullptr;
};

}  // namespace gnomon::threads
