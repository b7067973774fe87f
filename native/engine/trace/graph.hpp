// From the events of one profiler trace to tasks, edges and waits that replay.
//
// Host threads are laid flat (each instant belongs to the innermost event, time outside all events
// to a gap), device lanes keep their order with the device's own gap before each task, and what
// the times show one waiting for becomes an edge or a run-time wait. A task's `sized` is what a
// replay charges: of a wait only what is its own, the rest follows from what it waits for.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace gnomon {

/// What an event is to the graph.
/// A mark spans a step on its thread: what lies in it and in no other event is a gap of its own, so
/// that gaps end where steps do.
enum class EventClass : std::uint8_t { ignored, host, call, device, mark };

/// More about an event, as bits.
namespace event_flag {
constexpr std::uint8_t synchronises = 1;   // a call that waits for the device
constexpr std::uint8_t of_event = 2;       // ... for one event
constexpr std::uint8_t of_device = 4;      // ... for all streams
constexpr std::uint8_t stream_wait = 8;    // a call that lets a stream wait for another's event
constexpr std::uint8_t host_waits = 16;    // a device task whose end a silent thread may wait for
constexpr std::uint8_t event_record = 32;  // a call that records an event on a stream
constexpr std::uint8_t finds_room = 64;    // a device task that needs no room on the device
constexpr std::uint8_t copies = 128;       // a copy of pageable memory, or a call that always waits for its copy
}  // namespace event_flag

/// Events by start, among equals the longer first, so that parents come before their children.
struct TraceEvents {
    std::span<const std::int64_t> start, end;
    std::span<const std::uint8_t> event_class, flags;
    std::span<const std::int32_t> lane;         // host lanes first, then device lanes
    std::span<const std::int64_t> correlation;  // equal on a call and what it launched; <= 0: none
    std::int32_t host_lanes = 0;
    std::int32_t lanes = 0;
    /// Waits between device events that are known, not inferred: target after source.
    std::span<const std::int32_t> known_source, known_target;
    /// Of device events: the same number for the same task of another step, and the step; -1: none.
    std::span<const std::int32_t> identity, step;
};

enum class TaskKind : std::uint8_t { host, gap, launch, runtime, sync, blocked, latency, device };
enum class EdgeKind : std::uint8_t { launch, queue, event, thread, stream };

struct TraceGraph {
    // Tasks, lane after lane, in order.
    std::vector<std::int32_t> lane, event;  // event: whose time it is, -1 for gaps and latency
    std::vector<std::int64_t> start, end, sized;
    std::vector<std::uint8_t> kind;
    std::vector<std::int32_t> launched_by;  // of a device task and its latency: the task, or -1
    std::vector<std::int32_t> source, target;
    std::vector<std::uint8_t> edge_kind;
    std::vector<std::int32_t> wait_task, wait_lane;
    std::vector<std::int32_t> inferred_source, inferred_target;
    std::vector<double> confidence;
    std::int64_t overlapping = 0;    // device tasks cut because the next of their lane began
    std::int64_t before_launch = 0;  // device tasks that seem to start before their launch
    std::int64_t refuted = 0;        // known waits that the times contradict
};

TraceGraph build_trace_graph(const TraceEvents& events);

}  // namespace gnomon
