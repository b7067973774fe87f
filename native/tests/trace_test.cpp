#include <algorithm>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "engine/replay/replay.hpp"
#include "engine/rng.hpp"
#include "engine/trace/graph.hpp"
#include "engine/trace/reader.hpp"
#include "tests/test.hpp"

namespace gnomon::tests {
namespace {

/// Events of a trace as columns; threads are lanes 0 to 2, streams lanes 3 to 5.
struct Trace {
    std::vector<std::int64_t> start, end, correlation;
    std::vector<std::uint8_t> event_class, flags;
    std::vector<std::int32_t> lane, known_source, known_target, identity, step;

    void add(EventClass what, std::int32_t on, std::int64_t begin, std::int64_t length, std::int64_t id = 0,
             std::uint8_t bits = 0) {
        start.push_back(begin);
        end.push_back(begin + length);
        correlation.push_back(id);
        event_class.push_back(static_cast<std::uint8_t>(what));
        flags.push_back(bits);
        lane.push_back(on);
        identity.push_back(-1);
        step.push_back(-1);
    }
    [[nodiscard]] TraceGraph build() const {
        return build_trace_graph(
            {start, end, event_class, flags, lane, correlation, 3, 6, known_source, known_target, identity, step});
    }
};

/// Played again, a rebuilt trace ends as recorded; only a blocked call is charged to what made room.
bool replays_as_recorded(const TraceGraph& built) {
    const auto n = built.lane.size();
    std::vector<std::size_t> order(built.source.size());
    for (std::size_t e = 0; e < order.size(); ++e) order[e] = e;
    std::stable_sort(order.begin(), order.end(),
                     [&](std::size_t a, std::size_t b) { return built.source[a] < built.source[b]; });
    std::vector<std::int64_t> offset(n + 1, 0);
    std::vector<std::int32_t> target;
    std::vector<std::uint8_t> kind;
    for (const auto e : order) {
        ++offset[static_cast<std::size_t>(built.source[e]) + 1];
        target.push_back(built.target[e]);
        kind.push_back(built.edge_kind[e]);
    }
    for (std::size_t i = 0; i < n; ++i) offset[i + 1] += offset[i];
    const GraphView view{built.lane, built.sized, offset, target, kind, 6, {}, built.wait_task, built.wait_lane, 0};
    const auto played = replay(view, nullptr, nullptr, false);
    if (played.finished != static_cast<std::int64_t>(n)) return false;
    for (std::size_t i = 0; i < n; ++i) {
        const bool is_blocked = built.kind[i] == static_cast<std::uint8_t>(TaskKind::blocked);
        const auto end = played.end.empty() ? played.start[i] + built.sized[i] : played.end[i];
        if (!is_blocked && end != built.end[i]) return false;
    }
    return true;
}

void traces_become_graphs() {
    using enum EventClass;
    Trace launched;
    launched.add(host, 0, 0, 100'000);
    launched.add(call, 0, 10'000, 5'000, 1);
    launched.add(device, 3, 20'000, 60'000, 1);
    launched.add(call, 0, 30'000, 60'000, 0, event_flag::synchronises | event_flag::of_device);
    const auto simple = launched.build();
    // Operator, launch, operator, synchronise, operator; then the device's gap and its task.
    expect(simple.lane == std::vector<std::int32_t>({0, 0, 0, 0, 0, 3, 3}), "pieces lie in order");
    expect(simple.sized == std::vector<std::int64_t>({10'000, 5'000, 15'000, 10'000, 10'000, 5'000, 60'000}),
           "a synchronise call is charged for what came after the task");
    expect(simple.source == std::vector<std::int32_t>{1} && simple.target == std::vector<std::int32_t>{5},
           "a launch issues its task");
    expect(simple.wait_task == std::vector<std::int32_t>{3} && simple.wait_lane == std::vector<std::int32_t>{3},
           "a synchronise call waits for its lane");
    expect(replays_as_recorded(simple), "a trace replays as recorded");

    Trace known;
    known.add(device, 3, 0, 50, 0);
    known.add(device, 4, 20, 10, 0);
    known.add(device, 4, 60, 10, 0);
    known.known_source = {0, 0};
    known.known_target = {2, 1};
    const auto tied = known.build();
    expect(tied.refuted == 1 && tied.source.size() == 1, "a wait that the times contradict is refuted");
    expect(replays_as_recorded(tied), "known waits keep the record");
    expect(Trace{}.build().lane.empty(), "nothing becomes nothing");
}

/// Random events, nested or not, launched or not: never out of bounds, and exact when replayed.
void random_traces_replay_as_recorded() {
    using enum EventClass;
    Rng rng(13);
    int exact = 0;
    constexpr int rounds = 3'000;
    for (int round = 0; round < rounds; ++round) {
        const bool streams_wait = round % 2 == 0;
        // Of tasks without length at one instant, waits between streams may name each in turn.
        const std::int64_t shortest = streams_wait ? 1 : 0;
        struct Random {
            std::int64_t start, length, id;
            EventClass what;
            std::int32_t lane;
            std::uint8_t flags;
        };
        std::vector<Random> events(rng.below(40));
        for (auto& event : events) {
            event.start = static_cast<std::int64_t>(rng.below(30) * (rng.below(2) == 0 ? 1'000 : 20'000));
            event.length = shortest + static_cast<std::int64_t>(rng.below(rng.below(2) == 0 ? 3 : 200) * 1'000);
            event.id = static_cast<std::int64_t>(rng.below(12)) - 1;
            event.what = static_cast<EventClass>(rng.below(5));
            event.lane = static_cast<std::int32_t>(rng.below(3)) + (event.what == device ? 3 : 0);
            event.flags = static_cast<std::uint8_t>(rng.below(4) == 0 ? rng.below(256) : 0);
            if (!streams_wait) event.flags &= static_cast<std::uint8_t>(~event_flag::stream_wait);
        }
        std::sort(events.begin(), events.end(), [](const Random& a, const Random& b) {
            return a.start != b.start ? a.start < b.start : a.length > b.length;
        });
        Trace trace;
        for (const auto& event : events)
            trace.add(event.what, event.lane, event.start, event.length, event.id, event.flags);
        for (auto& step : trace.step) step = static_cast<std::int32_t>(rng.below(4)) - 1;
        for (auto& identity : trace.identity) identity = static_cast<std::int32_t>(rng.below(6)) - 1;
        for (std::uint64_t w = rng.below(4); streams_wait && !events.empty() && w-- > 0;) {
            trace.known_source.push_back(static_cast<std::int32_t>(rng.below(events.size())));
            trace.known_target.push_back(static_cast<std::int32_t>(rng.below(events.size())));
        }
        exact += replays_as_recorded(trace.build());
    }
    expect(exact == rounds, "random traces replay as recorded");
}

/// Traces cut, doubled and littered at random: read or refused, never out of bounds.
void damaged_traces_do_no_harm() {
    const std::string good =
        R"({"deviceProperties":[{"name":"x"}],"traceEvents":[{"ph":"X","cat":"kernel","name":"a\"\u00e9\ud83d\ude00",)"
        R"("pid":0,"tid":"t","ts":1731600000000000.001,"dur":1e3,"args":{"stream":7,"correlation":"12","x":[{},[1,NaN]]}},)"
        R"({"ph":"M","name":"m","args":5}],"z":{"k":[true,null]}})";
    TraceReader whole;
    whole.feed(good);
    whole.finish();
    expect(whole.columns.start_ns.size() == 1 && whole.columns.correlation[0] == 12, "a trace is read");
    expect(whole.columns.start_ns[0] == 1731600000000000001 && whole.columns.duration_ns[0] == 1'000'000,
           "nanoseconds are exact");
    Rng rng(11);
    int read = 0, refused = 0;
    for (int round = 0; round < 20'000; ++round) {
        std::string text = good;
        for (std::uint64_t n = 1 + rng.below(4); n-- > 0 && !text.empty();) {
            const auto at = rng.below(text.size());
            if (rng.below(2) == 0) text[at] = "{}[]\",:\\0e\xff "[rng.below(12)];
            else text.erase(at, rng.below(20));
        }
        try {
            TraceReader reader;
            const auto piece = 1 + rng.below(50);
            for (std::size_t at = 0; at < text.size(); at += piece)
                reader.feed(std::string_view(text).substr(at, piece));
            reader.finish();
            ++read;
        } catch (const std::invalid_argument&) {
            ++refused;
        }
    }
    expect(read > 0 && refused > 0, "some damage is seen, some does not matter");
}

}  // namespace

void trace_tests() {
    traces_become_graphs();
    random_traces_replay_as_recorded();
    damaged_traces_do_no_harm();
}

}  // namespace gnomon::tests
