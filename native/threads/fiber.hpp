// Sanitizers follow stacks; they have to be told of a switch. Without them all of this is nothing.
#pragma once

#include <cstddef>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#endif

namespace gnomon::threads {

/// What a sanitizer keeps of a stack, be it of a context or of a thread that runs contexts.
struct Fiber {
#if defined(__SANITIZE_ADDRESS__)
    void* fake_stack = nullptr;
    const void* bottom = nullptr;
    std::size_t size = 0;
#elif defined(__SANITIZE_THREAD__)
    void* handle = nullptr;
    bool is_own = false;
    Fiber() = default;
    Fiber(const Fiber&) = delete;
    Fiber& operator=(const Fiber&) = delete;
    ~Fiber() {
        if (is_own) __tsan_destroy_fiber(handle);
    }
#endif
};

/// Of a stack before its first use.
inline void begin_fiber([[maybe_unused]] Fiber& fiber, [[maybe_unused]] const void* stack,
                        [[maybe_unused]] std::size_t bytes) {
#if defined(__SANITIZE_ADDRESS__)
    fiber.fake_stack = nullptr;
    fiber.bottom = stack;
    fiber.size = bytes;
    __asan_unpoison_memory_region(stack, bytes);  // what a cancelled function left
#elif defined(__SANITIZE_THREAD__)
    if (fiber.handle == nullptr) {
        fiber.handle = __tsan_create_fiber(0);
        fiber.is_own = true;
    }
#endif
}

/// Right before the switch away from one to the other; `is_last` if the first is not returned to.
inline void leave_fiber([[maybe_unused]] Fiber& from, [[maybe_unused]] Fiber& to, [[maybe_unused]] bool is_last) {
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_start_switch_fiber(is_last ? nullptr : &from.fake_stack, to.bottom, to.size);
#elif defined(__SANITIZE_THREAD__)
    if (!from.is_own) from.handle = __tsan_get_current_fiber();
    __tsan_switch_to_fiber(to.handle, 0);
#endif
}

/// Right after a switch to `here`, which came from `from`.
inline void enter_fiber([[maybe_unused]] Fiber& here, [[maybe_unused]] Fiber& from) {
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(here.fake_stack, &from.bottom, &from.size);
#endif
}

}  // namespace gnomon::threads
