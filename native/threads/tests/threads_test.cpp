// Preemptible functions and pools on real threads. Nothing here depends on how fast the machine is: tests wait for what
// must happen, and only `alarm` ends one that hangs.
#include "gnomon/threads.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <vector>

namespace {

int failures = 0, checks = 0;

void expect(bool holds, const std::string& what) {
    ++checks;
    if (holds) return;
    ++failures;
    std::fprintf(stderr, "threads: %s\n", what.c_str());
}

#if defined(__SANITIZE_THREAD__)
std::vector<std::string> sources{"safepoint", "clock"};
#else
std::vector<std::string> sources{"safepoint", "clock", "signal", "sleeper", "posix_timer"};
#endif

bool is_polled(const std::string& source) { return source == "safepoint" || source == "clock"; }

/// Spins until it has been preempted `cuts` times, however long that takes.
struct Spin {
    std::atomic<int> resumed{0};
    int cuts = 0;
};

std::intptr_t spin_until_cut(void* given) {
    auto& spin = *static_cast<Spin*>(given);
    while (spin.resumed.load(std::memory_order_relaxed) < spin.cuts) gnt_poll();
    return 42;
}

struct Session {
    explicit Session(const std::string& source) : opened(source.c_str()), attached(opened) {}
    gnomon::PreemptionSource opened;
    gnomon::AttachedThread attached;
};

// --- functions ---------------------------------------------------------------------------------------

void functions_are_preempted(const std::string& source) {
    const Session session(source);
    gnt_context* context = gnt_context_new(0);
    for (int round = 0; round < 3; ++round) {
        Spin spin;
        spin.cuts = 20;
        int status = gnt_launch(context, &spin_until_cut, &spin, 100'000);
        while (status == GNT_PREEMPTED) {
            expect(gnt_completed(context) == 0, source + ": a preempted function has not ended");
            ++spin.resumed;
            status = gnt_resume(context, 50'000);
        }
        expect(status == GNT_COMPLETED && gnt_result(context) == 42 && spin.resumed >= 20,
               source + ": it is preempted and ends");
    }
    expect(gnt_resume(context, 1000) == GNT_ESTATE, source + ": what has ended is not resumed");
    gnt_context_free(context);
}

std::intptr_t yield_thrice(void* given) {
    for (int i = 0; i < 3; ++i) {
        ++*static_cast<int*>(given);
        if (gnt_yield() != 0) return 1;
    }
    return 0;
}

std::intptr_t try_to_nest(void* given) {
    auto* other = static_cast<gnt_context*>(given);
    return gnt_launch(other, &yield_thrice, nullptr, 1000) == GNT_ESTATE && gnt_detach() == GNT_ESTATE;
}

void states_are_checked() {
    expect(gnt_yield() == GNT_ESTATE && gnt_rearm(1000) == GNT_ESTATE && gnt_detach() == GNT_ESTATE,
           "outside of a function there is nothing to yield");
    gnt_context* context = gnt_context_new(1);
    gnt_context* other = gnt_context_new(0);
    expect(gnt_launch(context, &yield_thrice, nullptr, 1000) == GNT_ESTATE, "a thread has to attach first");
    char why[200] = "";
    expect(gnt_source_open("magic", why, sizeof why) == nullptr && std::strstr(why, "magic") != nullptr,
           "an unknown source is refused by name");
    {
        const Session session("none");
        int count = 0;
        expect(gnt_launch(context, &yield_thrice, &count, 0) == GNT_PREEMPTED && count == 0,
               "a limit of 0 only launches");
        for (int i = 1; i <= 3; ++i) expect(gnt_resume(context, GNT_NEVER) == GNT_YIELDED && count == i, "it yields");
        expect(gnt_launch(context, &yield_thrice, &count, 1) == GNT_ESTATE, "a function that waits is not replaced");
        expect(gnt_cancel(context) == GNT_CANCELLED && gnt_cancel(context) == GNT_ESTATE,
               "a function is cancelled once");
        expect(gnt_launch(context, &try_to_nest, other, GNT_NEVER) == GNT_COMPLETED && gnt_result(context) == 1,
               "functions do not nest");
        expect(gnt_attach(session.opened.get()) == GNT_ESTATE, "a thread attaches once");
        expect(gnt_launch(nullptr, &try_to_nest, nullptr, 1) == GNT_EINVAL && gnt_resume(context, -1) == GNT_EINVAL,
               "arguments are checked");
    }
    gnt_context_free(context);
    gnt_context_free(other);
    for (int code = GNT_ESTATIC; code <= 3; ++code) expect(std::strlen(gnt_error(code)) > 3, "errors have words");
}

/// Sums in vector registers and in an unusual rounding mode, which other functions must not see or spoil.
std::intptr_t compute(void* given) {
    auto* values = static_cast<double*>(given);
    const auto turns = static_cast<int>(values[0]);
    double a[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    for (int i = 0; i < turns; ++i) {
        for (double& one : a) one = std::sqrt(one * 1.0000001 + values[1]);
        if (i % 16 == 0) gnt_poll();
    }
    double sum = 0.0;
    for (const double one : a) sum += one;
    values[2] = sum;
    return 0;
}

void registers_are_kept(const std::string& source) {
    double plain[2][3] = {{400'000, 0.5, 0}, {400'000, 0.25, 0}};
    compute(plain[0]);
    compute(plain[1]);
    const Session session(source);
    double cut[2][3] = {{400'000, 0.5, 0}, {400'000, 0.25, 0}};
    gnt_context* contexts[2] = {gnt_context_new(0), gnt_context_new(0)};
    int preemptions = 0;
    while (preemptions == 0) {  // a timer may be held up for as long as this takes
        for (int i = 0; i < 2; ++i) gnt_launch(contexts[i], &compute, cut[i], 0);
        for (int running = 2; running > 0;) {
            for (auto* context : contexts) {
                if (gnt_completed(context)) continue;
                const int status = gnt_resume(context, 30'000);
                running -= status == GNT_COMPLETED;
                preemptions += status == GNT_PREEMPTED;
            }
        }
    }
    expect(cut[0][2] == plain[0][2] && cut[1][2] == plain[1][2], source + ": registers are kept");
    for (auto* context : contexts) gnt_context_free(context);
}

struct Guarded {
    std::atomic<bool> is_inside{false};
};

std::intptr_t guard_then_spin(void* given) {
    auto& mine = *static_cast<Guarded*>(given);
    gnt_guard_enter();
    gnt_guard_enter();
    mine.is_inside = true;
    while (gnt_self->deferred == 0) gnt_poll();
    gnt_guard_leave();
    for (int i = 0; i < 1000; ++i) gnt_poll();
    mine.is_inside = false;
    gnt_guard_leave();  // the preemption that waited happens here
    return 7;
}

void guards_defer(const std::string& source) {
    const Session session(source);
    gnt_context* context = gnt_context_new(0);
    Guarded mine;
    int status = gnt_launch(context, &guard_then_spin, &mine, 200'000);
    expect(status == GNT_PREEMPTED && !mine.is_inside, source + ": a guard defers a preemption to its end");
    while (status == GNT_PREEMPTED) status = gnt_resume(context, GNT_NEVER);
    expect(status == GNT_COMPLETED && gnt_result(context) == 7, source + ": and the function goes on");
    gnt_context_free(context);
}

std::intptr_t spin_short_slices(void* given) {
    volatile std::uint64_t x = 0;
    for (std::uint64_t i = *static_cast<std::uint64_t*>(given); i > 0; --i) {
        x = x + i;
        gnt_poll();
    }
    return static_cast<std::intptr_t>(x);
}

/// Ticks come at every moment, also between two functions: none is lost for good, none nests.
void short_slices_end(const std::string& source) {
    const Session session(source);
    gnt_context* contexts[3];
    std::uint64_t turns = 300'000;
    for (auto& context : contexts) {
        context = gnt_context_new(32 * 1024);
        gnt_launch(context, &spin_short_slices, &turns, 0);
    }
    for (int running = 3; running > 0;) {
        for (auto* context : contexts)
            if (!gnt_completed(context)) running -= gnt_resume(context, 2'000) == GNT_COMPLETED;
    }
    bool is_right = true;
    for (auto* context : contexts) {
        is_right &= gnt_result(context) == 300'000LL * 300'001 / 2;
        gnt_context_free(context);
    }
    expect(is_right, source + ": slices of 2 us");
}

// --- signals -----------------------------------------------------------------------------------------

std::atomic<bool> is_in_handler{false};

void slow_handler(int) {
    is_in_handler = true;
    for (const std::int64_t end = gnt_now() + 500'000; gnt_now() < end;) {
    }
    is_in_handler = false;
}

std::intptr_t raise_signals(void* given) {
    for (int i = 0; i < 5; ++i) raise(SIGUSR1);
    return spin_until_cut(given) == 42 ? 3 : 0;
}

void other_handlers_are_not_left() {
    std::signal(SIGUSR1, &slow_handler);
    const Session session("signal");
    gnt_context* context = gnt_context_new(0);
    Spin spin;
    spin.cuts = 3;
    int status = gnt_launch(context, &raise_signals, &spin, 50'000);
    bool was_inside = false;
    for (; status == GNT_PREEMPTED; ++spin.resumed) {
        was_inside |= is_in_handler;
        status = gnt_resume(context, 50'000);
    }
    expect(!was_inside && gnt_result(context) == 3, "a handler of another signal is not left");
    gnt_context_free(context);
    std::signal(SIGUSR1, SIG_DFL);
}

/// Inside libc for most of the time: it is never cut there, and still gives way.
std::intptr_t copy_around(void* given) {
    auto& spin = *static_cast<Spin*>(given);
    std::vector<char> from(1 << 16, 'x'), to(1 << 16);
    while (spin.resumed < spin.cuts) {
        std::memcpy(to.data(), from.data(), from.size());
        asm volatile("" ::"r"(to.data()) : "memory");
    }
    return 5;
}

void libc_is_not_cut() {
    const Session session("signal");
    gnt_context* context = gnt_context_new(0);
    Spin spin;
    spin.cuts = 5;
    int status = gnt_launch(context, &copy_around, &spin, 20'000);
    for (; status == GNT_PREEMPTED; status = gnt_resume(context, 20'000)) ++spin.resumed;
    expect(status == GNT_COMPLETED && gnt_result(context) == 5, "functions that live in libc give way outside of it");
    gnt_context_free(context);
}

struct Thrower {
    int mine;
    std::atomic<int>* in_catch;
};

std::intptr_t throw_and_catch(void* given) {
    const auto& mine = *static_cast<Thrower*>(given);
    for (int i = 0; i < 20; ++i) {
        try {
            throw mine.mine * 1000 + i;
        } catch (int caught) {
            ++*mine.in_catch;
            gnt_yield();  // others throw meanwhile
            if (caught != mine.mine * 1000 + i) return 1;
            try {
                throw;
            } catch (int again) {
                if (again != caught) return 2;
            }
        }
    }
    return 0;
}

void exceptions_stay_apart() {
    const Session session("none");
    std::atomic<int> in_catch{0};
    Thrower throwers[3] = {{1, &in_catch}, {2, &in_catch}, {3, &in_catch}};
    gnt_context* contexts[3];
    for (int i = 0; i < 3; ++i) gnt_launch(contexts[i] = gnt_context_new(0), &throw_and_catch, &throwers[i], 0);
    for (int running = 3; running > 0;)
        for (auto* context : contexts)
            if (!gnt_completed(context)) running -= gnt_resume(context, GNT_NEVER) == GNT_COMPLETED;
    bool is_right = true;
    for (auto* context : contexts) {
        is_right &= gnt_result(context) == 0;
        gnt_context_free(context);
    }
    expect(is_right && in_catch == 60, "exceptions of one function are not those of another");
    gnomon::Preemptible failing([] { throw std::runtime_error("as it should"); });
    bool is_thrown = false;
    try {
        failing.resume(std::chrono::seconds(1));
    } catch (const std::runtime_error& error) {
        is_thrown = std::strcmp(error.what(), "as it should") == 0;
    }
    expect(is_thrown && failing.is_done(), "what a function throws comes out of resume");
}

// --- processes ---------------------------------------------------------------------------------------

struct Child {
    int status;
    std::string said;
};

Child in_child(const std::function<void()>& body) {
    int ends[2];
    if (pipe(ends) != 0) std::abort();
    std::fflush(nullptr);
    const pid_t child = fork();
    if (child == 0) {
        dup2(ends[1], STDERR_FILENO);
        alarm(60);
        body();
        _exit(0);
    }
    close(ends[1]);
    Child seen{0, ""};
    char bytes[512];
    for (ssize_t count; (count = read(ends[0], bytes, sizeof bytes)) > 0;)
        seen.said.append(bytes, static_cast<std::size_t>(count));
    close(ends[0]);
    waitpid(child, &seen.status, 0);
    return seen;
}

std::intptr_t recurse(void* given) {
    volatile char room[2048];
    room[0] = static_cast<char>(reinterpret_cast<std::intptr_t>(given));
    return recurse(reinterpret_cast<void*>(reinterpret_cast<std::intptr_t>(given) + 1)) + room[0];
}

void overflows_are_told() {
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    const Child seen = in_child([] {
        const Session session("none");
        gnt_launch(gnt_context_new(32 * 1024), &recurse, nullptr, GNT_NEVER);
    });
    expect(WIFSIGNALED(seen.status) && WTERMSIG(seen.status) == SIGSEGV, "an overflow ends the process");
    expect(seen.said.find("overflowed its stack of 32 KiB") != std::string::npos, "and says why: " + seen.said);
#endif
}

// --- pools -------------------------------------------------------------------------------------------

struct Work {
    std::uint64_t turns = 0;
    std::atomic<std::uint64_t>* sum = nullptr;
};

std::intptr_t count_turns(void* given) {
    const auto& mine = *static_cast<Work*>(given);
    for (std::uint64_t i = 0; i < mine.turns; ++i) {
        asm volatile("" ::: "memory");
        gnt_poll();
    }
    mine.sum->fetch_add(mine.turns);
    return static_cast<std::intptr_t>(mine.turns);
}

struct Tally {
    std::atomic<int> completed{0}, cancelled{0}, wrong{0};
    static void note(const gnt_report* report, void* self) {
        auto& tally = *static_cast<Tally*>(self);
        ++(report->status == GNT_COMPLETED ? tally.completed : tally.cancelled);
        if (report->ended_ns < report->begun_ns || report->attained_ns < 0) ++tally.wrong;
    }
};

gnt_pool* start(const std::string& source, unsigned policy, unsigned workers,
                gnt_pool_options options = GNT_POOL_OPTIONS) {
    options.source = source.c_str();
    options.policy = policy;
    options.workers = workers;
    char error[256] = "";
    gnt_pool* pool = gnt_pool_start(&options, error, sizeof error);
    if (pool == nullptr) std::fprintf(stderr, "threads: %s\n", error);
    return pool;
}

void every_policy_runs_everything(const std::string& source) {
    for (unsigned policy = GNT_FCFS; policy <= GNT_BEST_EFFORT; ++policy) {
        gnt_pool_options options = GNT_POOL_OPTIONS;
        options.quantum_ns = is_polled(source) ? 3'000 : 50'000;
        options.max_tasks = 300;
        gnt_pool* pool = start(source, policy, 2, options);
        std::vector<Work> works(250);
        std::atomic<std::uint64_t> sum{0};
        std::uint64_t expected = 0;
        Tally tally;
        for (std::size_t i = 0; i < works.size(); ++i) {
            works[i] = {i % 25 == 0 ? 100'000U : 100U + static_cast<unsigned>(i), &sum};
            expected += works[i].turns;
            gnt_job job{};
            job.function = &count_turns;
            job.argument = &works[i];
            job.kind = i % 25 == 0 ? 1 : 0;
            job.hint_ns = static_cast<std::int64_t>(works[i].turns);
            job.deadline_ns = gnt_now() + static_cast<std::int64_t>(works[i].turns) * 10;
            job.on_done = &Tally::note;
            job.user = &tally;
            expect(gnt_submit(pool, &job, nullptr) == 0, source + ": a task is taken");
        }
        gnt_pool_stop(pool, 1);
        expect(sum == expected && tally.completed == 250 && tally.wrong == 0,
               source + ": policy " + std::to_string(policy) + " runs every task to its end");
    }
}

std::intptr_t spin_until_cancelled(void*) {
    while (!gnt_is_cancelled()) gnt_poll();
    return 9;
}

std::intptr_t spin_for_ever(void*) {
    for (;;) gnt_poll();
    return 0;
}

void wait_until(const std::function<bool()>& holds) {
    while (!holds()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

void tasks_are_cancelled(const std::string& source) {
    gnt_pool* pool = start(source, GNT_FCFS, 1);
    Tally tally;
    std::uint64_t running = 0, waiting = 0, polite = 0;
    gnt_job job{};
    job.on_done = &Tally::note;
    job.user = &tally;
    job.function = &spin_for_ever;
    gnt_submit(pool, &job, &running);
    gnt_submit(pool, &job, &waiting);
    expect(gnt_cancel_task(pool, waiting) == 0 && gnt_cancel_task(pool, running) == 0, "tasks are cancelled");
    wait_until([&] { return tally.cancelled == 2; });
    expect(gnt_cancel_task(pool, running) == GNT_EINVAL, source + ": what has ended is not cancelled");
    job.function = &spin_until_cancelled;
    gnt_submit(pool, &job, &polite);
    gnt_pool_stats stats;
    wait_until([&] {
        gnt_pool_read_stats(pool, &stats);
        return stats.cancelled == 2;
    });
    gnt_cancel_task(pool, polite);
    wait_until([&] { return tally.completed + tally.cancelled == 3; });
    job.function = &spin_for_ever;
    for (int i = 0; i < 5; ++i) gnt_submit(pool, &job, nullptr);
    gnt_pool_stop(pool, 0);
    expect(tally.completed + tally.cancelled == 8, source + ": a pool that stops cancels what is left");
}

struct Chain {
    gnt_pool* pool;
    std::atomic<int> left;
};

std::intptr_t submit_next(void* given) {
    auto& chain = *static_cast<Chain*>(given);
    if (--chain.left <= 0) return 0;
    gnt_job job{};
    job.function = &submit_next;
    job.argument = given;
    return gnt_submit(chain.pool, &job, nullptr);
}

void tasks_submit_tasks(const std::string& source) {
    gnt_pool* pool = start(source, GNT_ROUND_ROBIN, 2);
    Chain chain{pool, {500}};
    gnt_job job{};
    job.function = &submit_next;
    job.argument = &chain;
    gnt_submit(pool, &job, nullptr);
    wait_until([&] { return chain.left <= 0; });
    gnt_pool_stop(pool, 1);
    expect(chain.left == 0, source + ": tasks submit tasks");
}

gnt_pool* stealing = nullptr;

/// Ends when some worker has taken a task from another.
std::intptr_t hold_until_stolen(void*) {
    gnt_pool_stats stats{};
    while (stats.stolen == 0) gnt_pool_read_stats(stealing, &stats);
    return 0;
}

void idle_workers_steal() {
    // Both workers have as many tasks; those of one are held up, and the other has nothing left to do.
    stealing = start("none", GNT_FCFS, 2);
    Tally tally;
    std::atomic<std::uint64_t> sum{0};
    Work brief{10, &sum};
    for (int i = 0; i < 20; ++i) {
        gnt_job job{};
        job.function = i == 0 ? &hold_until_stolen : &count_turns;
        job.argument = &brief;
        job.on_done = &Tally::note;
        job.user = &tally;
        gnt_submit(stealing, &job, nullptr);
    }
    wait_until([&] {
        if (tally.completed == 20) return true;
        gnt_job job{};  // whatever was stolen or not so far, more comes
        job.function = &count_turns;
        job.argument = &brief;
        gnt_submit(stealing, &job, nullptr);
        return false;
    });
    gnt_pool_stats stats;
    gnt_pool_read_stats(stealing, &stats);
    gnt_pool_stop(stealing, 1);
    expect(stats.stolen > 0, "a worker without work takes some from others");
}

/// One after the other as fast as it goes: no cancellation is lost, whatever the moment.
void cancellations_are_not_lost(const std::string& source) {
    gnt_pool* pool = start(source, GNT_FCFS, 1);
    Tally tally;
    for (int i = 0; i < 300; ++i) {
        gnt_job job{};
        job.function = &spin_for_ever;
        job.on_done = &Tally::note;
        job.user = &tally;
        std::uint64_t task = 0;
        gnt_submit(pool, &job, &task);
        if (i % 3 == 1) std::this_thread::yield();
        if (i % 3 == 2) std::this_thread::sleep_for(std::chrono::microseconds(i));
        gnt_cancel_task(pool, task);
        wait_until([&] { return tally.cancelled == i + 1; });
    }
    gnt_pool_stop(pool, 1);
    expect(tally.cancelled == 300, source + ": every task is cancelled");
}

std::atomic<int> to_submit{0};

std::intptr_t submit_on(void* given) {
    if (--to_submit < 0) return 0;
    gnt_job job{};
    job.function = &submit_on;
    job.argument = given;
    while (gnt_submit(static_cast<gnt_pool*>(given), &job, nullptr) == GNT_ENOMEM) gnt_poll();
    return 0;
}

void pools_stop_while_tasks_submit() {
    for (int i = 0; i < 60; ++i) {
        gnt_pool_options options = GNT_POOL_OPTIONS;
        options.max_tasks = 8;
        gnt_pool* pool = start("clock", GNT_ROUND_ROBIN, 2, options);
        gnt_job job{};
        job.function = &submit_on;
        job.argument = pool;
        to_submit = i % 2 == 1 ? 2'000 : 1'000'000'000;  // what is drained has an end
        for (int k = 0; k < 4; ++k) gnt_submit(pool, &job, nullptr);
        expect(gnt_pool_stop(pool, i % 2) == 0, "a pool stops while tasks submit others");
    }
}

struct Inside {
    gnt_pool* pool;
    std::atomic<int> is_right{-1};
};

void workers_refuse_what_would_hang() {
    Inside inside{start("none", GNT_FCFS, 1), {-1}};
    gnt_job job{};
    job.function = &submit_next;
    Chain chain{inside.pool, {0}};
    job.argument = &chain;
    job.on_done = [](const gnt_report*, void* given) {
        auto& mine = *static_cast<Inside*>(given);
        gnt_context* context = gnt_context_new(0);
        mine.is_right = gnt_is_cancelled() == 0 && gnt_pool_stop(mine.pool, 0) == GNT_ESTATE &&
                        gnt_launch(context, &yield_thrice, nullptr, 1000) == GNT_ESTATE;
        gnt_context_free(context);
    };
    job.user = &inside;
    gnt_submit(inside.pool, &job, nullptr);
    wait_until([&] { return inside.is_right >= 0; });
    gnt_pool_stop(inside.pool, 1);
    expect(inside.is_right == 1, "what a worker cannot do is refused in on_done");
}

void functions_stay_on_their_thread() {
    const Session session("none");
    gnt_context* context = gnt_context_new(0);
    int count = 0, elsewhere = 0;
    gnt_launch(context, &yield_thrice, &count, GNT_NEVER);
    std::thread([&] {
        const Session other("none");
        elsewhere = gnt_resume(context, GNT_NEVER);
    }).join();
    expect(elsewhere == GNT_ESTATE, "a function is not resumed on another thread");
    gnt_cancel(context);
    gnt_context_free(context);
}

/// A freed lane's address may be that of the next one.
void contexts_know_their_lane() {
    gnt_context* context = gnt_context_new(0);
    int count = 0;
    {
        const Session session("none");
        gnt_launch(context, &yield_thrice, &count, GNT_NEVER);
    }
    const Session again("none");
    expect(gnt_resume(context, GNT_NEVER) == GNT_ESTATE, "a function does not outlive its thread's attachment");
    gnt_cancel(context);
    gnt_context_free(context);
    expect(gnt_context_new(SIZE_MAX) == nullptr, "a stack has an upper limit");
}

struct Moving {
    std::thread::id begun;
    std::atomic<int>* moved;
};

std::intptr_t yield_and_look(void* given) {
    auto& mine = *static_cast<Moving*>(given);
    mine.begun = std::this_thread::get_id();
    for (int i = 0; i < 20; ++i) {
        gnt_yield();
        if (std::this_thread::get_id() != mine.begun) ++*mine.moved;
    }
    return 0;
}

void tasks_stay_on_their_worker() {
    std::atomic<int> moved{0};
    for (unsigned policy = GNT_FCFS; policy <= GNT_BEST_EFFORT; ++policy) {
        gnt_pool* pool = start("none", policy, 3);
        std::vector<Moving> moving(60, Moving{{}, &moved});
        for (std::size_t i = 0; i < moving.size(); ++i) {
            gnt_job job{};
            job.function = &yield_and_look;
            job.argument = &moving[i];
            job.kind = static_cast<int>(i % 2);
            gnt_submit(pool, &job, nullptr);
        }
        gnt_pool_stop(pool, 1);
    }
    expect(moved == 0, "a task stays on the worker that began it");
}

/// Tasks that are submitted by tasks and by on_done are part of what is drained, also when one slot is all there is.
void draining_includes_what_tasks_submit() {
    gnt_pool_options options = GNT_POOL_OPTIONS;
    options.max_tasks = 2;
    gnt_pool* pool = start("clock", GNT_FCFS, 1, options);
    Chain chain{pool, {200}};
    gnt_job job{};
    job.function = &submit_next;
    job.argument = &chain;
    gnt_submit(pool, &job, nullptr);
    gnt_pool_stop(pool, 1);
    expect(chain.left == 0, "a pool that drains takes what its tasks submit");
    options.max_tasks = 1;
    pool = start("none", GNT_FCFS, 1, options);
    Inside inside{pool, {-1}};
    chain.left = 0;
    job.on_done = [](const gnt_report*, void* given) {
        auto& mine = *static_cast<Inside*>(given);
        gnt_job another{};
        another.function = &spin_until_cut;
        static Spin none;
        another.argument = &none;
        mine.is_right = gnt_submit(mine.pool, &another, nullptr) == 0 ? 1 : 0;
    };
    job.user = &inside;
    gnt_submit(pool, &job, nullptr);
    wait_until([&] { return inside.is_right >= 0; });
    gnt_pool_stop(pool, 1);
    expect(inside.is_right == 1, "on_done may use the slot of the task that ended");
}

/// Others that are new go first for ever; a cancelled one ends all the same.
void cancelled_tasks_do_not_queue(const std::string& source) {
    gnt_pool* pool = start(source, GNT_TWO_QUEUE, 1);
    Tally tally;
    std::atomic<std::uint64_t> sum{0};
    Work brief{2000, &sum};
    std::uint64_t endless = 0;
    gnt_job job{};
    job.on_done = &Tally::note;
    job.user = &tally;
    job.function = &spin_for_ever;
    gnt_submit(pool, &job, &endless);
    job.function = &count_turns;
    job.argument = &brief;
    job.on_done = nullptr;
    std::atomic<bool> is_over{false};
    std::thread crowd([&] {
        while (!is_over) {
            if (gnt_submit(pool, &job, nullptr) != 0) std::this_thread::yield();
        }
    });
    gnt_pool_stats stats;
    wait_until([&] {
        gnt_pool_read_stats(pool, &stats);
        return stats.preemptions > 0;
    });
    gnt_cancel_task(pool, endless);
    wait_until([&] { return tally.cancelled == 1; });
    is_over = true;
    crowd.join();
    gnt_pool_stop(pool, 0);
    expect(tally.cancelled == 1, source + ": a cancelled task does not wait for its turn");
}

gnt_pool* polled = nullptr;
std::atomic<int> stopped_by_poll{1};

void pools_are_not_stopped_by_their_poll(const std::string& source) {
    gnt_pool_options options = GNT_POOL_OPTIONS;
    stopped_by_poll = 1;
    std::atomic<bool> is_made{false};
    options.poll = [](void* made) {
        if (*static_cast<std::atomic<bool>*>(made) && stopped_by_poll == 1) stopped_by_poll = gnt_pool_stop(polled, 1);
    };
    options.poll_argument = &is_made;
    polled = start(source, GNT_FCFS, 1, options);
    is_made = true;
    wait_until([&] { return stopped_by_poll != 1; });
    expect(stopped_by_poll == GNT_ESTATE, source + ": a pool is not stopped by its own dispatcher");
    gnt_pool_stop(polled, 0);
}

std::intptr_t block_a_signal(void*) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &set, nullptr);
    return 0;
}

void blocked_signals_stop_nobody() {
    gnt_pool* pool = start("signal", GNT_ROUND_ROBIN, 1);
    gnt_job job{};
    job.function = &block_a_signal;
    gnt_submit(pool, &job, nullptr);
    job.function = &spin_for_ever;
    gnt_submit(pool, &job, nullptr);
    gnt_submit(pool, &job, nullptr);
    gnt_pool_stats stats{};
    wait_until([&] {
        gnt_pool_read_stats(pool, &stats);
        return stats.preemptions > 20;
    });
    gnt_pool_stop(pool, 0);
    expect(stats.preemptions > 20, "signals that a task blocked do not keep others from being preempted");
}

void short_tasks_pass_long_ones(const std::string& source) {
    gnt_pool_options options = GNT_POOL_OPTIONS;
    options.quantum_ns = 100'000;
    gnt_pool* pool = start(source, GNT_TWO_QUEUE, 1, options);
    Tally lasting, brief;
    std::uint64_t endless = 0;
    gnt_job job{};
    job.function = &spin_for_ever;
    job.on_done = &Tally::note;
    job.user = &lasting;
    gnt_submit(pool, &job, &endless);
    std::atomic<std::uint64_t> sum{0};
    Work work{10, &sum};
    job.function = &count_turns;
    job.argument = &work;
    job.user = &brief;
    for (int i = 0; i < 10; ++i) {
        gnt_submit(pool, &job, nullptr);
        wait_until([&] { return brief.completed == i + 1; });
    }
    expect(lasting.completed + lasting.cancelled == 0, source + ": short tasks pass one that never ends");
    gnt_pool_stats stats;
    gnt_pool_read_stats(pool, &stats);
    expect(stats.preemptions >= 1, source + ": by preemption");
    gnt_pool_stop(pool, 0);
}

void forks_are_noticed() {
#if !defined(__SANITIZE_THREAD__)
    gnt_pool* pool = start("safepoint", GNT_ROUND_ROBIN, 1);
    const Child seen = in_child([&] {
        gnt_job job{};
        job.function = &spin_for_ever;
        const bool is_told = gnt_submit(pool, &job, nullptr) == GNT_EFORKED &&
                             gnt_cancel_task(pool, 1) == GNT_EFORKED && gnt_pool_stop(pool, 1) == GNT_EFORKED;
        gnt_pool* own = start("safepoint", GNT_ROUND_ROBIN, 1);  // what it makes itself works
        const bool is_stopped = gnt_pool_stop(own, 1) == 0;
        _exit(is_told && is_stopped ? 0 : 1);
    });
    expect(WIFEXITED(seen.status) && WEXITSTATUS(seen.status) == 0, "a forked process is told");
    std::atomic<std::uint64_t> sum{0};
    Work work{10, &sum};
    gnt_job job{};
    job.function = &count_turns;
    job.argument = &work;
    gnt_submit(pool, &job, nullptr);
    gnt_pool_stop(pool, 1);
    expect(sum == 10, "and the parent goes on");
#endif
}

void options_are_checked() {
    const auto refuses = [](auto change, const char* what) {
        gnt_pool_options options = GNT_POOL_OPTIONS;
        options.source = "none";
        change(options);
        char error[256] = "";
        gnt_pool* pool = gnt_pool_start(&options, error, sizeof error);
        expect(pool == nullptr && std::strlen(error) > 5, std::string("refused: ") + what);
        if (pool != nullptr) gnt_pool_stop(pool, 0);
    };
    refuses([](auto& o) { o.size = 3; }, "another version");
    refuses([](auto& o) { o.workers = 0; }, "no workers");
    refuses([](auto& o) { o.policy = 99; }, "policy");
    refuses([](auto& o) { o.quantum_ns = 0; }, "quantum");
    refuses([](auto& o) { o.max_tasks = 1'000'000; }, "tasks");
    refuses([](auto& o) { o.source = "magic"; }, "source");
    refuses([](auto& o) { o.policy = GNT_RESERVED; }, "all workers reserved");
    refuses([](auto& o) { o.control_period_ns = INT64_MAX; }, "a period of centuries");
    refuses(
        [](auto& o) {
            static const int one = 0;
            o.source = "safepoint";
            o.cpus = &one;
            o.timer_cpu = 0;
            o.realtime = 1;
        },
        "a timer that spins on the worker's core");
    gnt_pool_options options = GNT_POOL_OPTIONS;
    options.max_tasks = 3;
    gnt_pool* pool = start("clock", GNT_FCFS, 1, options);
    gnt_job job{};
    expect(gnt_submit(pool, &job, nullptr) == GNT_EINVAL, "a task without a function");
    job.function = &spin_for_ever;
    for (int i = 0; i < 3; ++i) expect(gnt_submit(pool, &job, nullptr) == 0, "tasks up to the limit");
    expect(gnt_submit(pool, &job, nullptr) == GNT_ENOMEM, "and no more");
    gnt_pool_stop(pool, 0);
}

void pools_have_futures() {
    gnt_pool_options options = GNT_POOL_OPTIONS;
    options.source = "safepoint";
    gnomon::PreemptivePool pool(options);
    auto answer = pool.submit([] { return 6 * 7; });
    auto failing = pool.submit([]() -> int { throw std::runtime_error("no"); });
    expect(answer.get() == 42, "a future has the result");
    bool is_thrown = false;
    try {
        failing.get();
    } catch (const std::runtime_error&) {
        is_thrown = true;
    }
    expect(is_thrown, "or what was thrown");
}

void controllers_run() {
    gnt_pool_options options = GNT_POOL_OPTIONS;
    options.control = GNT_CONTROL_COST;
    options.control_period_ns = 2'000'000;
    gnt_pool* pool = start("safepoint", GNT_TWO_QUEUE, 1, options);
    std::atomic<std::uint64_t> sum{0};
    std::vector<Work> works(3000, Work{500, &sum});  // all alike: nothing to gain
    gnt_pool_stats stats{};
    for (std::size_t i = 0; stats.quantum_ns != GNT_NEVER; i = (i + 1) % works.size()) {
        gnt_job job{};
        job.function = &count_turns;
        job.argument = &works[i];
        gnt_submit(pool, &job, nullptr);
        std::this_thread::sleep_for(std::chrono::microseconds(20));
        gnt_pool_read_stats(pool, &stats);
    }
    gnt_pool_stop(pool, 1);
    expect(stats.quantum_ns == GNT_NEVER, "requests that are alike are not preempted");
}

}  // namespace

/// With names of sources, what each of them does, and no more: an emulator cannot fork threads.
int main(int words, char** word) {
    alarm(240);
    if (words > 1) sources.assign(word + 1, word + words);
    states_are_checked();
    exceptions_stay_apart();
    overflows_are_told();
    options_are_checked();
    for (const auto& source : sources) {
        functions_are_preempted(source);
        registers_are_kept(source);
        guards_defer(source);
        short_slices_end(source);
        every_policy_runs_everything(source);
        tasks_are_cancelled(source);
        cancellations_are_not_lost(source);
        tasks_submit_tasks(source);
        short_tasks_pass_long_ones(source);
        cancelled_tasks_do_not_queue(source);
        pools_are_not_stopped_by_their_poll(source);
    }
    pools_have_futures();
    idle_workers_steal();
    pools_stop_while_tasks_submit();
    workers_refuse_what_would_hang();
    functions_stay_on_their_thread();
    contexts_know_their_lane();
    tasks_stay_on_their_worker();
    draining_includes_what_tasks_submit();
    if (words == 1) {
#if !defined(__SANITIZE_THREAD__)
        blocked_signals_stop_nobody();
        other_handlers_are_not_left();
        libc_is_not_cut();
        controllers_run();
#endif
        forks_are_noticed();
    }
    if (failures == 0) std::printf("threads: %d checks\n", checks);
    return failures == 0 ? 0 : 1;
}
