// C++ on top of gnomon/threads.h: guards, preemptible functions and pools that clean up after themselves.
#pragma once

#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>

#include "gnomon/threads.h"

namespace gnomon {

/// Not preempted while one of these is alive.
class PreemptionGuard {
public:
    PreemptionGuard() { gnt_guard_enter(); }
    ~PreemptionGuard() { gnt_guard_leave(); }
    PreemptionGuard(const PreemptionGuard&) = delete;
    PreemptionGuard& operator=(const PreemptionGuard&) = delete;
};

inline void check_threads(int status) {
    if (status < 0) throw std::runtime_error(gnt_error(status));
}

/// What `name` of gnt_source_open says; the threads that use it detach before it goes.
class PreemptionSource {
public:
    explicit PreemptionSource(const char* name) {
        char why[256] = "";
        source_.reset(gnt_source_open(name, why, sizeof why));
        if (!source_) throw std::runtime_error(why);
    }
    [[nodiscard]] gnt_source* get() const { return source_.get(); }
    [[nodiscard]] std::string name() const { return gnt_source_name(source_.get()); }

private:
    struct Close {
        void operator()(gnt_source* source) const { gnt_source_close(source); }
    };
    std::unique_ptr<gnt_source, Close> source_;
};

/// The calling thread launches preemptible functions while it is alive.
class AttachedThread {
public:
    explicit AttachedThread(const PreemptionSource& source) { check_threads(gnt_attach(source.get())); }
    ~AttachedThread() { gnt_detach(); }
    AttachedThread(const AttachedThread&) = delete;
    AttachedThread& operator=(const AttachedThread&) = delete;
};

/// A function that runs for a while, and goes on later. An exception ends it and is thrown by `resume`.
class Preemptible {
public:
    explicit Preemptible(std::function<void()> function, std::size_t stack_bytes = 0)
        : function_(std::move(function)), context_(gnt_context_new(stack_bytes)) {
        if (!context_) throw std::bad_alloc();
        check_threads(gnt_launch(context_.get(), &Preemptible::run, this, 0));
    }
    ~Preemptible() { gnt_cancel(context_.get()); }
    Preemptible(const Preemptible&) = delete;
    Preemptible& operator=(const Preemptible&) = delete;

    /// GNT_COMPLETED, GNT_PREEMPTED or GNT_YIELDED.
    int resume(std::chrono::nanoseconds limit) {
        const int status = gnt_resume(context_.get(), limit.count());
        check_threads(status);
        if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
        return status;
    }
    [[nodiscard]] bool is_done() const { return gnt_completed(context_.get()) != 0; }

private:
    static std::intptr_t run(void* self) {
        auto& mine = *static_cast<Preemptible*>(self);
        try {
            mine.function_();
        } catch (...) {
            mine.failure_ = std::current_exception();
        }
        return 0;
    }

    struct Free {
        void operator()(gnt_context* context) const { gnt_context_free(context); }
    };
    std::function<void()> function_;
    std::exception_ptr failure_;
    std::unique_ptr<gnt_context, Free> context_;
};

/// Workers that run preemptible functions under a scheduling policy.
class PreemptivePool {
public:
    explicit PreemptivePool(const gnt_pool_options& options) {
        char error[256] = "";
        pool_ = gnt_pool_start(&options, error, sizeof error);
        if (pool_ == nullptr) throw std::runtime_error(error);
    }
    /// Waits for what was submitted.
    ~PreemptivePool() { gnt_pool_stop(pool_, 1); }
    PreemptivePool(const PreemptivePool&) = delete;
    PreemptivePool& operator=(const PreemptivePool&) = delete;

    /// The function's result, or what it threw. `kind`, `hint_ns` and `deadline_ns` of the job count. A job that is
    /// cancelled breaks its promise.
    template <typename Function>
    auto submit(Function function, gnt_job job = {}) {
        using Result = std::invoke_result_t<Function>;
        struct Task {
            Function function;
            std::promise<Result> promise;
        };
        auto task = std::make_unique<Task>(Task{std::move(function), {}});
        auto result = task->promise.get_future();
        job.function = [](void* given) -> std::intptr_t {
            auto& mine = *static_cast<Task*>(given);
            try {
                if constexpr (std::is_void_v<Result>) {
                    mine.function();
                    const PreemptionGuard guard;
                    mine.promise.set_value();
                } else {
                    auto made = mine.function();
                    const PreemptionGuard guard;
                    mine.promise.set_value(std::move(made));
                }
            } catch (...) {
                const PreemptionGuard guard;
                mine.promise.set_exception(std::current_exception());
            }
            return 0;
        };
        job.argument = task.get();
        job.on_done = [](const gnt_report* report, void*) { delete static_cast<Task*>(report->argument); };
        check_threads(gnt_submit(pool_, &job, nullptr));
        task.release();
        return result;
    }
    [[nodiscard]] gnt_pool* get() const { return pool_; }

private:
    gnt_pool* pool_ = nullptr;
};

}  // namespace gnomon
