// Services that call one another, simulated request by request.
//
// Rules
//  - A request of a class is the tree of its calls. A call is issued by its caller (the root by the
//    client), takes a connection of the caller's pool if there is one, crosses the network, and is
//    given to the next ready replica in turn.
//  - At a replica it waits for a worker: by priority, then in order of arrival. Its CPU time is
//    spread evenly over the stretches before, between and after its stages. With `blocking` it
//    keeps its worker to the end, else only while a stretch runs; then it queues again.
//  - After the first stretch it waits off the CPU; then each stage's calls are made in parallel,
//    and the next stretch begins when all have answered.
//  - A queued call is answered when it is in the callee's queue; its work goes on by itself.
//  - A call that times out is given up: its connection is closed, its work at the callee goes on.
//    A failed call is tried again, after a pause of a millisecond that doubles each time. A request
//    whose call failed for good answers with an error once the rest of that stage has answered.
//  - Threads of a replica share its CPU equally, under a CFS quota (processor.hpp). Replicas of a
//    host whose threads want more cores than it has share them by weight (max-min).
//  - A new replica answers after its start-up time. One that is removed finishes what it has.
//
// At one instant: stretches without work, then CPU events by replica, then delays in the order they were set, then
// arrivals. The same input gives the same answer.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "engine/mesh/input.hpp"

namespace gnomon::mesh {

inline constexpr std::array percentiles{0.5, 0.9, 0.95, 0.98, 0.99, 0.999};

/// What happened since the last look; rows of `percentiles` one after the other. Without a value:
/// NaN.
struct Observation {
    std::vector<double> used;       // by service: CPU ns
    std::vector<double> allocated;  // by service: replicas, integrated over time
    std::vector<std::int64_t> periods, throttled;
    std::vector<double> queue, pool_wait;  // by service: waiting requests and ns, integrated
    std::vector<std::int64_t> calls, replicas;
    std::vector<double> used_slices, throttled_slices;  // slices x services
    std::vector<double> service_latency;                // percentiles x services: ns, exclusive
    std::vector<std::int64_t> arrived, answered, failed, violated;
    std::vector<double> class_latency;  // percentiles x classes: ns
};

/// Where the time of a class goes, over the whole run: by pair of class and service.
struct Spent {
    std::vector<std::int32_t> request_class, service;
    std::vector<std::int64_t> calls;
    std::vector<double> exclusive, cpu, queued;  // sums of ns
    std::vector<std::int32_t> counts;            // pairs x buckets of the exclusive latency
};

enum class Status : std::uint8_t { pending, answered, failed, timed_out };

/// Every request, if asked for: in order of arrival.
struct Requests {
    std::vector<std::int64_t> latency;  // -1 while pending
    std::vector<Status> status;
};

class Mesh {
public:
    explicit Mesh(const Input& input);
    ~Mesh();
    Mesh(const Mesh&) = delete;
    Mesh& operator=(const Mesh&) = delete;

    /// Plays everything up to and with `until`.
    void advance(std::int64_t until);
    Observation observe();

    void set_limit(std::int32_t service, double cores);
    void set_request(std::int32_t service, double weight);
    void set_replicas(std::int32_t service, std::int32_t count);

    [[nodiscard]] Spent spent() const;
    [[nodiscard]] const Requests& requests() const;
    [[nodiscard]] std::int64_t events() const;
    /// Requests that are neither answered nor given up.
    [[nodiscard]] std::int64_t pending() const;

private:
    class Run;
    std::unique_ptr<Run> run_;
};

}  // namespace gnomon::mesh
