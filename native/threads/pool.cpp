#include "threads/pool.hpp"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <stdexcept>

#include "threads/modules.hpp"

namespace gnomon::threads {
namespace {

/// A judge that finds the queue locked asks again after so long.
constexpr Nanoseconds locked_ns = 2'000;
/// A worker without work looks for some elsewhere after so long, then after twice as long, and so on.
constexpr Nanoseconds first_rest_ns = 1'000'000, last_rest_ns = 64'000'000;

void add(std::atomic<Nanoseconds>& to, Nanoseconds by) {
    to.store(to.load(std::memory_order_relaxed) + by, std::memory_order_relaxed);
}

}  // namespace

// --- a worker --------------------------------------------------------------------------------------

Worker::Worker(Pool& pool, std::size_t index)
    : policy(make_policy(pool.settings().policy)), pool_(pool), index_(index) {
    policy->reserve(pool.settings().max_tasks);
    contexts_.reserve(contexts_kept);
    lane.source = &pool.source();  // whoever submits may hurry before the thread runs
    lane.judge = this;
}

void Worker::loop() {
    const PoolSettings& settings = pool_.settings();
    const Placement placement{index_ < settings.cpus.size() ? settings.cpus[index_] : -1, settings.realtime};
    const bool has_priority = placement.apply();
    const OverflowStack overflow_stack;
    try {
        lane.begin(pool_.source());
    } catch (const std::exception& error) {
        pool_.note_failure(error.what());
        return;
    }
    pool_.note_start(has_priority);
    Nanoseconds before = now_ns(), idle_since = before;
    while (true) {
        Nanoseconds now = 0;
        if (Slot* slot = next(now); slot != nullptr) {
            run(*slot, now);
            before = idle_since = now_ns();
            rest_ns_ = first_rest_ns;
            continue;
        }
        if (pool_.is_finished()) break;
        if (now - before > longest_stall.load(std::memory_order_relaxed))
            longest_stall.store(now - before, std::memory_order_relaxed);
        before = now;
        if (now - idle_since < settings.spin_ns) {
            pause();
        } else {
            rest();
            before = now_ns();
        }
    }
    lane.end();
}

Slot* Worker::next(Nanoseconds& now) {
    Slot* found = nullptr;
    if (waiting.load(std::memory_order_acquire) > 0) {
        const std::lock_guard locked(lock);
        now = now_ns();  // not before: whoever is found has come by now, however long this thread was held up
        found = static_cast<Slot*>(withdrawn.empty() ? policy->pick(index_, now) : withdrawn.pop());
        if (found != nullptr) {
            waiting.fetch_sub(1, std::memory_order_relaxed);
            found->started = now;
            is_first_ = !std::exchange(found->has_begun, true);
            current = found;
            must_make_room = false;
            lane.is_urgent.store(false, std::memory_order_relaxed);
            // Until something arrives, only those that wait already can be worth a preemption.
            lane.is_wanted.store(waiting.load(std::memory_order_relaxed) > 0, std::memory_order_relaxed);
        }
    }
    if (found != nullptr) return found;
    now = now_ns();
    for (auto& other : pool_.workers()) {
        if (other.get() == this || other->waiting.load(std::memory_order_relaxed) == 0) continue;
        if (Slot* stolen_one = other->give(index_); stolen_one != nullptr) {
            ++stolen;
            take(*stolen_one, now);
            return next(now);
        }
    }
    return nullptr;
}

void Worker::take(Slot& slot, Nanoseconds now) {
    in_hand.fetch_add(1, std::memory_order_relaxed);
    bool is_hurry = false;
    {
        const std::lock_guard locked(lock);
        policy->arrive(slot, now);
        waiting.fetch_add(1, std::memory_order_seq_cst);
        lane.is_wanted.store(true, std::memory_order_release);
        if (current != nullptr && !must_make_room && policy->reacts_to_arrivals()) {
            Task running = *current;
            running.attained += std::max<Nanoseconds>(now - running.started, 0);
            is_hurry = must_make_room = policy->must_make_room(running, slot);
            if (is_hurry) lane.is_urgent.store(true, std::memory_order_release);
        }
        if (is_hurry) lane.source->hurry(lane);  // under the lock: the worker cannot end meanwhile
    }
    if (is_asleep.load(std::memory_order_seq_cst)) {
        wakeups.fetch_add(1, std::memory_order_seq_cst);
        syscall(SYS_futex, &wakeups, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
    }
}

Slot* Worker::give(std::size_t thief) {
    if (!lock.try_lock()) return nullptr;
    auto* given = static_cast<Slot*>(policy->steal(thief));
    if (given != nullptr) {
        waiting.fetch_sub(1, std::memory_order_relaxed);
        in_hand.fetch_sub(1, std::memory_order_relaxed);
    }
    lock.unlock();
    return given;
}

void Worker::run(Slot& slot, Nanoseconds now) {
    if (slot.is_cancelled.load(std::memory_order_acquire)) {
        lane.stopped_at = now;
        finish(slot, GNT_CANCELLED, 0);
        return;
    }
    const int status = lane.run(is_first_ ? begin(slot, now) : *slot.context, policy->slice(slot));
    // A child that the task has forked ends with it: other tasks are the parent's.
    if (pool_.is_forked()) _exit(static_cast<int>(slot.context->result & 0xff));
    const Nanoseconds ran = std::max<Nanoseconds>(lane.stopped_at - now, 0);
    add(busy, ran);
    const bool is_cancelled = slot.is_cancelled.load(std::memory_order_acquire);
    if (status == GNT_COMPLETED || is_cancelled) {
        finish(slot, status == GNT_COMPLETED ? status : GNT_CANCELLED, ran);
        return;
    }
    const std::lock_guard locked(lock);
    current = nullptr;
    lane.is_urgent.store(false, std::memory_order_relaxed);
    slot.attained += ran;
    if (status == GNT_PREEMPTED) ++slot.preemptions;
    policy->preempted(slot, lane.stopped_at);
    waiting.fetch_add(1, std::memory_order_relaxed);
}

gnt_context& Worker::begin(Slot& slot, Nanoseconds now) {
    if (contexts_.empty()) contexts_.push_back(&pool_.acquire_context());
    slot.begun = now;
    slot.context = contexts_.back();
    contexts_.pop_back();
    slot.context->prepare(slot.job.function, slot.job.argument);
    return *slot.context;
}

bool Worker::must_stop(Nanoseconds now, Nanoseconds& again_ns) {
    if (!lock.try_lock_for_a_moment()) {
        again_ns = locked_ns;
        lane.is_wanted.store(true, std::memory_order_relaxed);  // the tick that asks again is not put off
        return false;
    }
    Task running = *current;
    running.attained += std::max<Nanoseconds>(now - running.started, 0);
    const bool is_over = now >= lane.slice_end && policy->is_worth_preempting(running, now);
    const bool must = is_over || must_make_room || current->is_cancelled.load(std::memory_order_relaxed);
    again_ns = policy->slice(*current);
    must_make_room = false;
    lane.is_wanted.store(waiting.load(std::memory_order_relaxed) > 0, std::memory_order_relaxed);
    lock.unlock();
    return must;
}

void Worker::interrupt_cancelled() {
    const std::lock_guard locked(lock);
    if (current == nullptr || !current->is_cancelled.load(std::memory_order_relaxed)) return;
    lane.is_urgent.store(true, std::memory_order_release);
    lane.source->hurry(lane);
}

void Worker::end_soon(Slot& slot) {
    const std::lock_guard locked(lock);
    // Used again meanwhile, it is another task.
    if (slot.is_cancelled.load(std::memory_order_acquire) && policy->withdraw(slot)) withdrawn.push(slot);
}

void Worker::finish(Slot& slot, int status, Nanoseconds ran) {
    {
        const std::lock_guard locked(lock);
        current = nullptr;
        lane.is_urgent.store(false, std::memory_order_relaxed);
        slot.attained += ran;
    }
    if (status == GNT_COMPLETED) {
        const Nanoseconds cost = slot.preemptions * pool_.settings().mechanism.cost_ns;
        served[completed.read() % served.size()].store(std::max<Nanoseconds>(slot.attained - cost, 1),
                                                       std::memory_order_relaxed);
        ++completed;
    } else {
        ++cancelled;
    }
    std::intptr_t result = 0;
    if (gnt_context* context = std::exchange(slot.context, nullptr); context != nullptr) {
        result = context->result;
        context->state = State::idle;
        if (contexts_.size() < contexts_kept) contexts_.push_back(context);
        else pool_.release_context(*context);
    }
    gnt_report report{};
    report.task = slot.number;
    report.status = status;
    report.kind = slot.job.kind;
    report.result = result;
    report.argument = slot.job.argument;
    report.arrival_ns = slot.arrival;
    report.begun_ns = slot.begun;
    report.ended_ns = lane.stopped_at;
    report.attained_ns = slot.attained;
    report.preemptions = static_cast<unsigned>(slot.preemptions);
    report.worker = static_cast<unsigned>(index_);
    const auto on_done = slot.job.on_done;
    void* user = slot.job.user;
    in_hand.fetch_sub(1, std::memory_order_relaxed);
    pool_.release(slot);  // before the call: it may submit another one
    if (on_done != nullptr) on_done(&report, user);
    pool_.note_end();
}

void Worker::rest() {
    const std::uint32_t seen = wakeups.load(std::memory_order_seq_cst);
    is_asleep.store(true, std::memory_order_seq_cst);
    if (waiting.load(std::memory_order_seq_cst) == 0 && !pool_.is_finished()) {
        // Others do not wake a worker that could steal from them: it looks around by itself.
        const timespec moment{0, rest_ns_};
        rest_ns_ = std::min(2 * rest_ns_, last_rest_ns);
        const bool is_alone = pool_.workers().size() == 1;
        syscall(SYS_futex, &wakeups, FUTEX_WAIT_PRIVATE, seen, is_alone ? nullptr : &moment, nullptr, 0);
    }
    is_asleep.store(false, std::memory_order_seq_cst);
}

// --- the pool --------------------------------------------------------------------------------------

Pool::Pool(PoolSettings settings, std::unique_ptr<Source> source)
    : settings_(std::move(settings)),
      source_(std::move(source)),
      // Workers keep some free ones, which others cannot have.
      stacks_(settings_.max_tasks + contexts_kept * settings_.workers, settings_.stack_bytes),
      quantum_(settings_.policy.quantum) {
    slots_.reserve(settings_.max_tasks);
    for (std::size_t i = 0; i < settings_.max_tasks; ++i) {
        slots_.push_back(std::make_unique<Slot>());
        slots_[i]->index = static_cast<std::uint32_t>(i);
        slots_[i]->next_free = free_;
        free_ = slots_[i].get();
    }
    const std::size_t contexts = settings_.max_tasks + contexts_kept * settings_.workers;
    for (std::size_t i = 0; i < contexts; ++i) {
        contexts_.push_back(std::make_unique<gnt_context>(stacks_.stack(i), stacks_.stack_bytes()));
        free_contexts_.push_back(contexts_.back().get());
    }
    // The first touch of a page takes microseconds: of stacks that are likely used it is done here.
    for (std::size_t i = contexts - std::min<std::size_t>(contexts, 4 * contexts_kept); i < contexts; ++i)
        contexts_[i]->touch();
    source_->place(settings_.timer);
    const bool is_polling = settings_.poll != nullptr && source_->take_poll(settings_.poll, settings_.poll_argument);
    try {
        start(is_polling);
    } catch (...) {  // no thread, or no timer for it
        stop(false);
        throw;
    }
}

void Pool::start(bool is_polling) {
    for (std::size_t i = 0; i < settings_.workers; ++i) workers_.push_back(std::make_unique<Worker>(*this, i));
    for (auto& worker : workers_) threads_.emplace_back([&worker] { worker->loop(); });
    while (started_.load(std::memory_order_acquire) < workers_.size()) sched_yield();
    if (!failure_.empty()) throw std::runtime_error(failure_);
    if (settings_.poll != nullptr && !is_polling) {
        helpers_.emplace_back([this] {
            settings_.timer.apply();
            while (!is_ending()) call_poll(settings_.poll, settings_.poll_argument);
        });
    }
    if (settings_.control != GNT_CONTROL_OFF) {
        controller_.emplace(settings_.control == GNT_CONTROL_PAPER, settings_.policy, settings_.mechanism);
        helpers_.emplace_back([this] { control(); });
    }
}

Pool::~Pool() { stop(false); }

void Pool::note_failure(const char* what) {
    {
        const std::lock_guard locked(free_lock_);
        failure_ = what;
    }
    started_.fetch_add(1, std::memory_order_release);
}

void Pool::note_start(bool has_priority) {
    if (!has_priority) refused_.fetch_add(1);
    started_.fetch_add(1, std::memory_order_release);
}

Slot* Pool::acquire() {
    const std::lock_guard locked(free_lock_);
    Slot* slot = free_;
    // Under the lock that closes the pool: what is taken here is waited for, or cancelled.
    if (slot == nullptr || !is_open()) return nullptr;
    free_ = slot->next_free;
    slot->is_cancelled.store(false, std::memory_order_relaxed);
    open_.fetch_add(1, std::memory_order_relaxed);
    if (++generation_ == 0) ++generation_;
    slot->number = (std::uint64_t{generation_} << 32) | slot->index;
    return slot;
}

gnt_context& Pool::acquire_context() {
    const std::lock_guard locked(free_lock_);
    gnt_context* found = free_contexts_.back();
    free_contexts_.pop_back();
    return *found;
}

void Pool::release_context(gnt_context& context) {
    const std::lock_guard locked(free_lock_);
    free_contexts_.push_back(&context);
}

void Pool::release(Slot& slot) {
    const std::lock_guard locked(free_lock_);
    slot.number = 0;
    slot.next_free = free_;
    free_ = &slot;
}

bool Pool::is_open() const {
    if (!is_closed_.load(std::memory_order_acquire)) return true;
    // While it drains, what its tasks submit belongs to them.
    const Lane* lane = self();
    return is_draining_.load(std::memory_order_acquire) && lane != nullptr && lane->source == source_.get() &&
           lane->judge != nullptr;
}

int Pool::submit(const gnt_job& job, std::uint64_t* number) {
    if (is_forked()) return GNT_EFORKED;
    const Guard guard;
    if (!is_open()) return GNT_ESTOPPED;
    if (job.function == nullptr || job.kind < 0 || job.hint_ns < 0 || job.deadline_ns < 0) return GNT_EINVAL;
    if (source_->cuts_anywhere()) {
        const int status = allow_launched(reinterpret_cast<const void*>(job.function));
        if (status < 0) return status;
    }
    Slot* slot = acquire();
    if (slot == nullptr) return is_open() ? GNT_ENOMEM : GNT_ESTOPPED;
    submitted_.fetch_add(1, std::memory_order_relaxed);
    const Nanoseconds now = now_ns();
    static_cast<Task&>(*slot) = Task{};
    slot->job = job;
    slot->kind = job.kind;
    slot->arrival = job.arrival_ns > 0 ? job.arrival_ns : now;
    if (job.hint_ns > 0) slot->hint = job.hint_ns;
    if (job.deadline_ns > 0) slot->deadline = job.deadline_ns;
    slot->begun = 0;
    if (number != nullptr) *number = slot->number;
    Worker* least = nullptr;
    std::size_t least_in_hand = 0;
    for (std::size_t i = 0; i < workers_.size(); ++i) {
        const std::size_t in_hand = workers_[i]->in_hand.load(std::memory_order_relaxed);
        if ((least == nullptr || in_hand < least_in_hand) && workers_[i]->policy->accepts(i, *slot)) {
            least = workers_[i].get();
            least_in_hand = in_hand;
        }
    }
    least->take(*slot, now);
    return 0;
}

int Pool::cancel(std::uint64_t number) {
    if (is_forked()) return GNT_EFORKED;
    const Guard guard;
    const std::size_t index = number & 0xffffffffU;
    if (number == 0 || index >= slots_.size()) return GNT_EINVAL;
    {
        const std::lock_guard locked(free_lock_);
        if (slots_[index]->number != number) return GNT_EINVAL;
        slots_[index]->is_cancelled.store(true, std::memory_order_release);
    }
    for (auto& worker : workers_) {
        worker->end_soon(*slots_[index]);
        worker->interrupt_cancelled();
    }
    return 0;
}

void Pool::stop(bool drain) {
    if (is_forked()) {  // the threads do not exist here
        for (auto& one : threads_) one.detach();
        for (auto& one : helpers_) one.detach();
        threads_.clear();
        helpers_.clear();
        return;
    }
    if (threads_.empty()) return;
    {
        const std::lock_guard locked(free_lock_);
        is_draining_.store(drain, std::memory_order_release);
        is_closed_.store(true, std::memory_order_release);
        for (auto& slot : slots_) {
            if (!drain && slot->number != 0) slot->is_cancelled.store(true, std::memory_order_release);
        }
    }
    if (!drain) {
        for (auto& worker : workers_) worker->interrupt_cancelled();
    }
    is_ending_.store(true, std::memory_order_release);
    for (auto& worker : workers_) {
        worker->wakeups.fetch_add(1, std::memory_order_seq_cst);
        syscall(SYS_futex, &worker->wakeups, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
    }
    for (auto& one : threads_) one.join();
    threads_.clear();
    {
        const std::lock_guard locked(control_mutex_);
        control_wake_.notify_all();
    }
    for (auto& one : helpers_) one.join();
    helpers_.clear();
}

void Pool::read(gnt_pool_stats& stats) const {
    stats = {};
    stats.submitted = submitted_.load();
    for (const auto& worker : workers_) {
        stats.completed += worker->completed.read();
        stats.cancelled += worker->cancelled.read();
        stats.stolen += worker->stolen.read();
        stats.preemptions += worker->lane.ticks.preempted.read();
        stats.stale += worker->lane.ticks.stale.read();
        stats.kept += worker->lane.ticks.kept.read();
        stats.guarded += worker->lane.ticks.guarded.read();
        stats.outside += worker->lane.ticks.outside.read();
        stats.busy_ns += worker->busy.load(std::memory_order_relaxed);
    }
    stats.no_realtime = refused_.load();
    stats.quantum_ns = quantum_.load();
}

void Pool::set_quantum(Nanoseconds quantum) {
    const Guard guard;
    quantum_.store(quantum);
    for (auto& worker : workers_) {
        const std::lock_guard locked(worker->lock);
        worker->policy->set_quantum(quantum);
    }
}

void Pool::control() {
    std::unique_lock locked(control_mutex_);
    gnt_pool_stats before{};
    read(before);
    Nanoseconds then = now_ns();
    while (!is_ending()) {
        control_wake_.wait_for(locked, std::chrono::nanoseconds(settings_.control_period));
        gnt_pool_stats now{};
        read(now);
        const Nanoseconds time = now_ns();
        std::vector<std::int64_t> service;
        for (const auto& worker : workers_) {
            const auto count = std::min<std::size_t>(worker->completed.read(), worker->served.size());
            for (std::size_t i = 0; i < count; ++i)
                service.push_back(worker->served[i].load(std::memory_order_relaxed));
        }
        const Seen seen{time - then, now.submitted - before.submitted,
                        now.submitted - std::min(now.submitted, now.completed + now.cancelled), workers_.size(),
                        service};
        set_quantum(controller_->decide(seen).quantum);
        before = now;
        then = time;
    }
}

}  // namespace gnomon::threads
