#include "threads/context.hpp"

#include <sys/auxv.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <new>

#ifndef AT_MINSIGSTKSZ
#define AT_MINSIGSTKSZ 51
#endif

namespace {

std::size_t page_bytes() {
    static const auto bytes = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    return bytes;
}

constexpr std::size_t pushed = 8;  // words that gnt_switch takes off a new stack
/// A function whose frame is larger than a page steps over a guard of one page, unless it was compiled with
/// -fstack-clash-protection.
constexpr std::size_t guard_bytes = 64 * 1024;
constexpr std::size_t most_stack_bytes = std::size_t{64} << 20;

}  // namespace

namespace gnomon::threads {

std::size_t usable_stack_bytes(std::size_t wanted) {
    const std::size_t signal_frame = std::max<std::size_t>(getauxval(AT_MINSIGSTKSZ), 4096);
    const std::size_t bytes = wanted == 0 ? 64 * 1024 : std::max(wanted, signal_frame + 16 * 1024);
    return (bytes + page_bytes() - 1) / page_bytes() * page_bytes();
}

Stacks::Stacks(std::size_t count, std::size_t stack_bytes)
    : count_(count), bytes_(usable_stack_bytes(stack_bytes)), guard_(guard_bytes) {
    const std::size_t whole = count_ * (bytes_ + guard_);
    void* mapped = mmap(nullptr, whole, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK | MAP_NORESERVE, -1, 0);
    if (mapped == MAP_FAILED) throw std::bad_alloc();
    memory_ = static_cast<std::byte*>(mapped);
    for (std::size_t i = 0; i < count_; ++i) {
        if (mprotect(stack(i), bytes_, PROT_READ | PROT_WRITE) != 0) {
            munmap(memory_, whole);
            throw std::bad_alloc();
        }
    }
}

Stacks::~Stacks() { munmap(memory_, count_ * (bytes_ + guard_)); }

}  // namespace gnomon::threads

bool gnt_context::guards(const void* address) const {
    const auto* at = static_cast<const std::byte*>(address);
    return at < stack && at >= stack - guard_bytes;
}

void gnt_context::touch() {
    for (std::size_t back = 1; back <= 2 * page_bytes(); back += page_bytes())
        *const_cast<volatile std::byte*>(stack + stack_bytes - back) = std::byte{0};
}

void gnt_context::prepare(gnt_function to_run, void* its_argument) {
    function = to_run;
    argument = its_argument;
    result = 0;
    owner = 0;
    exceptions = {};
    state = gnomon::threads::State::ready;
    gnomon::threads::begin_fiber(fiber, stack, stack_bytes);
    auto* top = reinterpret_cast<std::uintptr_t*>(stack + stack_bytes);
#if defined(__x86_64__)
    top -= 2;  // the end of the chain of frames, and aligned as at a call
    top[0] = top[1] = 0;
    std::uintptr_t* frame = top - pushed;
    const std::uint32_t control[2] = {0x1f80, 0x037f};  // MXCSR and x87 as a process begins with
    std::memcpy(&frame[0], control, sizeof control);
    frame[1] = reinterpret_cast<std::uintptr_t>(this);         // r12
    frame[2] = frame[3] = frame[4] = frame[5] = frame[6] = 0;  // r13 r14 r15 rbx rbp
    frame[7] = reinterpret_cast<std::uintptr_t>(&gnt_entry);
#else
    std::uintptr_t* frame = top - 22;
    std::fill(frame, top, 0);
    frame[0] = reinterpret_cast<std::uintptr_t>(this);         // x19
    frame[11] = reinterpret_cast<std::uintptr_t>(&gnt_entry);  // x30
#endif
    sp = frame;
}

gnt_context* gnt_context_new(std::size_t stack_bytes) try {
    if (stack_bytes > most_stack_bytes) return nullptr;
    return new gnt_context(std::make_unique<gnomon::threads::Stacks>(1, stack_bytes));
} catch (const std::bad_alloc&) {
    return nullptr;
}

void gnt_context_free(gnt_context* context) {
    if (context != nullptr && context->state != gnomon::threads::State::running) delete context;
}
