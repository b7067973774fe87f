#include "engine/mesh/mesh.hpp"

#include <cmath>
#include <limits>
#include <stdexcept>
#include <vector>

#include "engine/draw.hpp"
#include "engine/indexed_queue.hpp"
#include "engine/mesh/histogram.hpp"
#include "engine/rng.hpp"
#include "tests/test.hpp"

namespace gnomon::tests {
namespace {

using mesh::Input;
using mesh::Mesh;

constexpr std::int64_t ms = 1'000'000, second = 1'000 * ms;
constexpr double endless = std::numeric_limits<double>::infinity();

/// Columns of an application; `input` looks into them.
struct Columns {
    std::vector<std::int32_t> replicas, workers, host, overhead;
    std::vector<std::int64_t> queue_limit, startup;
    std::vector<std::uint8_t> is_blocking;
    std::vector<double> limit, request;
    std::vector<std::int32_t> pool_service, pool_callee, pool_size;
    std::vector<double> cores, noise_cores, noise_on, noise_off;
    std::vector<std::int32_t> call_service, call_cpu, call_wait, call_stage{0}, call_retries;
    std::vector<std::int64_t> call_timeout;
    std::vector<std::uint8_t> call_is_queued;
    std::vector<double> call_probability, call_error_share;
    std::vector<std::int32_t> stage_call{1};
    std::vector<std::int32_t> class_call{0}, class_priority{0};
    std::vector<std::int64_t> class_timeout{-1}, class_bound{-1};
    std::vector<std::uint8_t> class_until_all{0};
    std::vector<double> class_correlation{0.0};
    std::vector<std::uint8_t> shape{0};
    std::vector<double> mean{0.0}, cv{0.0};
    std::vector<std::int32_t> points{0, 0};
    std::vector<double> share, value;
    std::vector<std::int64_t> arrival;
    std::vector<std::int32_t> arrival_class;
    std::uint64_t seed = 1;
    std::int64_t most_events = INT64_MAX;

    std::int32_t draw(double ns, double spread = 0.0) {
        shape.push_back(spread > 0.0 ? 2 : 0);
        mean.push_back(ns);
        cv.push_back(spread);
        points.push_back(0);
        return static_cast<std::int32_t>(mean.size()) - 1;
    }

    void service(std::int32_t threads, double cores_limit = endless, bool blocks = false) {
        replicas.push_back(1);
        workers.push_back(threads);
        host.push_back(-1);
        overhead.push_back(0);
        queue_limit.push_back(-1);
        startup.push_back(0);
        is_blocking.push_back(blocks);
        limit.push_back(cores_limit);
        request.push_back(1.0);
    }

    /// A call without calls below; `parents` come first and give theirs by `stage`.
    void call(std::int32_t at, std::int32_t cpu, std::int32_t wait = 0) {
        call_service.push_back(at);
        call_cpu.push_back(cpu);
        call_wait.push_back(wait);
        call_retries.push_back(0);
        call_timeout.push_back(-1);
        call_is_queued.push_back(0);
        call_probability.push_back(1.0);
        call_error_share.push_back(0.0);
        call_stage.push_back(call_stage.back());
    }

    /// The first call makes the others, each in a stage of its own.
    void root_calls_all() {
        const auto calls = static_cast<std::int32_t>(call_service.size());
        for (std::int32_t c = 2; c <= calls; ++c) stage_call.push_back(c);
        for (std::size_t c = 1; c < call_stage.size(); ++c) call_stage[c] = calls - 1;
    }

    [[nodiscard]] Input input() const {
        Input in;
        in.service_replicas = replicas, in.service_workers = workers, in.service_host = host;
        in.service_overhead = overhead, in.service_queue_limit = queue_limit, in.service_startup = startup;
        in.service_is_blocking = is_blocking, in.service_limit = limit, in.service_request = request;
        in.pool_service = pool_service, in.pool_callee = pool_callee, in.pool_size = pool_size;
        in.host_cores = cores, in.host_noise_cores = noise_cores, in.host_noise_on = noise_on;
        in.host_noise_off = noise_off, in.call_service = call_service, in.call_cpu = call_cpu;
        in.call_wait = call_wait, in.call_stage = call_stage, in.call_retries = call_retries;
        in.call_timeout = call_timeout, in.call_is_queued = call_is_queued;
        in.call_probability = call_probability, in.call_error_share = call_error_share;
        in.stage_call = stage_call, in.class_call = class_call, in.class_priority = class_priority;
        in.class_timeout = class_timeout, in.class_bound = class_bound, in.class_until_all = class_until_all;
        in.class_correlation = class_correlation, in.draw_shape = shape, in.draw_mean = mean, in.draw_cv = cv;
        in.draw_points = points, in.share = share, in.value = value, in.arrival_time = arrival;
        in.arrival_class = arrival_class, in.seed = seed, in.most_events = most_events, in.keeps_requests = true;
        return in;
    }
};

void requests_queue_for_one_worker() {
    Columns app;
    app.service(1);
    app.call(0, app.draw(2 * ms));
    app.arrival = {0, ms, 10 * ms};
    app.arrival_class = {0, 0, 0};
    Mesh sim(app.input());
    sim.advance(second);
    expect(sim.requests().latency == std::vector<std::int64_t>({2 * ms, 3 * ms, 2 * ms}), "one worker, one at a time");
    const auto seen = sim.observe();
    expect(std::abs(seen.used[0] - 6.0 * ms) < 1.0 && seen.calls[0] == 3, "CPU time and calls are counted");
}

void a_quota_stops_and_starts() {
    Columns app;
    app.service(4, 0.1);
    app.call(0, app.draw(30 * ms));
    app.arrival = {0};
    app.arrival_class = {0};
    Mesh sim(app.input());
    sim.advance(second);
    const auto seen = sim.observe();
    expect(sim.pending() == 0 && seen.throttled[0] >= 2 && seen.throttled[0] <= seen.periods[0],
           "30 ms of work at 10 ms a period is throttled twice at least");
    Columns none = app;
    none.limit = {0.0};
    Mesh stuck(none.input());
    stuck.advance(100 * second);
    expect(stuck.pending() == 1 && stuck.events() < 10, "a quota of zero waits without events");
}

void random_meshes_keep_their_promises() {
    Rng rng(11);
    for (int round = 0; round < 150; ++round) {
        Columns app;
        app.seed = rng();
        const auto services = 1 + static_cast<std::int32_t>(rng.below(4));
        if (rng.below(2) == 0) {
            app.cores = {1.0 + rng.uniform()};
            app.noise_cores = {rng.below(2) == 0 ? 0.0 : 1.0};
            app.noise_on = app.noise_off = {20.0 * ms};
        }
        for (std::int32_t s = 0; s < services; ++s) {
            app.service(1 + static_cast<std::int32_t>(rng.below(3)), rng.below(3) == 0 ? 0.05 + rng.uniform() : endless,
                        rng.below(2) == 0);
            if (!app.cores.empty() && rng.below(2) == 0) app.host.back() = 0;
            if (rng.below(4) == 0) app.queue_limit.back() = static_cast<std::int64_t>(rng.below(3));
            if (rng.below(3) == 0) app.startup.back() = 50 * ms;
        }
        const auto calls = 1 + rng.below(5);
        for (std::uint64_t c = 0; c < calls; ++c) {
            const auto cpu = app.draw(static_cast<double>(rng.below(3 * ms)), rng.below(2) == 0 ? 0.0 : 0.7);
            if (app.mean.back() == 0.0) app.shape.back() = 0;
            app.call(static_cast<std::int32_t>(rng.below(index(services))), cpu,
                     rng.below(3) == 0 ? app.draw(2.0 * ms) : 0);
            if (rng.below(4) == 0) app.call_timeout.back() = static_cast<std::int64_t>(1 + rng.below(10 * ms));
            app.call_retries.back() = static_cast<std::int32_t>(rng.below(3));
            app.call_probability.back() = rng.uniform();
            app.call_error_share.back() = rng.below(4) == 0 ? 0.3 : 0.0;
            app.call_is_queued.back() = rng.below(4) == 0;
        }
        app.root_calls_all();
        app.class_until_all = {static_cast<std::uint8_t>(rng.below(2))};
        app.class_correlation = {rng.below(2) == 0 ? 0.0 : 0.5};
        if (rng.below(3) == 0) app.class_timeout = {20 * ms};
        app.pool_service = {0};
        app.pool_callee = {static_cast<std::int32_t>(rng.below(index(services)))};
        app.pool_size = {1};
        std::int64_t now = 0;
        for (int r = 0; r < 60; ++r) app.arrival.push_back(now += static_cast<std::int64_t>(rng.below(8 * ms)));
        app.arrival_class.assign(app.arrival.size(), 0);
        Mesh sim(app.input());
        std::int64_t arrived = 0, ended = 0;
        for (int step = 1; step <= 12; ++step) {
            sim.advance(step * 100 * ms);
            const auto seen = sim.observe();
            arrived += seen.arrived[0];
            ended += seen.answered[0] + seen.failed[0];
            const auto s = static_cast<std::int32_t>(rng.below(index(services)));
            sim.set_replicas(s, static_cast<std::int32_t>(rng.below(4)));
            sim.set_limit(s, rng.below(2) == 0 ? endless : rng.uniform());
            sim.set_request(s, 0.5 + rng.uniform());
        }
        expect(arrived == 60 && ended + sim.pending() == arrived, "requests are conserved");
        Mesh twin(app.input());
        twin.advance(100 * ms);
        Mesh other(app.input());
        other.advance(100 * ms);
        expect(twin.requests().latency == other.requests().latency, "the same input gives the same answer");
    }
}

void runs_are_bounded() {
    Columns app;
    app.service(1);
    app.call(0, app.draw(ms));
    app.arrival = {0, 1, 2, 3};
    app.arrival_class = {0, 0, 0, 0};
    app.most_events = 3;
    Mesh sim(app.input());
    bool stopped = false;
    try {
        sim.advance(second);
    } catch (const std::length_error&) {
        stopped = true;
    }
    expect(stopped, "a run has at most so many events");
}

void buckets_hold_their_values() {
    bool holds = true;
    for (std::int64_t ns = 1; ns < (std::int64_t{1} << 45); ns = ns * 5 / 4 + 1) {
        const auto bucket = mesh::Histogram::bucket(ns);
        const auto value = static_cast<double>(ns);
        if (ns >= 1 << mesh::Histogram::lowest_bit && bucket + 1 < mesh::Histogram::size)
            holds = holds && mesh::Histogram::lower(bucket) <= value && value < mesh::Histogram::lower(bucket + 1);
    }
    expect(holds, "a value lies in its bucket");
}

void correlated_draws_keep_their_distribution() {
    const auto draw = lognormal(10.0, 1.0);
    Rng rng(3);
    double plain = 0.0, correlated = 0.0;
    constexpr int count = 200'000;
    for (int i = 0; i < count; ++i) {
        plain += draw(rng);
        correlated += draw(rng, 0.6, rng.normal());
    }
    expect(std::abs(plain / count - 10.0) < 0.2 && std::abs(correlated / count - 10.0) < 0.2, "the mean stays");
}

void the_earliest_owner_is_next() {
    IndexedQueue queue;
    Rng rng(7);
    std::vector<std::int64_t> times(20, never);
    for (int i = 0; i < 20; ++i) queue.add_owner();
    bool right = true;
    for (int step = 0; step < 20'000; ++step) {
        const auto owner = rng.below(20);
        times[owner] = rng.below(5) == 0 ? never : static_cast<std::int64_t>(rng.below(50));
        queue.set(static_cast<std::int32_t>(owner), times[owner]);
        std::size_t first = 0;
        for (std::size_t i = 1; i < times.size(); ++i)
            if (times[i] < times[first]) first = i;
        right = right && queue.next_time() == times[first] && queue.next_owner() == static_cast<std::int32_t>(first);
    }
    expect(right, "the earliest owner, of equals the first");
}

}  // namespace

void mesh_tests() {
    requests_queue_for_one_worker();
    a_quota_stops_and_starts();
    random_meshes_keep_their_promises();
    runs_are_bounded();
    buckets_hold_their_values();
    correlated_draws_keep_their_distribution();
    the_earliest_owner_is_next();
}

}  // namespace gnomon::tests
