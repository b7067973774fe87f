#include "threads/measure.hpp"

#include <sched.h>

#include <algorithm>
#include <cstdio>
#include <stdexcept>
#include <thread>

#include "threads/modules.hpp"
#include "threads/pool.hpp"

namespace gnomon::threads {
namespace {

constexpr int turns_per_unit = 32;  // some 60 ns between two polls
constexpr std::uint64_t trial_units = 5'000;

/// CPU work, with a poll after each unit.
[[gnu::noinline]] std::intptr_t work(void* units) {
    std::uint64_t x = 1;
    for (std::uint64_t left = *static_cast<std::uint64_t*>(units); left > 0; --left) {
        for (int i = 0; i < turns_per_unit; ++i) {
            x = x * 6364136223846793005ULL + 1442695040888963407ULL;
            asm volatile("" : "+r"(x));  // the loop is the work: it must not be folded
        }
        gnt_poll();
    }
    return static_cast<std::intptr_t>(x);
}

struct PingPong {
    void *here = nullptr, *there = nullptr;
};

std::intptr_t pong(void* given) {
    auto& both = *static_cast<PingPong*>(given);
    for (;;) gnt_switch(&both.there, both.here);
}

template <typename T>
T median(std::vector<T> values) {
    std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2), values.end());
    return values[values.size() / 2];
}

/// On a thread of its own, so that the caller keeps its place and priority.
template <typename Body>
void on_thread(const Placement& placement, bool& has_priority, Body&& body) {
    std::exception_ptr failure;
    std::thread([&] {
        has_priority = placement.apply();
        try {
            body();
        } catch (...) {
            failure = std::current_exception();
        }
    }).join();
    if (failure) std::rethrow_exception(failure);
}

struct Run {
    Nanoseconds taken;
    std::uint64_t preemptions;
};

Run run_units(Lane& lane, gnt_context& context, std::uint64_t units, Nanoseconds limit) {
    context.prepare(&work, &units);
    const Nanoseconds began = now_ns();
    std::uint64_t preemptions = 0;
    while (lane.run(context, limit) == GNT_PREEMPTED) ++preemptions;
    return {now_ns() - began, preemptions};
}

}  // namespace

Calibration calibrate(const Kind& kind, const MeasureSettings& settings) {
    Calibration found;
    found.name = kind.name;
    found.why_not = kind.why_not();
    found.quantum_ns = settings.quantum > 0 ? settings.quantum : kind.is_polled ? 10'000 : 50'000;
    if (!found.why_not.empty() || found.name == "none") return found;
    allow_module(reinterpret_cast<const void*>(&work));
    const auto source = kind.make(), idle = find_kind("none")->make();
    source->place(settings.timer);
    std::vector<Nanoseconds> late(1 << 14);
    std::vector<double> rates, slowdowns;
    try {
        on_thread(settings.worker, found.has_priority, [&] {
            const OverflowStack overflow_stack;
            Lane lane;
            lane.begin(*source);
            gnt_context context(std::make_unique<Stacks>(1, 0));
            std::uint64_t units = trial_units;
            run_units(lane, context, units, unlimited);
            for (int i = 0; i < settings.repeats; ++i) {
                // The same work without a deadline before and after: what it takes in itself.
                const Run before = run_units(lane, context, units, unlimited);
                lane.late = late.data();
                lane.late_size = late.size();
                const Run cut = run_units(lane, context, units, found.quantum_ns);
                lane.late_size = lane.late_count;
                const Run after = run_units(lane, context, units, unlimited);
                const Nanoseconds plain = std::min(before.taken, after.taken);
                if (cut.preemptions > 0) {
                    found.cost_runs.push_back((cut.taken - plain) / static_cast<Nanoseconds>(cut.preemptions));
                    rates.push_back(1e9 * static_cast<double>(cut.preemptions) / static_cast<double>(cut.taken));
                }
                if (lane.polls_clock) {
                    lane.polls_clock = false;
                    lane.source = idle.get();  // polls that find no flag
                    const Run quick = run_units(lane, context, units, unlimited);
                    lane.source = source.get();
                    lane.polls_clock = true;
                    slowdowns.push_back(static_cast<double>(plain) / static_cast<double>(quick.taken) - 1.0);
                }
                units = std::max<std::uint64_t>(units * static_cast<std::uint64_t>(settings.duration) /
                                                    static_cast<std::uint64_t>(std::max<Nanoseconds>(plain, 1)),
                                                trial_units);
            }
            late.resize(lane.late_count);
            lane.end();
        });
    } catch (const std::exception& error) {
        found.why_not = error.what();
        return found;
    }
    if (found.cost_runs.empty()) {
        found.why_not = "nothing was preempted while it was measured";
        return found;
    }
    found.cost_ns = std::max<std::int64_t>(median(found.cost_runs), 0);
    found.per_s = median(rates);
    if (!slowdowns.empty()) found.slowdown = std::max(median(slowdowns), 0.0);
    found.late_ns.assign(late.begin(), late.end());
    return found;
}

SourceChoice choose_source(bool polls) {
    constexpr double usual_quantum = 10'000.0;
    struct Measured {
        Calibration calibration;
        double late, score;
        bool burns_core;
    };
    std::vector<Measured> measured;
    for (const Kind& kind : kinds()) {
        if (std::string(kind.name) == "none" || (kind.is_polled && !polls)) continue;
        Calibration found = calibrate(kind, {});
        if (!found.why_not.empty() || found.late_ns.empty()) continue;
        const auto late = static_cast<double>(median(found.late_ns));
        const double score = static_cast<double>(found.cost_ns) + late + found.slowdown * usual_quantum;
        measured.push_back({std::move(found), late, score, kind.burns_core});
    }
    if (measured.empty()) return {"none", "no source preempted anything"};
    std::sort(measured.begin(), measured.end(), [](const auto& a, const auto& b) { return a.score < b.score; });
    std::string why;
    for (std::size_t i = 0; i < std::min<std::size_t>(measured.size(), 2); ++i) {
        const auto& one = measured[i];
        char text[160];
        std::snprintf(text, sizeof text, "%s%s: %.2f us a preemption, %.2f us late%s", i == 0 ? "" : "; next ",
                      one.calibration.name.c_str(), static_cast<double>(one.calibration.cost_ns) / 1e3, one.late / 1e3,
                      one.burns_core ? ", its thread spins" : "");
        why += text;
    }
    return {measured.front().calibration.name, why};
}

double measure_switch_ns(const Placement& placement) {
    constexpr int pairs = 200'000, repeats = 7;
    double least = 1e9;
    bool has_priority = true;
    on_thread(placement, has_priority, [&] {
        Lane lane;
        gnt_self = &lane;
        gnt_context context(std::make_unique<Stacks>(1, 0));
        PingPong both;
        context.prepare(&pong, &both);
        lane.running = &context;
        gnt_switch(&both.here, context.sp);
        for (int repeat = 0; repeat < repeats; ++repeat) {
            const Nanoseconds began = now_ns();
            for (int i = 0; i < pairs; ++i) gnt_switch(&both.here, both.there);
            least = std::min(least, static_cast<double>(now_ns() - began) / (2.0 * pairs));
        }
        gnt_self = nullptr;
    });
    return least;
}

Interruptions measure_interruptions(const Placement& placement, Nanoseconds duration) {
    constexpr Nanoseconds shortest = 1'000;
    Interruptions found;
    found.length_ns.reserve(100'000);
    bool has_priority = true;
    on_thread(placement, has_priority, [&] {
        const Nanoseconds began = now_ns();
        Nanoseconds before = began;
        while (before - began < duration) {
            const Nanoseconds now = now_ns();
            if (now - before > shortest && found.length_ns.size() < found.length_ns.capacity())
                found.length_ns.push_back(now - before);
            before = now;
        }
        found.watched_ns = before - began;
    });
    return found;
}

// --- requests on a real pool -----------------------------------------------------------------------

namespace {

class Generator {
public:
    Generator(const CoreRequests& requests, Burst& burst) : requests_(requests), burst_(burst) {
        units_.resize(requests.arrival.size());
    }

    void begin(Pool& pool, double units_per_ns, Nanoseconds start) {
        for (std::size_t i = 0; i < units_.size(); ++i)
            units_[i] =
                static_cast<std::uint64_t>(std::max(1.0, units_per_ns * static_cast<double>(requests_.service[i])));
        start_ = before_ = start;
        pool_.store(&pool, std::memory_order_release);
    }
    [[nodiscard]] std::size_t ended() const { return ended_.load(std::memory_order_acquire); }

    static void poll(void* self) { static_cast<Generator*>(self)->submit_due(); }

private:
    void submit_due() {
        Pool* pool = pool_.load(std::memory_order_acquire);
        if (pool == nullptr || next_ == units_.size()) return;
        const Nanoseconds now = now_ns();
        if (now < start_) return;
        burst_.longest_gap = std::max(burst_.longest_gap, now - before_);
        before_ = now;
        for (; next_ < units_.size() && start_ + requests_.arrival[next_] <= now; ++next_) {
            gnt_job job{};
            job.function = &work;
            job.argument = &units_[next_];
            job.arrival_ns = start_ + requests_.arrival[next_];
            if (!requests_.kind.empty()) job.kind = requests_.kind[next_];
            if (!requests_.hint.empty()) job.hint_ns = requests_.hint[next_];
            if (!requests_.deadline.empty()) job.deadline_ns = start_ + requests_.deadline[next_];
            job.on_done = [](const gnt_report* report, void* self) { static_cast<Generator*>(self)->note(*report); };
            job.user = this;
            if (pool->submit(job, nullptr) != 0) return;  // full: when there is room
        }
    }

    void note(const gnt_report& report) {
        const auto i = static_cast<std::size_t>(static_cast<std::uint64_t*>(report.argument) - units_.data());
        burst_.latency[i] = report.ended_ns - report.arrival_ns;
        burst_.preemptions[i] = static_cast<std::int32_t>(report.preemptions);
        burst_.attained[i] = report.attained_ns;
        ended_.fetch_add(1, std::memory_order_release);
    }

    const CoreRequests& requests_;
    Burst& burst_;
    std::vector<std::uint64_t> units_;
    std::atomic<Pool*> pool_{nullptr};
    std::atomic<std::size_t> ended_{0};
    std::size_t next_ = 0;
    Nanoseconds start_ = 0, before_ = 0;
};

/// Units of work in a nanosecond on a worker of the pool: the best of several trials.
double measure_speed(Pool& pool) {
    struct Trial {
        std::uint64_t units = trial_units;
        std::atomic<Nanoseconds> attained{0};
    };
    double best = 0.0;
    for (int i = 0; i < 8; ++i) {
        Trial trial;
        gnt_job job{};
        job.function = &work;
        job.argument = &trial.units;
        job.on_done = [](const gnt_report* report, void* to) {
            static_cast<Trial*>(to)->attained = report->attained_ns;
        };
        job.user = &trial;
        if (pool.submit(job, nullptr) != 0) throw std::runtime_error("the pool takes no task");
        while (trial.attained == 0) sched_yield();
        best = std::max(best, static_cast<double>(trial_units) / static_cast<double>(trial.attained));
    }
    return best;
}

/// By how much a request took longer on its worker than it should, preemptions apart: a part of what they cost, by a
/// signal most of it, counts as its time.
Nanoseconds longest_excess(const CoreRequests& requests, const Burst& burst) {
    std::vector<Nanoseconds> each;
    for (std::size_t i = 0; i < burst.attained.size(); ++i)
        if (burst.preemptions[i] > 0) each.push_back((burst.attained[i] - requests.service[i]) / burst.preemptions[i]);
    const Nanoseconds usual = each.empty() ? 0 : std::max<Nanoseconds>(median(each), 0);
    Nanoseconds longest = 0;
    for (std::size_t i = 0; i < burst.attained.size(); ++i)
        longest = std::max(longest, burst.attained[i] - requests.service[i] - usual * burst.preemptions[i]);
    return longest;
}

}  // namespace

Burst run_burst(const Kind& kind, const CoreRequests& requests, const BurstSettings& settings) {
    Burst burst;
    const std::size_t count = requests.arrival.size();
    burst.latency.resize(count);
    burst.preemptions.resize(count);
    burst.attained.resize(count);
    if (count == 0) return burst;
    Generator generator(requests, burst);
    PoolSettings made;
    made.workers = settings.workers;
    made.policy = settings.policy;
    made.stack_bytes = 32 * 1024;
    // Long enough that no request finds it asleep; then whoever waits for the burst gets the core, whatever the
    // priority.
    made.spin_ns = 2'000'000;
    made.cpus = settings.cpus;
    made.timer = settings.timer;
    made.realtime = settings.realtime;
    made.poll = &Generator::poll;
    made.poll_argument = &generator;
    allow_module(reinterpret_cast<const void*>(&work));
    Pool pool(made, kind.make());
    const double speed = measure_speed(pool);
    for (auto& worker : pool.workers()) worker->longest_stall.store(0);
    generator.begin(pool, speed, now_ns() + 1'000'000);
    std::int64_t total = 0;
    for (const auto one : requests.service) total += one;
    const Nanoseconds last = now_ns() + requests.arrival.back() + 20 * total + 5'000'000'000;
    while (generator.ended() < count) {
        if (now_ns() > last) throw std::runtime_error("requests do not end in time: the load is too high");
        const timespec moment{0, 2'000'000};
        nanosleep(&moment, nullptr);
    }
    pool.stop(true);
    gnt_pool_stats stats;
    pool.read(stats);
    burst.outside = static_cast<std::int64_t>(stats.outside);
    burst.stolen = static_cast<std::int64_t>(stats.stolen);
    burst.no_realtime = static_cast<std::int64_t>(stats.no_realtime);
    for (const auto& worker : pool.workers())
        burst.longest_stall = std::max<std::int64_t>(burst.longest_stall, worker->longest_stall.load());
    burst.longest_stall = std::max<std::int64_t>(burst.longest_stall, longest_excess(requests, burst));
    return burst;
}

}  // namespace gnomon::threads
