#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <condition_variable>
#include <mutex>

#include "bindings/scheduling.hpp"
#include "threads/measure.hpp"

namespace gnomon::bindings {
namespace {

using namespace threads;

const Kind& kind_of(const std::string& name) {
    const Kind* kind = find_kind(name);
    require(kind != nullptr, "there is no such preemption source");
    if (const std::string reason = kind->why_not(); !reason.empty())
        throw nb::value_error((name + ": " + reason).c_str());
    return *kind;
}

/// A pool whose ended tasks are fetched in batches.
class PythonPool {
public:
    struct Ended {
        std::vector<std::uint64_t> task;
        std::vector<std::int64_t> status, result, arrival, begun, ended, attained, preemptions;
    };

    PythonPool(const Scheduling& scheduling, std::size_t workers, const std::string& source, bool polls,
               std::size_t max_tasks, std::size_t stack_bytes, std::uint8_t control, std::vector<int> cpus,
               int timer_cpu, int realtime) {
        check_workers(scheduling, workers);
        gnt_pool_options options = GNT_POOL_OPTIONS;
        options.workers = static_cast<unsigned>(workers);
        options.policy = scheduling.rule;
        options.quantum_ns = std::max<std::int64_t>(scheduling.quantum, 100);
        options.hard_quantum_ns = scheduling.hard_quantum;
        options.patience_ns = scheduling.patience;
        options.reserved = static_cast<unsigned>(scheduling.reserved);
        options.share_pct = static_cast<unsigned>(100.0 * scheduling.share + 0.5);
        options.max_tasks = static_cast<unsigned>(max_tasks);
        options.stack_bytes = stack_bytes;
        options.control = control;
        require(cpus.empty() || cpus.size() == workers, "a cpu for each worker");
        options.cpus = cpus.empty() ? nullptr : cpus.data();
        options.timer_cpu = timer_cpu;
        options.realtime = realtime;
        std::string name = source;
        if (source == "auto") {
            nb::gil_scoped_release release;
            const SourceChoice choice = choose_source(polls);
            name = choice.name;
            why_ = choice.why;
        }
        options.source = name.c_str();
        char error[256] = "";
        nb::gil_scoped_release release;
        pool_ = gnt_pool_start(&options, error, sizeof error);
        if (pool_ == nullptr) throw std::invalid_argument(error);
    }
    ~PythonPool() { stop(false); }

    std::uint64_t submit(std::uintptr_t function, std::uintptr_t argument, int kind, std::int64_t hint,
                         std::int64_t deadline) {
        gnt_job job{};
        job.function = reinterpret_cast<gnt_function>(function);
        job.argument = reinterpret_cast<void*>(argument);
        job.kind = kind;
        job.hint_ns = hint;
        job.deadline_ns = deadline;
        job.on_done = [](const gnt_report* report, void* self) { static_cast<PythonPool*>(self)->note(*report); };
        job.user = this;
        std::uint64_t task = 0;
        check(gnt_submit(open(), &job, &task));
        return task;
    }

    bool cancel(std::uint64_t task) { return gnt_cancel_task(open(), task) == 0; }

    void stop(bool drain) {
        gnt_pool* pool = std::exchange(pool_, nullptr);  // with the lock of the interpreter, as whoever uses it
        nb::gil_scoped_release release;
        if (pool != nullptr) gnt_pool_stop(pool, drain ? 1 : 0);
        const std::lock_guard lock(mutex_);
        is_stopped_ = true;
        wake_.notify_all();
    }

    /// Waits for some; empty after the pool has stopped and all were fetched.
    Ended take_ended() {
        nb::gil_scoped_release release;
        std::unique_lock lock(mutex_);
        wake_.wait(lock, [&] { return is_stopped_ || !ended_.task.empty(); });
        return std::exchange(ended_, {});
    }

    nb::dict stats() {
        gnt_pool_stats seen;
        gnt_pool_read_stats(open(), &seen);
        nb::dict found;
        found["submitted"] = seen.submitted;
        found["completed"] = seen.completed;
        found["cancelled"] = seen.cancelled;
        found["preemptions"] = seen.preemptions;
        found["stolen"] = seen.stolen;
        found["stale"] = seen.stale;
        found["kept"] = seen.kept;
        found["guarded"] = seen.guarded;
        found["outside"] = seen.outside;
        found["no_realtime"] = seen.no_realtime;
        found["quantum_ns"] = seen.quantum_ns;
        found["busy_ns"] = seen.busy_ns;
        return found;
    }

    [[nodiscard]] std::string source() { return gnt_pool_source(open()); }
    [[nodiscard]] const std::string& why() const { return why_; }

private:
    gnt_pool* open() {
        if (pool_ == nullptr) throw std::runtime_error("the pool has been stopped");
        return pool_;
    }
    static void check(int status) {
        if (status == GNT_EINVAL || status == GNT_ESTATIC) throw std::invalid_argument(gnt_error(status));
        if (status < 0) throw std::runtime_error(gnt_error(status));
    }
    void note(const gnt_report& report) {
        const std::lock_guard lock(mutex_);
        ended_.task.push_back(report.task);
        ended_.status.push_back(report.status);
        ended_.result.push_back(report.result);
        ended_.arrival.push_back(report.arrival_ns);
        ended_.begun.push_back(report.begun_ns);
        ended_.ended.push_back(report.ended_ns);
        ended_.attained.push_back(report.attained_ns);
        ended_.preemptions.push_back(report.preemptions);
        wake_.notify_one();
    }

    gnt_pool* pool_ = nullptr;
    std::string why_;
    std::mutex mutex_;
    std::condition_variable wake_;
    bool is_stopped_ = false;
    Ended ended_;
};

}  // namespace

void bind_threads(nb::module_& m) {
    m.def(
        "thread_sources",
        [] {
            nb::list found;
            for (const Kind& kind : kinds())
                found.append(nb::make_tuple(kind.name, kind.what, kind.is_polled, kind.burns_core, kind.why_not()));
            return found;
        },
        "Preemption sources: name, what it does, whether functions poll, whether a core is burnt, why it cannot be "
        "had.");
    m.def("thread_clock_ns", &gnt_now, "The clock of deadlines.");
    bind_result<Calibration>(m, "Calibration", "What a preemption source costs here.",
                             Value{"name", &Calibration::name}, Value{"why_not", &Calibration::why_not},
                             Value{"cost_ns", &Calibration::cost_ns}, Column{"cost_runs", &Calibration::cost_runs},
                             Column{"late_ns", &Calibration::late_ns}, Value{"per_s", &Calibration::per_s},
                             Value{"slowdown", &Calibration::slowdown}, Value{"quantum_ns", &Calibration::quantum_ns},
                             Value{"has_priority", &Calibration::has_priority});
    m.def(
        "calibrate_source",
        [](const std::string& name, int worker_cpu, int timer_cpu, int realtime, std::int64_t quantum,
           std::int64_t duration, int repeats) {
            const Kind* kind = find_kind(name);
            require(kind != nullptr, "there is no such preemption source");
            require(quantum >= 0 && duration >= 100'000 && duration <= 1'000'000'000 && repeats >= 1 && repeats <= 1000,
                    "a measurement takes 0.1 ms to 1 s, 1 to 1000 times");
            nb::gil_scoped_release release;
            return calibrate(*kind, {{worker_cpu, realtime}, {timer_cpu, realtime}, quantum, duration, repeats});
        },
        nb::kw_only(), nb::arg("name"), nb::arg("worker_cpu"), nb::arg("timer_cpu"), nb::arg("realtime"),
        nb::arg("quantum"), nb::arg("duration"), nb::arg("repeats"), "Measures a preemption source.");
    m.def(
        "choose_source",
        [](bool polls) {
            SourceChoice choice;
            {
                nb::gil_scoped_release release;
                choice = choose_source(polls);
            }
            return nb::make_tuple(choice.name, choice.why);
        },
        nb::arg("polls"), "The cheapest source here, and why.");
    m.def(
        "measure_switch_ns",
        [](int cpu, int realtime) {
            nb::gil_scoped_release release;
            return measure_switch_ns({cpu, realtime});
        },
        nb::kw_only(), nb::arg("cpu"), nb::arg("realtime"), "A switch between two stacks, in ns.");
    bind_result<Interruptions>(m, "Interruptions", "Times in which a thread did not run.",
                               Value{"watched_ns", &Interruptions::watched_ns},
                               Column{"length_ns", &Interruptions::length_ns});
    m.def(
        "measure_interruptions",
        [](int cpu, int realtime, std::int64_t duration) {
            require(duration >= 0 && duration <= 10'000'000'000, "up to 10 s");
            nb::gil_scoped_release release;
            return measure_interruptions({cpu, realtime}, duration);
        },
        nb::kw_only(), nb::arg("cpu"), nb::arg("realtime"), nb::arg("duration"), "How often a thread is interrupted.");
    bind_result<Burst>(m, "Burst", "Requests that ran on real threads.", Taken{"take_latency", &Burst::latency},
                       Taken{"take_preemptions", &Burst::preemptions}, Taken{"take_attained", &Burst::attained},
                       Value{"longest_gap", &Burst::longest_gap}, Value{"longest_stall", &Burst::longest_stall},
                       Value{"outside", &Burst::outside}, Value{"stolen", &Burst::stolen},
                       Value{"no_realtime", &Burst::no_realtime});
    m.def(
        "run_burst",
        [](const std::string& source, const Passed<CoreRequests>& requests, const Passed<Scheduling>& scheduling,
           std::size_t workers, std::vector<int> cpus, int timer_cpu, int realtime) {
            check_workers(scheduling, workers);
            require(cpus.empty() || cpus.size() == workers, "a cpu for each worker");
            const Kind& kind = kind_of(source);
            const BurstSettings settings{
                workers, scheduling.settings(), std::move(cpus), {timer_cpu, realtime}, realtime};
            nb::gil_scoped_release release;
            return run_burst(kind, requests, settings);
        },
        nb::kw_only(), nb::arg("source"), nb::arg("requests"), nb::arg("scheduling"), nb::arg("workers"),
        nb::arg("cpus"), nb::arg("timer_cpu"), nb::arg("realtime"), "Plays requests on real threads.");
    using Ended = PythonPool::Ended;
    bind_result<Ended>(m, "EndedTasks", "Tasks that ended.", Column{"task", &Ended::task},
                       Column{"status", &Ended::status}, Column{"result", &Ended::result},
                       Column{"arrival", &Ended::arrival}, Column{"begun", &Ended::begun},
                       Column{"ended", &Ended::ended}, Column{"attained", &Ended::attained},
                       Column{"preemptions", &Ended::preemptions});
    nb::class_<PythonPool>(m, "ThreadPool", "Workers that run native functions, preemptively.")
        .def(
            "__init__",
            [](PythonPool* self, const Passed<Scheduling>& scheduling, std::size_t workers, const std::string& source,
               bool polls, std::size_t max_tasks, std::size_t stack_bytes, std::uint8_t control, std::vector<int> cpus,
               int timer_cpu, int realtime) {
                new (self) PythonPool(scheduling, workers, source, polls, max_tasks, stack_bytes, control,
                                      std::move(cpus), timer_cpu, realtime);
            },
            nb::kw_only(), nb::arg("scheduling"), nb::arg("workers"), nb::arg("source"), nb::arg("polls"),
            nb::arg("max_tasks"), nb::arg("stack_bytes"), nb::arg("control"), nb::arg("cpus"), nb::arg("timer_cpu"),
            nb::arg("realtime"))
        .def("submit", &PythonPool::submit, nb::kw_only(), nb::arg("function"), nb::arg("argument"), nb::arg("kind"),
             nb::arg("hint"), nb::arg("deadline"))
        .def("cancel", &PythonPool::cancel, nb::arg("task"))
        .def("stop", &PythonPool::stop, nb::arg("drain"))
        .def("take_ended", &PythonPool::take_ended)
        .def("stats", &PythonPool::stats)
        .def_prop_ro("source", &PythonPool::source)
        .def_prop_ro("why", &PythonPool::why);
}

}  // namespace gnomon::bindings
