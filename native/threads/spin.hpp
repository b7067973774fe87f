// Waiting for others for a moment.
#pragma once

#include <sched.h>

#include <atomic>
#include <ctime>

namespace gnomon::threads {

inline void pause() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#else
    asm volatile("yield");
#endif
}

/// Held for some tens of nanoseconds. Whoever waits longer gives way: the holder may have been descheduled, and with
/// real-time priorities it gets the core only if we sleep.
class SpinLock {
public:
    bool try_lock() {
        return !is_held_.load(std::memory_order_relaxed) && !is_held_.exchange(true, std::memory_order_acquire);
    }
    void lock() {
        for (int tries = 1; !try_lock(); ++tries) {
            if (tries % 1024 != 0) {
                pause();
            } else {
                const timespec moment{0, 50'000};
                nanosleep(&moment, nullptr);
            }
        }
    }
    /// In a signal handler, where nobody may sleep.
    bool try_lock_for_a_moment() {
        for (int tries = 0; tries < 200; ++tries) {
            if (try_lock()) return true;
            pause();
        }
        return false;
    }
    void unlock() { is_held_.store(false, std::memory_order_release); }

private:
    std::atomic<bool> is_held_{false};
};

}  // namespace gnomon::threads
