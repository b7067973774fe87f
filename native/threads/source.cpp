#include "threads/source.hpp"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <stdexcept>

#include "threads/timer_thread.hpp"

namespace gnomon::threads {
namespace {

std::atomic<unsigned> forks{0};

void send_signal(const Lane& lane) { syscall(SYS_tgkill, getpid(), lane.thread_id, preemption_signal); }

void unblock_signal() {
    sigset_t ours;
    sigemptyset(&ours);
    sigaddset(&ours, preemption_signal);
    pthread_sigmask(SIG_UNBLOCK, &ours, nullptr);
}

void receive_signals(Lane& lane) {
    install_handlers();
    unblock_signal();
    lane.note_mask();
    lane.thread_id = static_cast<pid_t>(syscall(SYS_gettid));
}

class Safepoint final : public TimerThread {
public:
    ~Safepoint() override { end(); }
    [[nodiscard]] const char* name() const override { return "safepoint"; }
    [[nodiscard]] bool is_polled() const override { return true; }

protected:
    void fire(Lane& lane) override { lane.raise_flag(true); }
};

class Signal : public TimerThread {
public:
    ~Signal() override { end(); }
    [[nodiscard]] const char* name() const override { return "signal"; }
    [[nodiscard]] bool cuts_anywhere() const override { return true; }
    void unmask() override { unblock_signal(); }
    void attach(Lane& lane) override {
        receive_signals(lane);
        TimerThread::attach(lane);
    }

protected:
    void fire(Lane& lane) override { send_signal(lane); }
};

/// Sleeps until the next deadline. A deadline that comes before the one it sleeps for wakes it.
class Sleeper final : public Signal {
public:
    ~Sleeper() override { end(); }
    [[nodiscard]] const char* name() const override { return "sleeper"; }
    bool take_poll(void (*)(void*), void*) override { return false; }

    void arm(Lane& lane, Nanoseconds deadline, Nanoseconds period) override {
        Signal::arm(lane, deadline, period);
        std::atomic_thread_fence(std::memory_order_seq_cst);
        if (deadline < asleep_until_.load(std::memory_order_seq_cst)) wake();
    }
    void hurry(Lane&) override { wake(); }

protected:
    void wake() override {
        asleep_until_.store(0, std::memory_order_seq_cst);
        turn_.fetch_add(1, std::memory_order_seq_cst);
        syscall(SYS_futex, &turn_, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
    }
    void begin_turn() override { seen_ = turn_.load(std::memory_order_seq_cst); }
    void rest(Nanoseconds next) override {
        // Whoever arms from here on sees this; whoever did before is seen.
        asleep_until_.store(next, std::memory_order_seq_cst);
        if (is_earlier(next)) return;
        const timespec until{next / 1'000'000'000, next % 1'000'000'000};
        syscall(SYS_futex, &turn_, FUTEX_WAIT_BITSET_PRIVATE, seen_, next == unlimited ? nullptr : &until, nullptr,
                FUTEX_BITSET_MATCH_ANY);
        asleep_until_.store(0, std::memory_order_seq_cst);
    }

private:
    [[nodiscard]] bool is_earlier(Nanoseconds next) const {
        return is_any([&](const Lane& lane) { return lane.deadline.load(std::memory_order_seq_cst) < next; });
    }

    std::atomic<std::uint32_t> turn_{0};
    std::uint32_t seen_ = 0;
    std::atomic<Nanoseconds> asleep_until_{0};
};

/// One timer a thread. It is not stopped when a function ends early: a tick that comes too soon arms it again.
class PosixTimer final : public Source {
public:
    [[nodiscard]] const char* name() const override { return "posix_timer"; }
    [[nodiscard]] bool cuts_anywhere() const override { return true; }
    void unmask() override { unblock_signal(); }

    void attach(Lane& lane) override {
        receive_signals(lane);
        sigevent event{};
        event.sigev_notify = SIGEV_THREAD_ID;
        event.sigev_signo = preemption_signal;
        event._sigev_un._tid = lane.thread_id;
        lane.timer_end = 0;
        if (timer_create(CLOCK_MONOTONIC, &event, &lane.timer) != 0)
            throw std::runtime_error(std::string("posix_timer: the kernel gives no timer: ") + std::strerror(errno));
    }
    void detach(Lane& lane) override { timer_delete(lane.timer); }

    void arm(Lane& lane, Nanoseconds deadline, Nanoseconds period) override {
        lane.period.store(period, std::memory_order_relaxed);
        lane.deadline.store(deadline, std::memory_order_relaxed);
        const bool is_over = lane.timer_end <= now_ns();
        if (deadline == unlimited) {
            if (is_over) silence(lane);
        } else if (is_over || lane.timer_end > deadline) {
            set(lane, deadline);
        }
    }
    void disarm(Lane& lane) override { lane.deadline.store(unlimited, std::memory_order_relaxed); }
    void silence(Lane& lane) override {
        if (lane.timer_end == 0) return;
        const itimerspec never{};
        lane.timer_end = 0;
        timer_settime(lane.timer, 0, &never, nullptr);
    }
    void hurry(Lane& lane) override { send_signal(lane); }

private:
    static constexpr Nanoseconds least_ns = 10'000;

    static void set(Lane& lane, Nanoseconds deadline) {
        // Sooner it would fire before the function gets on at all, again and again.
        deadline = std::max(deadline, now_ns() + least_ns);
        itimerspec when{};
        when.it_value = {deadline / 1'000'000'000, deadline % 1'000'000'000};
        when.it_interval = {0, repeat_ns};  // until it is set again
        lane.timer_end = deadline;
        timer_settime(lane.timer, TIMER_ABSTIME, &when, nullptr);
    }
};

/// Every poll looks at the clock.
class Clock final : public Source {
public:
    [[nodiscard]] const char* name() const override { return "clock"; }
    [[nodiscard]] bool is_polled() const override { return true; }
    [[nodiscard]] bool is_polled_clock() const override { return true; }
    void attach(Lane&) override {}
    void detach(Lane&) override {}
    void arm(Lane& lane, Nanoseconds, Nanoseconds) override { lane.raise_flag(true); }
    void disarm(Lane& lane) override { lane.raise_flag(false); }
};

class None final : public Source {
public:
    [[nodiscard]] const char* name() const override { return "none"; }
    void attach(Lane&) override {}
    void detach(Lane&) override {}
    void arm(Lane&, Nanoseconds, Nanoseconds) override {}
    void disarm(Lane&) override {}
};

template <typename Made>
std::unique_ptr<Source> make() {
    return std::make_unique<Made>();
}

std::string always() { return ""; }

std::string why_no_spare_core() {
    return std::thread::hardware_concurrency() >= 2 ? "" : "its thread spins, and there is one core";
}

}  // namespace

bool Placement::apply() const {
    if (cpu >= 0) {
        cpu_set_t set;
        CPU_ZERO(&set);
        CPU_SET(static_cast<unsigned>(cpu), &set);
        pthread_setaffinity_np(pthread_self(), sizeof set, &set);
    }
    if (realtime <= 0) return true;
    const sched_param priority{realtime};
    return pthread_setschedparam(pthread_self(), SCHED_FIFO, &priority) == 0;
}

namespace {
thread_local bool is_polling = false;
}

void call_poll(void (*poll)(void*), void* argument) {
    is_polling = true;
    poll(argument);
    is_polling = false;
}

bool is_in_poll() { return is_polling; }

const std::vector<Kind>& kinds() {
    static const std::vector<Kind> all{
        {"none", "nothing is preempted", false, false, &always, &make<None>},
        {"safepoint", "a spinning thread raises a flag that functions poll", true, true, &why_no_spare_core,
         &make<Safepoint>},
        {"clock", "functions poll the clock", true, false, &always, &make<Clock>},
        {"signal", "a spinning thread sends a signal", false, true, &why_no_spare_core, &make<Signal>},
        {"sleeper", "a sleeping thread sends a signal", false, false, &always, &make<Sleeper>},
        {"posix_timer", "a timer of the kernel sends a signal", false, false, &always, &make<PosixTimer>},
        {"uintr", "a spinning thread sends a user interrupt", false, true, &why_no_uintr, &make_uintr},
    };
    return all;
}

const Kind* find_kind(const std::string& name) {
    const auto found = std::find_if(kinds().begin(), kinds().end(), [&](const Kind& one) { return name == one.name; });
    return found == kinds().end() ? nullptr : &*found;
}

Born::Born() {
    static const int watching = pthread_atfork(nullptr, nullptr, [] { forks.fetch_add(1); });
    static_cast<void>(watching);
    forks_ = forks.load(std::memory_order_relaxed);
}

bool Born::is_forked() const { return forks_ != forks.load(std::memory_order_relaxed); }

}  // namespace gnomon::threads
