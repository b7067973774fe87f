#include "cell/workers.hpp"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <stdexcept>

#include "cell/work.hpp"
#include "clock.hpp"

namespace gnomon::cell {

Workers::Workers(Loop& loop, Stats& stats, std::size_t slots, std::function<void(Request*)> done)
    : loop_(loop),
      head_(stats.head()),
      done_callback_(std::move(done)),
      done_event_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)),
      slots_(slots),
      free_slots_(slots) {
    if (done_event_ < 0) throw std::runtime_error("no event descriptor is left");
    loop_.watch(done_event_, EPOLLIN, this, true);
    head_.waiting_since_ns = now_ns();
}

Workers::~Workers() {
    {
        const std::lock_guard lock(mutex_);
        is_ending_ = true;
        ready_.clear();
        resumed_.clear();
    }
    ready_event_.notify_all();
    for (auto& thread : threads_) thread.join();
    close(done_event_);
}

/// To be called before the queue changes, with the mutex held.
void Workers::count_waiting() {
    const std::int64_t now = now_ns();
    head_.waiting_integral_ns += head_.waiting * (now - head_.waiting_since_ns);
    head_.waiting_since_ns = now;
}

/// With the mutex held. A thread that was woken counts as idle until it has taken its stretch.
void Workers::wake_thread() {
    const std::size_t runnable = resumed_.size() + std::min(ready_.size(), free_slots_);
    if (idle_threads_ < runnable && threads_.size() < slots_) {
        ++idle_threads_;
        threads_.emplace_back([this] { work(); });
    }
    ready_event_.notify_one();
}

void Workers::enqueue(std::int32_t priority, Stretch stretch) {
    const std::lock_guard lock(mutex_);
    count_waiting();
    ready_.emplace(std::pair{-std::int64_t{priority}, ++enqueued_}, stretch);
    head_.waiting = static_cast<std::int64_t>(ready_.size());
    if (free_slots_ > 0) wake_thread();
}

void Workers::resume(Stretch stretch) {
    const std::lock_guard lock(mutex_);
    resumed_.push_back(stretch);
    wake_thread();
}

void Workers::release() {
    const std::lock_guard lock(mutex_);
    ++free_slots_;
    if (!ready_.empty()) wake_thread();
}

std::int64_t Workers::backlog() {
    const std::lock_guard lock(mutex_);
    return static_cast<std::int64_t>(ready_.size()) - static_cast<std::int64_t>(free_slots_);
}

void Workers::work() {
    Spinner spinner;
    std::unique_lock lock(mutex_);
    for (;;) {
        ready_event_.wait(lock,
                          [this] { return is_ending_ || !resumed_.empty() || (free_slots_ > 0 && !ready_.empty()); });
        --idle_threads_;
        if (is_ending_) return;
        Stretch stretch;
        if (!resumed_.empty()) {
            stretch = resumed_.front();
            resumed_.pop_front();
        } else {
            count_waiting();
            stretch = ready_.extract(ready_.begin()).mapped();
            head_.waiting = static_cast<std::int64_t>(ready_.size());
            --free_slots_;
        }
        lock.unlock();
        spinner.spin(stretch.cpu_ns);
        lock.lock();
        if (!stretch.keeps_slot) ++free_slots_;
        done_.push_back(stretch.request);
        if (done_.size() == 1) {
            const std::uint64_t one = 1;
            // The counter cannot overflow: it is written once for each time that it is read.
            [[maybe_unused]] const auto written = write(done_event_, &one, sizeof one);
        }
        ++idle_threads_;
    }
}

void Workers::on_event(std::uint32_t) {
    std::uint64_t count = 0;
    if (read(done_event_, &count, sizeof count) < 0) return;
    std::vector<Request*> done;
    {
        const std::lock_guard lock(mutex_);
        done.swap(done_);
    }
    for (Request* request : done) done_callback_(request);
}

}  // namespace gnomon::cell
