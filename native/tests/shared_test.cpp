#include <cmath>
#include <stdexcept>
#include <string>
#include <vector>

#include "engine/event_queue.hpp"
#include "engine/perfetto.hpp"
#include "engine/rng.hpp"
#include "tests/test.hpp"

namespace gnomon::tests {
namespace {

void events_leave_in_order() {
    Rng rng(2);
    EventQueue queue;
    for (int i = 0; i < 1000; ++i)
        queue.push(static_cast<std::int64_t>(rng.below(50)), static_cast<std::int64_t>(rng.below(50)));
    Event last{-1, -1};
    bool ordered = true;
    while (!queue.empty()) {
        const auto next = queue.pop();
        ordered = ordered && !(next < last);
        last = next;
    }
    expect(ordered, "events leave by time, then key");
}

void streams_are_apart_and_fair() {
    Rng a(7, 1), b(7, 2), again(7, 1);
    expect(a() == again(), "the same stream gives the same draws");
    int equal = 0;
    for (int i = 0; i < 1000; ++i) equal += a() == b();
    expect(equal == 0, "streams differ");
    double sum = 0, squares = 0;
    for (int i = 0; i < 100'000; ++i) {
        const double x = b.normal();
        sum += x;
        squares += x * x;
    }
    expect(std::abs(sum / 1e5) < 0.02 && std::abs(squares / 1e5 - 1) < 0.02, "normal(0, 1)");
}

void closed_traces_take_nothing() {
    PerfettoWriter writer("/dev/null");
    const auto process = writer.add_process("p");
    const std::vector<std::uint64_t> tracks{writer.add_lane(process, "lane")};
    const std::vector<std::int32_t> lane{0, 0}, name{0, 1}, from{0}, to{1};
    const std::vector<std::int64_t> start{0, 300}, end{200, 70'000};
    const std::vector<std::uint8_t> kind{0, 0}, critical{1, 0};
    writer.write_slices({lane, start, end, name, kind, critical, from, to}, tracks, {"a", std::string(300, 'x')},
                        {"k"});
    writer.close();
    bool refused = false;
    try {
        writer.add_process("late");
    } catch (const std::runtime_error&) {
        refused = true;
    }
    expect(refused, "a closed trace takes nothing more");
}

}  // namespace

void shared_tests() {
    events_leave_in_order();
    streams_are_apart_and_fair();
    closed_traces_take_nothing();
}

}  // namespace gnomon::tests
