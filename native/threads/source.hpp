// What says that a function's time is up.
#pragma once

#include <pthread.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "threads/lane.hpp"

namespace gnomon::threads {

/// Where threads run, and how urgently; a priority that is refused is no error, but is counted.
struct Placement {
    int cpu = -1;
    int realtime = 0;

    /// For the calling thread. False if the priority was refused.
    bool apply() const;
};

class Source {
public:
    virtual ~Source() = default;
    [[nodiscard]] virtual const char* name() const = 0;
    /// On the lane's thread, before the first and after the last function.
    virtual void attach(Lane& lane) = 0;
    virtual void detach(Lane& lane) = 0;
    /// A tick at the deadline, by the lane's thread; put off by `period` while nobody wants it.
    virtual void arm(Lane& lane, Nanoseconds deadline, Nanoseconds period) = 0;
    virtual void disarm(Lane& lane) = 0;
    /// A tick came while nothing ran.
    virtual void silence([[maybe_unused]] Lane& lane) {}
    /// On the lane's thread, which a tick has switched away from its handler: ticks can come again.
    virtual void unmask() {}
    /// A tick as soon as possible; from any thread, after `is_urgent` was set.
    virtual void hurry([[maybe_unused]] Lane& lane) {}
    /// Whether functions have to poll, and whether a poll looks at the clock.
    [[nodiscard]] virtual bool is_polled() const { return false; }
    [[nodiscard]] virtual bool is_polled_clock() const { return false; }
    /// Between any two instructions: only code that may be cut is.
    [[nodiscard]] virtual bool cuts_anywhere() const { return false; }
    /// Before lanes attach: calls `poll` again and again on its own thread, if it has one that spins.
    virtual bool take_poll([[maybe_unused]] void (*poll)(void*), [[maybe_unused]] void* argument) { return false; }
    virtual void place([[maybe_unused]] const Placement& placement) {}
};

/// Calls a dispatcher; the thread knows meanwhile that it is in one.
void call_poll(void (*poll)(void*), void* argument);
bool is_in_poll();

struct Kind {
    const char* name;
    const char* what;
    bool is_polled, burns_core;
    std::string (*why_not)();  // empty: it can be had
    std::unique_ptr<Source> (*make)();
};

/// All there are, `none` first.
GNT_API const std::vector<Kind>& kinds();
/// Null if there is none of that name.
GNT_API const Kind* find_kind(const std::string& name);

std::string why_no_uintr();
std::unique_ptr<Source> make_uintr();

}  // namespace gnomon::threads
