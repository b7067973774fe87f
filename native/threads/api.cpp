// The C interface: checks, then the classes.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <exception>
#include <string>

#include "threads/measure.hpp"
#include "threads/modules.hpp"
#include "threads/pool.hpp"

using namespace gnomon::threads;

struct gnt_source {
    std::unique_ptr<Source> source;
    Born born;
    std::atomic<int> attached{0};
};

struct gnt_pool {
    Pool pool;
};

namespace {

constexpr std::size_t most_workers = 256, most_tasks = 30'000;  // a task takes two mappings, of 65,530

void say(char* to, std::size_t size, const std::string& text) {
    if (to != nullptr && size > 0) std::snprintf(to, size, "%s", text.c_str());
}

/// Throws std::invalid_argument if it cannot be had.
std::unique_ptr<Source> make_source(const std::string& name, std::string& why, bool polls) {
    if (name == "auto") {
        const SourceChoice choice = choose_source(polls);
        why = choice.why;
        return find_kind(choice.name)->make();
    }
    const Kind* kind = find_kind(name);
    if (kind == nullptr) throw std::invalid_argument("there is no preemption source '" + name + "'");
    if (const std::string reason = kind->why_not(); !reason.empty()) throw std::invalid_argument(name + ": " + reason);
    return kind->make();
}

/// An attached thread's own lane.
struct Attached : Lane {
    OverflowStack overflow_stack;
    gnt_source* opened = nullptr;
};

}  // namespace

const char* gnt_error(int code) {
    switch (code) {
        case GNT_EINVAL: return "an argument is wrong";
        case GNT_ENOMEM: return "no memory, or the pool is full";
        case GNT_ESTATE: return "not now: not attached, not launched, running, or inside a guard";
        case GNT_EFORKED: return "the process has forked: threads of the parent do not exist here";
        case GNT_ESOURCE: return "this machine does not have the preemption source";
        case GNT_ESTOPPED: return "the pool is being stopped";
        case GNT_ESTATIC: return "libc is part of the program: say with gnt_allow_range what may be preempted";
        default: return code < 0 ? "unknown error" : "no error";
    }
}

int64_t gnt_now() { return gnomon::now_ns(); }

gnt_source* gnt_source_open(const char* name, char* why, size_t size) try {
    if (name == nullptr) throw std::invalid_argument("a source has a name");
    std::string reason;
    auto made = make_source(name, reason, true);
    say(why, size, reason);
    return new gnt_source{std::move(made), {}};
} catch (const std::exception& error) {
    say(why, size, error.what());
    return nullptr;
}

gnt_source* gnt_source_open_auto(int polls, char* why, size_t size) try {
    std::string reason;
    auto made = make_source("auto", reason, polls != 0);
    say(why, size, reason);
    return new gnt_source{std::move(made), {}};
} catch (const std::exception& error) {
    say(why, size, error.what());
    return nullptr;
}

const char* gnt_source_name(const gnt_source* source) { return source == nullptr ? "" : source->source->name(); }

void gnt_source_close(gnt_source* source) {
    if (source == nullptr || source->born.is_forked()) return;  // its thread does not exist here
    if (source->attached.load() > 0) return;                    // somebody still uses it
    delete source;
}

int gnt_attach(gnt_source* source) try {
    if (source == nullptr) return GNT_EINVAL;
    if (source->born.is_forked()) return GNT_EFORKED;
    if (self() != nullptr && !self()->born.is_forked()) return GNT_ESTATE;
    auto made = std::make_unique<Attached>();
    made->begin(*source->source);
    made->opened = source;
    ++source->attached;
    made.release();  // detaching deletes it
    return 0;
} catch (const std::bad_alloc&) {
    return GNT_ENOMEM;
} catch (const std::exception&) {
    return GNT_ESOURCE;
}

int gnt_detach() {
    Lane* lane = self();
    if (lane != nullptr && lane->born.is_forked()) return GNT_EFORKED;
    if (lane == nullptr || lane->running != nullptr || lane->judge != nullptr) return GNT_ESTATE;
    lane->end();
    auto* mine = static_cast<Attached*>(lane);
    --mine->opened->attached;
    delete mine;
    return 0;
}

int gnt_launch(gnt_context* context, gnt_function function, void* argument, int64_t limit_ns) {
    if (context == nullptr || function == nullptr || limit_ns < 0) return GNT_EINVAL;
    Lane* lane = self();
    if (lane != nullptr && lane->born.is_forked()) return GNT_EFORKED;
    if (lane == nullptr || lane->running != nullptr || lane->judge != nullptr || context->state != State::idle)
        return GNT_ESTATE;
    if (lane->source->cuts_anywhere()) {
        const int status = allow_launched(reinterpret_cast<const void*>(function));
        if (status < 0) return status;
        lane->note_mask();
    }
    context->prepare(function, argument);
    return limit_ns == 0 ? GNT_PREEMPTED : lane->run(*context, limit_ns);
}

int gnt_resume(gnt_context* context, int64_t limit_ns) {
    if (context == nullptr || limit_ns <= 0) return GNT_EINVAL;
    Lane* lane = self();
    if (lane != nullptr && lane->born.is_forked()) return GNT_EFORKED;
    if (lane == nullptr || lane->running != nullptr || lane->judge != nullptr || context->state == State::idle ||
        context->state == State::running || (context->owner != 0 && context->owner != lane->number))
        return GNT_ESTATE;
    return lane->run(*context, limit_ns);
}

int gnt_cancel(gnt_context* context) {
    if (context == nullptr) return GNT_EINVAL;
    if (context->state == State::running || context->state == State::idle) return GNT_ESTATE;
    context->state = State::idle;
    return GNT_CANCELLED;
}

int gnt_completed(const gnt_context* context) { return context != nullptr && context->state == State::idle ? 1 : 0; }
intptr_t gnt_result(const gnt_context* context) { return context == nullptr ? 0 : context->result; }

int gnt_yield() { return self() == nullptr ? GNT_ESTATE : self()->yield(); }

int gnt_rearm(int64_t limit_ns) {
    Lane* lane = self();
    if (limit_ns <= 0) return GNT_EINVAL;
    if (lane == nullptr || lane->running == nullptr) return GNT_ESTATE;
    lane->rearm(limit_ns);
    return 0;
}

int gnt_is_cancelled() {
    const Lane* lane = self();
    return lane != nullptr && lane->judge != nullptr && lane->judge->is_cancelled() ? 1 : 0;
}

int gnt_allow_module(const void* address_inside) { return allow_module(address_inside); }
int gnt_allow_range(const void* begin, const void* end) { return allow_range(begin, end); }
void gnt_allow_everything(int is_allowed) { allow_everything(is_allowed != 0); }

gnt_pool* gnt_pool_start(const gnt_pool_options* options, char* error, size_t size) try {
    if (options == nullptr || options->size != sizeof(gnt_pool_options))
        throw std::invalid_argument("options are those of another version of the library");
    const auto& given = *options;
    const auto check = [](bool is_right, const char* what) {
        if (!is_right) throw std::invalid_argument(what);
    };
    check(given.workers >= 1 && given.workers <= most_workers, "1 to 256 workers");
    check(given.policy <= static_cast<unsigned>(last_policy), "there is no such policy");
    check(given.quantum_ns >= 100 && given.hard_quantum_ns >= 100 && given.patience_ns >= 100,
          "a quantum is 100 ns at least");
    check(given.max_tasks >= 1 && given.max_tasks + contexts_kept * given.workers <= most_tasks,
          "1 to 30,000 tasks, less 64 for each worker");
    check(given.stack_bytes <= 64 << 20, "stacks of 64 MiB at most");
    check(given.spin_ns >= 0 && given.share_pct <= 100, "times are not below zero, a share is 100 % at most");
    check(given.realtime >= 0 && given.realtime <= 99, "a real-time priority is 0 to 99");
    check(given.control <= GNT_CONTROL_COST && given.control_period_ns >= 1'000'000 &&
              given.control_period_ns <= 3'600'000'000'000,
          "a control period is 1 ms to 1 hour");
    check(given.policy != GNT_RESERVED || (given.reserved >= 1 && given.reserved < given.workers),
          "a worker has to be left for other requests");
    PoolSettings settings;
    settings.workers = given.workers;
    settings.policy = {static_cast<PolicyKind>(given.policy),
                       given.quantum_ns,
                       given.hard_quantum_ns,
                       given.patience_ns,
                       given.reserved,
                       given.share_pct / 100.0};
    settings.max_tasks = given.max_tasks;
    settings.stack_bytes = given.stack_bytes;
    settings.spin_ns = given.spin_ns;
    if (given.cpus != nullptr) settings.cpus.assign(given.cpus, given.cpus + given.workers);
    settings.timer = {given.timer_cpu, given.realtime};
    settings.realtime = given.realtime;
    settings.poll = given.poll;
    settings.poll_argument = given.poll_argument;
    settings.control = given.control;
    settings.control_period = given.control_period_ns;
    std::string why;
    auto source = make_source(given.source == nullptr ? "auto" : given.source, why, true);
    const bool shares_core =
        std::find(settings.cpus.begin(), settings.cpus.end(), given.timer_cpu) != settings.cpus.end();
    check(!(shares_core && given.realtime > 0 && find_kind(source->name())->burns_core),
          "with a real-time priority the timer, which spins, needs a core of its own");
    Calibration known;
    if (given.control == GNT_CONTROL_COST && std::strcmp(source->name(), "none") != 0) {
        known = calibrate(*find_kind(source->name()), {});
        settings.mechanism = {known.cost_ns, 0, known.late_ns};
    }
    return new gnt_pool{Pool(std::move(settings), std::move(source))};
} catch (const std::exception& failure) {
    say(error, size, failure.what());
    return nullptr;
}

int gnt_submit(gnt_pool* pool, const gnt_job* job, uint64_t* task) {
    return pool == nullptr || job == nullptr ? GNT_EINVAL : pool->pool.submit(*job, task);
}

int gnt_cancel_task(gnt_pool* pool, uint64_t task) { return pool == nullptr ? GNT_EINVAL : pool->pool.cancel(task); }

int gnt_pool_stop(gnt_pool* pool, int drain) {
    if (pool == nullptr) return GNT_EINVAL;
    if (is_in_poll() || (self() != nullptr && (self()->running != nullptr || self()->judge != nullptr)))
        return GNT_ESTATE;
    pool->pool.stop(drain != 0);
    if (pool->pool.is_forked()) return GNT_EFORKED;
    delete pool;
    return 0;
}

void gnt_pool_read_stats(const gnt_pool* pool, gnt_pool_stats* stats) {
    if (pool != nullptr && stats != nullptr) pool->pool.read(*stats);
}
const char* gnt_pool_source(const gnt_pool* pool) { return pool == nullptr ? "" : pool->pool.source().name(); }

int gnt_pool_set_quantum(gnt_pool* pool, int64_t quantum_ns) {
    if (pool == nullptr || quantum_ns < 100) return GNT_EINVAL;
    if (pool->pool.is_forked()) return GNT_EFORKED;
    pool->pool.set_quantum(quantum_ns);
    return 0;
}
