// An application as columns: services, pools, hosts, calls, request classes, and who arrives when.
#pragma once

#include <cstdint>
#include <span>

namespace gnomon::mesh {

/// Times are ns, limits cores. Calls come parents first; the stages of call c are
/// [call_stage[c], call_stage[c + 1]), and the calls of stage s are [stage_call[s], stage_call[s + 1]).
/// A time that varies is the number of a draw. -1 is none, of hosts, limits of queues and time-outs.
struct Input {
    std::span<const std::int32_t> service_replicas, service_workers, service_host, service_overhead;
    std::span<const std::int64_t> service_queue_limit, service_startup;
    std::span<const std::uint8_t> service_is_blocking;
    std::span<const double> service_limit, service_request;

    std::span<const std::int32_t> pool_service, pool_callee, pool_size;

    std::span<const double> host_cores, host_noise_cores, host_noise_on, host_noise_off;

    std::span<const std::int32_t> call_service, call_cpu, call_wait, call_stage, call_retries;
    std::span<const std::int64_t> call_timeout;
    std::span<const std::uint8_t> call_is_queued;
    std::span<const double> call_probability, call_error_share;
    std::span<const std::int32_t> stage_call;

    std::span<const std::int32_t> class_call, class_priority;
    std::span<const std::int64_t> class_timeout, class_bound;
    std::span<const std::uint8_t> class_until_all;
    std::span<const double> class_correlation;

    std::span<const std::uint8_t> draw_shape;
    std::span<const double> draw_mean, draw_cv;
    std::span<const std::int32_t> draw_points;  // per draw + 1: its points of `share` and `value`
    std::span<const double> share, value;

    std::span<const std::int64_t> arrival_time;
    std::span<const std::int32_t> arrival_class;

    std::int32_t network = 0;  // a draw
    std::int64_t period = 100'000'000;
    std::int64_t tick = 0;  // at which quotas are enforced; 0: at once
    std::uint64_t seed = 0;
    std::int64_t most_events = INT64_MAX;
    bool keeps_requests = false;
};

}  // namespace gnomon::mesh
