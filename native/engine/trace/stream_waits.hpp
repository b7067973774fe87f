// Which task of another stream did this one wait for? Inferred: ordinary traces do not say.
//
// A trace shows that the host asked a stream to wait for an event, not for which. What it does show
// is time, and time shows more than the moment of the start:
//  - a task starts after what it waited for has ended, in every step in which both appear;
//  - tasks that fill the device take turns in the order in which they became ready. If one that was
//    ready later went first, ours was not ready yet: what it waited for ended after that. If one
//    that was ready for certain came after ours, ours was ready before;
//  - a copy or a tiny kernel finds room at once: what it waited for ended just before it.
// What is left between these bounds are the candidates. Steps repeat one another, so the candidate
// that fits in every step is it; several that fit alike share the confidence, also with the chance
// that nothing but a full device held the task back.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace gnomon {

struct DeviceTask {
    std::int32_t lane = 0;
    std::int64_t start = 0, end = 0;
    std::int64_t ready = 0;        // by its launch and its own lane
    std::int64_t asked = -1;       // when the host launched it; -1: before the trace
    std::int64_t wait_asked = -1;  // when the host first asked its stream to wait, -1: it did not
    bool is_recorded = true;       // an event may stand for its end
    bool finds_room = false;       // it needs next to nothing of the device
    std::int32_t identity = -1;    // the same for the same task of another step; -1: unknown
    std::int32_t step = -1;
};

struct StreamWait {
    std::int32_t source, target;  // indices of device tasks
    double confidence;
};

/// Waits that held a task back, by target.
std::vector<StreamWait> infer_stream_waits(std::span<const DeviceTask> tasks);

}  // namespace gnomon
