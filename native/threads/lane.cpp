#include "threads/lane.hpp"

#include <cxxabi.h>
#include <pthread.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <mutex>

#include "threads/modules.hpp"
#include "threads/source.hpp"

__thread gnt_lane* gnt_self = nullptr;

namespace gnomon::threads {
namespace {

/// After a tick that came in code that may not be cut; every further one waits twice as long. Where a tick is dear, the
/// function would not get out of that code otherwise.
constexpr Nanoseconds first_retry_ns = 5'000, last_retry_ns = 80'000;
constexpr unsigned handler_ticks = 64;  // some milliseconds
constexpr std::size_t overflow_stack_bytes = 64 * 1024;

struct sigaction previous_preemption, previous_overflow;

void on_preemption(int signal, siginfo_t* info, void* context) {
    const int kept = errno;
    if (Lane* lane = self(); lane != nullptr) {
        const auto* seen = static_cast<ucontext_t*>(context);
#if defined(__x86_64__)
        const auto sp = static_cast<std::uintptr_t>(seen->uc_mcontext.gregs[REG_RSP]);
        const auto pc = static_cast<std::uintptr_t>(seen->uc_mcontext.gregs[REG_RIP]);
#else
        const std::uintptr_t sp = seen->uc_mcontext.sp, pc = seen->uc_mcontext.pc;
#endif
        std::uint64_t mask = 0;
        std::memcpy(&mask, &seen->uc_sigmask, sizeof mask);
        lane->interrupt(reinterpret_cast<void*>(sp), reinterpret_cast<void*>(pc), mask);
    } else if ((previous_preemption.sa_flags & SA_SIGINFO) != 0) {
        previous_preemption.sa_sigaction(signal, info, context);
    } else if (previous_preemption.sa_handler != SIG_DFL && previous_preemption.sa_handler != SIG_IGN) {
        previous_preemption.sa_handler(signal);
    }
    errno = kept;
}

void on_overflow(int signal, siginfo_t* info, void*) {
    const Lane* lane = self();
    if (lane != nullptr && lane->running != nullptr && lane->running->guards(info->si_addr)) {
        char line[160];
        const int length = std::snprintf(line, sizeof line,
                                         "gnomon threads: a preemptible function overflowed its stack of %zu KiB; "
                                         "give it more with stack_bytes\n",
                                         lane->running->stack_bytes / 1024);
        [[maybe_unused]] const auto written = write(STDERR_FILENO, line, static_cast<std::size_t>(length));
    }
    // The fault happens again, and ends the process as it would have without us.
    sigaction(signal, &previous_overflow, nullptr);
}

void install(int signal, int flags, void (*handler)(int, siginfo_t*, void*), struct sigaction& previous) {
    struct sigaction action{};
    action.sa_sigaction = handler;
    action.sa_flags = SA_SIGINFO | flags;
    sigaction(signal, &action, &previous);
}

}  // namespace

void install_handlers() {
    static std::once_flag once;
    std::call_once(once, [] {
        install(preemption_signal, SA_RESTART, &on_preemption, previous_preemption);
        install(SIGSEGV, SA_ONSTACK, &on_overflow, previous_overflow);
    });
}

OverflowStack::OverflowStack() {
    memory_ = mmap(nullptr, overflow_stack_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory_ == MAP_FAILED) memory_ = nullptr;
    stack_t before{}, made{};
    sigaltstack(nullptr, &before);
    made.ss_sp = memory_;
    made.ss_size = overflow_stack_bytes;
    if (memory_ == nullptr || (before.ss_flags & SS_DISABLE) == 0 || sigaltstack(&made, nullptr) != 0) {
        if (memory_ != nullptr) munmap(memory_, overflow_stack_bytes);
        memory_ = nullptr;  // the thread has one already
    }
}

OverflowStack::~OverflowStack() {
    if (memory_ == nullptr) return;
    stack_t none{};
    none.ss_flags = SS_DISABLE;
    sigaltstack(&none, nullptr);
    munmap(memory_, overflow_stack_bytes);
}

Lane::Lane()
    : gnt_lane{0, 1, 0}, number([] {
          static std::atomic<std::uint64_t> lanes{0};
          return ++lanes;
      }()) {}

void Lane::note_mask() {
    sigset_t mask;
    pthread_sigmask(SIG_BLOCK, nullptr, &mask);
    std::memcpy(&usual_mask, &mask, sizeof usual_mask);
    odd_ticks = 0;
}

void Lane::begin(Source& from) {
    install_handlers();
    source = &from;
    polls_clock = from.is_polled_clock();
    exceptions = reinterpret_cast<Exceptions*>(abi::__cxa_get_globals());
    gnt_self = this;
    try {
        from.attach(*this);
    } catch (...) {
        gnt_self = nullptr;
        throw;
    }
}

void Lane::end() {
    if (is_masked) source->unmask();
    source->detach(*this);
    gnt_self = nullptr;
}

int Lane::run(gnt_context& context, Nanoseconds limit) {
    const Nanoseconds now = now_ns();
    const bool was_cut = context.state == State::cut;
    running = &context;
    context.owner = number;
    context.state = State::running;
    raise_flag(false);
    deferred = 0;
    retry = first_retry_ns;
    slice_end = limit >= unlimited - now ? unlimited : now + limit;
    source->arm(*this, slice_end, limit);
    // An urgent tick that has come already found nothing to stop.
    if (is_urgent.load(std::memory_order_acquire)) source->arm(*this, now + first_retry_ns, limit);
    if (was_cut) is_masked = false;  // leaving the handler restores the mask
    std::swap(*exceptions, context.exceptions);
    leave_fiber(own_fiber, context.fiber, false);
    gnt_switch(&own_sp, context.sp);
    enter_fiber(own_fiber, context.fiber);
    std::swap(*exceptions, context.exceptions);
    source->disarm(*this);
    running = nullptr;
    if (odd_ticks != 0) {  // others do not run with what it has blocked
        sigset_t mask;
        sigemptyset(&mask);
        std::memcpy(&mask, &usual_mask, sizeof usual_mask);
        pthread_sigmask(SIG_SETMASK, &mask, nullptr);
        odd_ticks = 0;
        is_masked = false;
    }
    return status;
}

void Lane::arrived() {
    enter_fiber(running->fiber, own_fiber);
    if (!is_masked) return;
    is_masked = false;
    source->unmask();
}

void Lane::go_on() {
    for (;;) {
        depth = 0;
        asm volatile("" ::: "memory");
        if (deferred == 0 && !is_urgent.load(std::memory_order_acquire)) return;
        depth = 1;
        deferred = 0;
        if (must_stop(now_ns())) {
            stop(GNT_PREEMPTED, State::suspended);
            arrived();
        }
    }
}

void Lane::stop(int why, State state) {
    depth = 1;
    gnt_context& context = *running;
    status = why;
    context.state = state;
    leave_fiber(context.fiber, own_fiber, state == State::idle);
    gnt_switch(&context.sp, own_sp);
}

bool Lane::must_stop(Nanoseconds now) {
    if (born.is_forked()) return false;  // whoever would run next does so in the parent
    const bool was_urgent = is_urgent.exchange(false, std::memory_order_relaxed);
    if (now < slice_end && !was_urgent) {
        ++ticks.stale;
        source->arm(*this, slice_end, period.load(std::memory_order_relaxed));
        return false;
    }
    Nanoseconds again = unlimited;
    if (judge != nullptr && !judge->must_stop(now, again)) {
        ++ticks.kept;
        const Nanoseconds ask_at = again >= unlimited - now ? unlimited : now + again;
        // An urgent tick that was not obeyed leaves the slice as it is.
        slice_end = now >= slice_end ? ask_at : std::min(slice_end, ask_at);
        retry = first_retry_ns;
        source->arm(*this, slice_end, again);
        return false;
    }
    if (late_count < late_size && slice_end != unlimited) late[late_count++] = now - slice_end;
    ++ticks.preempted;
    stopped_at = now;
    return true;
}

void Lane::poll() {
    raise_flag(polls_clock);
    if (running == nullptr) return;
    const Nanoseconds now = now_ns();
    if (polls_clock && now < slice_end && !is_urgent.load(std::memory_order_relaxed)) return;
    if (depth > 0) {
        if (deferred == 0) ++ticks.guarded;
        deferred = 1;
        return;
    }
    deferred = 0;
    depth = 1;
    if (must_stop(now)) {
        stop(GNT_PREEMPTED, State::suspended);
        arrived();
    }
    go_on();
}

void Lane::interrupt(const void* sp, const void* pc, std::uint64_t mask) {
    if (running == nullptr || !running->holds(sp)) {
        ++ticks.stale;
        if (running == nullptr) source->silence(*this);
        else if (is_urgent.load(std::memory_order_relaxed))
            source->arm(*this, now_ns() + retry, period.load(std::memory_order_relaxed));
        return;
    }
    if (depth > 0) {
        if (deferred == 0) ++ticks.guarded;
        deferred = 1;
        return;
    }
    const Nanoseconds now = now_ns();
    // A handler of somebody else's signal is no place to leave. It does not take long: what does is a function that has
    // blocked signals.
    odd_ticks = mask == usual_mask ? 0 : odd_ticks + 1;
    const bool is_in_handler = odd_ticks != 0 && odd_ticks < handler_ticks;
    if (is_in_handler || !may_be_cut(pc)) {
        ++ticks.outside;
        if (now >= slice_end || is_urgent.load(std::memory_order_relaxed)) {
            source->arm(*this, now + retry, period.load(std::memory_order_relaxed));
            retry = std::min(2 * retry, last_retry_ns);
        }
        return;
    }
    depth = 1;
    if (must_stop(now)) {
        is_masked = true;
        stop(GNT_PREEMPTED, State::cut);
        enter_fiber(running->fiber, own_fiber);
    }
    go_on();
}

void Lane::rearm(Nanoseconds limit) {
    const Guard guard;
    const Nanoseconds now = now_ns();
    slice_end = limit >= unlimited - now ? unlimited : now + limit;
    source->arm(*this, slice_end, limit);
}

int Lane::yield() {
    if (running == nullptr || depth > 0) return GNT_ESTATE;
    if (born.is_forked()) return GNT_EFORKED;
    depth = 1;
    stopped_at = now_ns();
    stop(GNT_YIELDED, State::suspended);
    arrived();
    go_on();
    return 0;
}

}  // namespace gnomon::threads

void gnt_begin(gnt_context* context) {
    gnomon::threads::Lane* lane = gnomon::threads::self();
    lane->arrived();
    lane->go_on();
    context->result = context->function(context->argument);
    // A task begins and ends on the same thread; the compiler need not know.
    lane = gnomon::threads::self();
    lane->depth = 1;
    lane->stopped_at = gnomon::now_ns();
    lane->stop(GNT_COMPLETED, gnomon::threads::State::idle);
    __builtin_unreachable();
}

void gnt_poll_slow() {
    if (auto* lane = gnomon::threads::self(); lane != nullptr) lane->poll();
}
