// Requests on the workers of one process, under a scheduling policy and a preemption mechanism that has
// a cost and is late. The policies are those of the runtime (`policy/policy.hpp`).
//
//  - A request runs on one worker at a time. Taking one up costs `dispatch_ns`.
//  - After its slice the policy is asked whether to preempt it; if so the worker stops `late` after that,
//    and loses `cost_ns`. A request that ends before is not cut. Otherwise a new slice begins.
//  - An arrival that finds every worker busy may make one of them stop at once, with the same lateness
//    and cost.
//  - With one policy object all workers share a queue. With one each, a request goes to the worker with the
//    least to do, and a worker without work takes requests that have not begun from others.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "policy/policy.hpp"

namespace gnomon {

struct CoreRequests {
    std::span<const std::int64_t> arrival;  // in order
    std::span<const std::int64_t> service;
    std::span<const std::int32_t> kind;      // empty: all 0
    std::span<const std::int64_t> hint;      // empty: none
    std::span<const std::int64_t> deadline;  // empty: none
};

struct Mechanism {
    std::int64_t cost_ns = 0;
    std::int64_t dispatch_ns = 0;
    std::span<const std::int64_t> late_ns;  // samples, drawn one after the other; empty: never late
};

namespace threads {
class QuantumController;
}

/// A controller that sets the quantum of all policies again and again.
struct Control {
    threads::QuantumController* controller = nullptr;
    std::int64_t period_ns = 100'000'000;
};

struct CoreRun {
    std::vector<std::int64_t> latency;  // of each request
    std::vector<std::int32_t> preemptions;
    std::int64_t end = 0;              // of the last request
    std::int64_t lost = 0;             // to preemptions and dispatch, of all workers
    std::int64_t asked = 0;            // ends of slices at which the policy was asked
    std::vector<std::int64_t> quanta;  // that the controller chose, one a period
};

/// One policy, or one for each worker.
CoreRun run_cores(const CoreRequests& requests, std::size_t workers,
                  std::span<const std::unique_ptr<threads::Policy>> policies, const Mechanism& mechanism,
                  std::uint64_t seed, const Control& control = {});

}  // namespace gnomon
