// The nouns of a run: calls under way, requests, replicas, services, hosts.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/mesh/histogram.hpp"
#include "engine/mesh/processor.hpp"
#include "engine/mesh/waiting.hpp"

namespace gnomon::mesh {

inline constexpr std::int32_t none = -1, client = -2, given_up = -3;

/// A call under way. Its slot is used again when it has ended; `generation` tells one from the next.
struct Frame {
    std::int32_t call = 0, request = 0;
    std::int32_t parent = none;   // the caller's frame, `client`, or `given_up`: nobody waits
    std::int32_t replica = none;  // where it is handled
    std::int32_t stage = 0, pending = 0, outstanding = 0, attempt = 0;
    std::uint32_t generation = 0;
    bool is_failed = false, is_sent = false, has_connection = false, has_waited = false;
    std::int64_t arrived = 0, queued_since = 0, awaited_since = 0, issued = 0;
    double awaited = 0.0, queued = 0.0, stretch = 0.0;
};

struct Request {
    std::int32_t request_class = 0, frames = 0;
    std::uint32_t generation = 0;
    bool is_answered = false, is_recorded = false;
    std::int64_t arrived = 0, number = 0;
    double mood = 0.0;  // how slow this request is everywhere, where its times are correlated
};

/// A frame that may have been given up while it waits.
struct Ticket {
    std::int32_t frame = none;
    std::uint32_t generation = 0;
};

struct Pool {
    std::int32_t free;
    Waiting<Ticket> waiting;
};

enum class Phase : std::uint8_t { starting, ready, draining, gone };

struct Replica {
    std::int32_t service, host;
    Phase phase;
    Processor cpu;
    Waiting<std::int32_t> waiting;
    std::vector<Pool> pools;
    std::int32_t held = 0;    // workers that a blocking service keeps
    std::int32_t inside = 0;  // calls that are at this replica
    std::int32_t wanted = 0;  // cores, as the host knows
    std::uint32_t generation = 0;
};

struct Service {
    double limit, request;
    std::vector<std::int32_t> replicas, ready;  // all but those that are gone; those that take calls
    std::size_t turn = 0;
    Waiting<std::int32_t> homeless;  // calls that found no ready replica
    CpuAccount cpu;
    std::int64_t waiting = 0, changed = 0, calls = 0;
    double queue_time = 0.0, replica_time = 0.0, pool_wait = 0.0;
};

struct Host {
    double cores, noise_cores, noise_on, noise_off;
    bool is_noisy = false, is_contended = false;
    double wanted = 0.0;
    std::vector<std::int32_t> replicas;
};

/// A class at a service.
struct Pair {
    std::int32_t request_class, service;
    std::int64_t calls = 0;
    double exclusive = 0.0, cpu = 0.0, queued = 0.0;
    Histogram window, total;
};

struct ClassWindow {
    std::int64_t arrived = 0, failed = 0, violated = 0;
    std::vector<std::int64_t> latency;
};

}  // namespace gnomon::mesh
