// A function with a stack of its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "gnomon/threads.h"
#include "threads/fiber.hpp"

namespace gnomon::threads {

enum class State : std::uint8_t {
    idle,       // nothing to run, or it has ended
    ready,      // launched, not begun
    suspended,  // at a poll or a yield: it goes on like a call that returns
    cut,        // inside a signal handler: it goes on by leaving that
    running,
};

/// What the C++ run-time library keeps of a thread: exceptions that are being caught or thrown. A function that is
/// preempted in a catch block takes them along.
struct Exceptions {
    void* caught = nullptr;
    unsigned uncaught = 0;
};

/// Stacks for so many contexts in one mapping, each above a guard.
class Stacks {
public:
    Stacks(std::size_t count, std::size_t stack_bytes);  // throws std::bad_alloc
    ~Stacks();
    Stacks(const Stacks&) = delete;
    Stacks& operator=(const Stacks&) = delete;

    [[nodiscard]] std::byte* stack(std::size_t i) const { return memory_ + i * (bytes_ + guard_) + guard_; }
    [[nodiscard]] std::size_t stack_bytes() const { return bytes_; }

private:
    std::byte* memory_ = nullptr;
    std::size_t count_, bytes_, guard_;
};

}  // namespace gnomon::threads

struct gnt_context {
    gnt_context(std::byte* low, std::size_t bytes) : stack(low), stack_bytes(bytes) {}
    explicit gnt_context(std::unique_ptr<gnomon::threads::Stacks> one)
        : own(std::move(one)), stack(own->stack(0)), stack_bytes(own->stack_bytes()) {}

    void* sp = nullptr;
    std::uint64_t owner = 0;                       // the lane that began the function: it stays there
    std::unique_ptr<gnomon::threads::Stacks> own;  // none for contexts of a pool
    std::byte* stack;                              // its lowest byte; the guard lies below
    std::size_t stack_bytes;
    gnt_function function = nullptr;
    void* argument = nullptr;
    std::intptr_t result = 0;
    gnomon::threads::State state = gnomon::threads::State::idle;
    gnomon::threads::Fiber fiber;
    gnomon::threads::Exceptions exceptions;

    [[nodiscard]] bool holds(const void* address) const { return address >= stack && address < stack + stack_bytes; }
    [[nodiscard]] bool guards(const void* address) const;
    /// The pages that a function uses first.
    void touch();
    /// The stack as `gnt_switch` expects it, so that `function` begins.
    void prepare(gnt_function function, void* argument);
};

namespace gnomon::threads {

/// Rounded up to pages; 0: 64 KiB. At least what the kernel wants for the frame of a signal, and 16 KiB.
std::size_t usable_stack_bytes(std::size_t wanted);

}  // namespace gnomon::threads

extern "C" {
void gnt_switch(void** save, void* to);
void gnt_entry();
[[noreturn]] void gnt_begin(gnt_context* context);
}
