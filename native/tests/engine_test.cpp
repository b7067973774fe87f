// The engine under address and undefined-behaviour sanitizers, without Python. What the answers
// should be is tested from Python against a slow reference; here: the three replays agree, nothing
// reads or writes out of bounds, and the small parts keep their promises.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "engine/decima/gradient.hpp"
#include "engine/decima/network.hpp"
#include "engine/event_queue.hpp"
#include "engine/perfetto.hpp"
#include "engine/placement/placement.hpp"
#include "engine/queueing/queueing.hpp"
#include "engine/replay/replay.hpp"
#include "engine/replay/samples.hpp"
#include "engine/rng.hpp"
#include "engine/timeline.hpp"
#include "engine/trace/graph.hpp"
#include "engine/trace/reader.hpp"

namespace {

int passed = 0, failed = 0;

void expect(bool holds, const char* what) {
    if (holds) {
        ++passed;
    } else {
        ++failed;
        std::printf("FAILED: %s\n", what);
    }
}

struct RandomGraph {
    std::vector<std::int32_t> lane, target, group, wait_task, wait_lane, resource;
    std::vector<std::int64_t> duration, offset{0}, capacity{1'000'000};
    std::vector<std::uint8_t> edge_kind, kind;
    static constexpr std::int32_t lanes = 5;

    explicit RandomGraph(gnomon::Rng& rng) {
        const auto n = static_cast<std::int32_t>(rng.below(60));
        for (std::int32_t i = 0; i < n; ++i) {
            lane.push_back(static_cast<std::int32_t>(rng.below(lanes)));
            duration.push_back(static_cast<std::int64_t>(rng.below(9)));
            kind.push_back(static_cast<std::uint8_t>(rng.below(3)));
            resource.push_back(static_cast<std::int32_t>(rng.below(2)) - 1);
            group.push_back(-1);
            for (std::uint64_t e = rng.below(3); e-- > 0 && i + 1 < n;) {
                target.push_back(i + 1 + static_cast<std::int32_t>(rng.below(static_cast<std::uint64_t>(n - i - 1))));
                edge_kind.push_back(static_cast<std::uint8_t>(rng.below(2)));
            }
            offset.push_back(static_cast<std::int64_t>(target.size()));
            if (rng.below(8) == 0) {
                wait_task.push_back(i);
                wait_lane.push_back((lane.back() + 1) % lanes);
            }
        }
    }

    [[nodiscard]] gnomon::GraphView view(bool groups, bool waits) const {
        gnomon::GraphView v{lane, duration, offset, target, edge_kind, lanes, {}, {}, {}, 0};
        if (groups) v.group = group;
        if (waits) {
            v.wait_task = wait_task;
            v.wait_lane = wait_lane;
        }
        return v;
    }
};

void replays_agree() {
    gnomon::Rng rng(1);
    for (int round = 0; round < 300; ++round) {
        const RandomGraph graph(rng);
        const gnomon::Limits plenty{graph.resource, {}, graph.capacity};
        const auto forward = gnomon::replay(graph.view(false, false), nullptr, nullptr, true);
        const auto worklist = gnomon::replay(graph.view(true, false), nullptr, nullptr, true);
        const auto events = gnomon::replay(graph.view(false, false), &plenty, nullptr, true);
        expect(forward.method == "forward" && events.method == "events", "methods are chosen");
        expect(graph.lane.empty() || worklist.method == "worklist", "groups take the worklist");
        expect(forward.start == worklist.start && forward.start == events.start, "starts agree");
        expect(forward.cause == worklist.cause && forward.cause == events.cause, "causes agree");

        std::vector<double> factor(9, 1.5);
        const gnomon::SlowDown slow{graph.kind, {}, factor, 3};
        const std::vector<std::int64_t> scarce{1};
        const gnomon::Limits limits{graph.resource, {}, scarce};
        const auto all = gnomon::replay(graph.view(true, true), &limits, &slow, true);
        // Random waits can wait for their own future; then the blocked tasks are named.
        const bool is_whole = all.finished == static_cast<std::int64_t>(graph.lane.size());
        expect(is_whole == all.stuck.empty(), "either all is played or the stuck are named");
        if (!all.start.empty()) {
            const auto path = gnomon::follow_causes(all.cause, static_cast<std::int32_t>(all.start.size()) - 1);
            expect(!path.empty(), "a path has its end");
        }
    }
}

/// Two ranks of the same shape meet at every task: each waits for the slower of the two.
void ranks_meet() {
    gnomon::Rng rng(3);
    for (int round = 0; round < 100; ++round) {
        const auto n = 1 + rng.below(20);
        std::vector<std::int32_t> lane, group, target;
        std::vector<std::int64_t> duration, offset(2 * n + 1, 0);
        std::vector<std::uint8_t> kind;
        std::int64_t expected = 0;
        for (std::uint64_t i = 0; i < n; ++i) {
            const auto a = static_cast<std::int64_t>(rng.below(9)), b = static_cast<std::int64_t>(rng.below(9));
            for (const std::int32_t rank : {0, 1}) {
                lane.push_back(rank);
                group.push_back(static_cast<std::int32_t>(i));
                duration.push_back(rank == 0 ? a : b);
            }
            expected += std::max(a, b);
        }
        const gnomon::GraphView view{lane, duration, offset, target, kind, 2, group, {}, {}, -1};
        const auto worklist = gnomon::replay(view, nullptr, nullptr, true);
        expect(worklist.makespan == expected, "every meeting waits for the slower");
        const std::vector<std::int32_t> resource(2 * n, 0);
        const std::vector<std::int64_t> capacity{2};
        const gnomon::Limits pairs{resource, {}, capacity};
        const auto events = gnomon::replay(view, &pairs, nullptr, true);
        expect(events.start == worklist.start, "a limit that never binds changes nothing");
    }
}

/// Many samples in one go end when each of them alone would.
void samples_end_as_replays() {
    gnomon::Rng rng(5);
    for (int round = 0; round < 200; ++round) {
        const RandomGraph graph(rng);
        const auto n = graph.lane.size();
        std::vector<std::int32_t> cell, mark;
        for (std::size_t i = 0; i < n; ++i) {
            cell.push_back(static_cast<std::int32_t>(rng.below(3)));
            mark.push_back(static_cast<std::int32_t>(rng.below(2)));
        }
        const std::size_t samples = 1 + rng.below(20);
        std::vector<double> factor;
        for (std::size_t i = 0; i < 3 * samples; ++i) factor.push_back(0.5 + rng.uniform());
        for (const bool waits : {false, true}) {
            const auto view = graph.view(true, waits);
            const auto ends = gnomon::replay_samples(view, {cell, factor, 3, mark, 2, 0.0, 0, 0});
            std::vector<std::int64_t> expected;
            bool is_whole = true;
            for (std::size_t s = 0; s < samples && is_whole; ++s) {
                std::vector<std::int64_t> duration(n);
                for (std::size_t i = 0; i < n; ++i)
                    duration[i] = std::llrint(static_cast<double>(graph.duration[i]) *
                                              factor[3 * s + static_cast<std::size_t>(cell[i])]);
                auto changed = view;
                changed.duration = duration;
                const auto one = gnomon::replay(changed, nullptr, nullptr, false);
                is_whole = one.finished == static_cast<std::int64_t>(n);
                std::int64_t latest[2] = {0, 0};
                for (std::size_t i = 0; i < n && is_whole; ++i) {
                    const auto end = one.end.empty() ? one.start[i] + duration[i] : one.end[i];
                    latest[mark[i]] = std::max(latest[mark[i]], end);
                }
                expected.insert(expected.end(), latest, latest + 2);
            }
            expect(ends == (is_whole ? expected : std::vector<std::int64_t>{}),
                   "samples end as replays of their own do");
        }
        const std::vector<double> ones(3 * samples, 1.0);
        const gnomon::Stretch noisy{cell, ones, 3, {}, 1, 0.1, 9, 0};
        const auto whole = gnomon::replay_samples(graph.view(false, false), noisy);
        auto later = noisy;
        later.first = samples - 1;
        later.factor = std::span<const double>(ones).first(3);
        const auto last = gnomon::replay_samples(graph.view(false, false), later);
        expect(whole.back() == last.back(), "noise belongs to the sample, not to its batch");
    }
}

void cycles_are_found() {
    const std::vector<std::int32_t> lane{0, 1}, target{1, 0};
    const std::vector<std::int64_t> duration{1, 1}, offset{0, 1, 2};
    const std::vector<std::uint8_t> kind{0, 0};
    const gnomon::GraphView loop{lane, duration, offset, target, kind, 2, {}, {}, {}, -1};
    expect(gnomon::first_cycle(loop).size() == 2, "a cycle of two is found");
    expect(gnomon::replay(loop, nullptr, nullptr, false).stuck.size() == 2, "a cycle is stuck");
}

void events_leave_in_order() {
    gnomon::Rng rng(2);
    gnomon::EventQueue queue;
    for (int i = 0; i < 1000; ++i)
        queue.push(static_cast<std::int64_t>(rng.below(50)), static_cast<std::int64_t>(rng.below(50)));
    gnomon::Event last{-1, -1};
    bool ordered = true;
    while (!queue.empty()) {
        const auto next = queue.pop();
        ordered = ordered && !(next < last);
        last = next;
    }
    expect(ordered, "events leave by time, then key");
}

void streams_are_apart_and_fair() {
    gnomon::Rng a(7, 1), b(7, 2), again(7, 1);
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

/// Events of a trace as columns; threads are lanes 0 to 2, streams lanes 3 to 5.
struct Trace {
    std::vector<std::int64_t> start, end, correlation;
    std::vector<std::uint8_t> event_class, flags;
    std::vector<std::int32_t> lane, known_source, known_target, identity, step;

    void add(gnomon::EventClass what, std::int32_t on, std::int64_t begin, std::int64_t length, std::int64_t id = 0,
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
    [[nodiscard]] gnomon::TraceGraph build() const {
        return gnomon::build_trace_graph(
            {start, end, event_class, flags, lane, correlation, 3, 6, known_source, known_target, identity, step});
    }
};

/// Played again, a rebuilt trace ends as recorded; only a blocked call is charged to what made room.
bool replays_as_recorded(const gnomon::TraceGraph& built) {
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
    const gnomon::GraphView view{built.lane, built.sized, offset,          target,          kind,
                                 6,          {},          built.wait_task, built.wait_lane, 0};
    const auto played = gnomon::replay(view, nullptr, nullptr, false);
    if (played.finished != static_cast<std::int64_t>(n)) return false;
    for (std::size_t i = 0; i < n; ++i) {
        const bool is_blocked = built.kind[i] == static_cast<std::uint8_t>(gnomon::TaskKind::blocked);
        const auto end = played.end.empty() ? played.start[i] + built.sized[i] : played.end[i];
        if (!is_blocked && end != built.end[i]) return false;
    }
    return true;
}

void traces_become_graphs() {
    using enum gnomon::EventClass;
    Trace launched;
    launched.add(host, 0, 0, 100'000);
    launched.add(call, 0, 10'000, 5'000, 1);
    launched.add(device, 3, 20'000, 60'000, 1);
    launched.add(call, 0, 30'000, 60'000, 0, gnomon::event_flag::synchronises | gnomon::event_flag::of_device);
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
    using enum gnomon::EventClass;
    gnomon::Rng rng(13);
    int exact = 0;
    constexpr int rounds = 3'000;
    for (int round = 0; round < rounds; ++round) {
        const bool streams_wait = round % 2 == 0;
        // Of tasks without length at one instant, waits between streams may name each in turn.
        const std::int64_t shortest = streams_wait ? 1 : 0;
        struct Random {
            std::int64_t start, length, id;
            gnomon::EventClass what;
            std::int32_t lane;
            std::uint8_t flags;
        };
        std::vector<Random> events(rng.below(40));
        for (auto& event : events) {
            event.start = static_cast<std::int64_t>(rng.below(30) * (rng.below(2) == 0 ? 1'000 : 20'000));
            event.length = shortest + static_cast<std::int64_t>(rng.below(rng.below(2) == 0 ? 3 : 200) * 1'000);
            event.id = static_cast<std::int64_t>(rng.below(12)) - 1;
            event.what = static_cast<gnomon::EventClass>(rng.below(5));
            event.lane = static_cast<std::int32_t>(rng.below(3)) + (event.what == device ? 3 : 0);
            event.flags = static_cast<std::uint8_t>(rng.below(4) == 0 ? rng.below(256) : 0);
            if (!streams_wait) event.flags &= static_cast<std::uint8_t>(~gnomon::event_flag::stream_wait);
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
    gnomon::TraceReader whole;
    whole.feed(good);
    whole.finish();
    expect(whole.columns.start_ns.size() == 1 && whole.columns.correlation[0] == 12, "a trace is read");
    expect(whole.columns.start_ns[0] == 1731600000000000001 && whole.columns.duration_ns[0] == 1'000'000,
           "nanoseconds are exact");
    gnomon::Rng rng(11);
    int read = 0, refused = 0;
    for (int round = 0; round < 20'000; ++round) {
        std::string text = good;
        for (std::uint64_t n = 1 + rng.below(4); n-- > 0 && !text.empty();) {
            const auto at = rng.below(text.size());
            if (rng.below(2) == 0) text[at] = "{}[]\",:\\0e\xff "[rng.below(12)];
            else text.erase(at, rng.below(20));
        }
        try {
            gnomon::TraceReader reader;
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

void queues_and_writers_stay_in_bounds(const char* path) {
    const auto arrival = gnomon::poisson_arrivals(2000, 100.0, 3);
    const auto size = gnomon::exponential_sizes(2000, 80.0, 3);
    for (const auto rule : {gnomon::Discipline::fifo, gnomon::Discipline::lifo, gnomon::Discipline::shortest,
                            gnomon::Discipline::random}) {
        const auto served = gnomon::serve(arrival, size, 2, rule, 5, {});
        bool all = true;
        for (std::size_t i = 0; i < size.size(); ++i)
            all = all && served.start[i] >= arrival[i] && served.end[i] == served.start[i] + size[i];
        expect(all, "every job is served after it arrives");
    }
    gnomon::PerfettoWriter writer(path);
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

/// Random fleets and jobs: no server ever holds more than it has, every job runs as long as it
/// should.
void placements_stay_in_bounds() {
    std::mt19937_64 rng(5);
    const auto pick = [&](std::int64_t low, std::int64_t high) {
        return std::uniform_int_distribution<std::int64_t>(low, high)(rng);
    };
    for (int round = 0; round < 300; ++round) {
        const auto count = static_cast<std::size_t>(pick(1, 5));
        std::vector<std::int32_t> servers, room;
        std::vector<double> speed;
        std::vector<gnomon::Candidate> order;
        const bool sleep = pick(0, 1) == 1;
        for (std::size_t g = 0; g < count; ++g) {
            servers.push_back(static_cast<std::int32_t>(pick(1, pick(0, 9) == 0 ? 5000 : 70)));
            room.push_back(static_cast<std::int32_t>(pick(1, 130)));
            speed.push_back(static_cast<double>(pick(1, 8)) / 4);
            const auto group = static_cast<std::int32_t>(g);
            if (sleep && pick(0, 1) == 1) {
                order.push_back({group, gnomon::Part::asleep});
                order.push_back({group, gnomon::Part::awake});
            } else {
                order.push_back({group, gnomon::Part::any});
            }
        }
        std::shuffle(order.begin(), order.end(), rng);
        const auto most = *std::max_element(room.begin(), room.end());
        std::vector<std::int64_t> release, work;
        std::vector<std::int32_t> slots;
        for (int job = 0; job < 400; ++job) {
            release.push_back(pick(0, 2000));
            slots.push_back(static_cast<std::int32_t>(pick(1, most)));
            work.push_back(pick(0, 3000));
        }
        std::sort(release.begin(), release.end());
        const auto placed = gnomon::place({servers, room, speed}, order, release, slots, work, sleep);
        bool right = true;
        std::map<std::pair<std::int32_t, std::int32_t>, std::map<std::int64_t, std::int64_t>> changes;
        for (std::size_t job = 0; job < release.size(); ++job) {
            const auto g = static_cast<std::size_t>(placed.group[job]);
            right &= placed.start[job] >= release[job] && placed.server[job] < servers[g];
            right &= placed.end[job] - placed.start[job] == std::llround(static_cast<double>(work[job]) / speed[g]);
            auto& own = changes[{placed.group[job], placed.server[job]}];
            own[placed.start[job]] += slots[job];
            own[placed.end[job]] -= slots[job];
        }
        for (const auto& [where, steps] : changes) {
            std::int64_t held = 0;
            for (const auto& [time, change] : steps) {
                held += change;
                right &= held >= 0 && held <= room[static_cast<std::size_t>(where.first)];
            }
        }
        for (std::size_t i = 0; i < placed.awake_from.size(); ++i) {
            right &= placed.awake_from[i] <= placed.awake_until[i];
        }
        expect(right, "a placement keeps within its servers");
    }
    const std::vector<std::int64_t> time{0, 10, 20, 30}, early{0, 3}, late{15, 3}, length{5, 20};
    const std::vector<double> area{0.0, 50.0, 60.0, 90.0};
    const auto starts = gnomon::cleanest_starts(time, area, early, late, length);
    expect(starts[0] == 10 && starts[1] == 3, "the cleanest start");
}

/// Jobs whose nodes have up to three children, all later ones.
struct RandomJobs {
    std::vector<std::int32_t> job_first{0}, child_first{0}, child, height, ready;
    std::vector<float> executors, work, tasks;

    explicit RandomJobs(gnomon::Rng& rng) {
        for (std::uint64_t jobs = rng.below(40); jobs-- > 0;) {
            const auto base = work.size(), nodes = static_cast<std::size_t>(rng.below(30));
            for (std::size_t i = 0; i < nodes; ++i) {
                for (std::uint64_t e = rng.below(4); e-- > 0 && i + 1 < nodes;) {
                    child.push_back(static_cast<std::int32_t>(base + i + 1 + rng.below(nodes - i - 1)));
                }
                child_first.push_back(static_cast<std::int32_t>(child.size()));
                work.push_back(static_cast<float>(rng.uniform() * 1e6));
                tasks.push_back(static_cast<float>(rng.below(500)));
                if (rng.below(4) == 0) ready.push_back(static_cast<std::int32_t>(base + i));
            }
            height.resize(work.size());
            for (std::size_t i = work.size(); i-- > base;) {
                for (auto e = child_first[i]; e < child_first[i + 1]; ++e) {
                    const auto below = static_cast<std::size_t>(child[static_cast<std::size_t>(e)]);
                    height[i] = std::max(height[i], height[below] + 1);
                }
            }
            executors.push_back(static_cast<float>(rng.below(50)));
            job_first.push_back(static_cast<std::int32_t>(work.size()));
        }
    }

    [[nodiscard]] gnomon::DecimaView view(std::int32_t source) const {
        return {job_first, executors, source, 3.0F, work, tasks, child_first, child, height, ready};
    }
};

bool is_distribution(std::span<const float> p) {
    double sum = 0.0;
    for (const float x : p) {
        if (!(x >= 0.0F && x <= 1.0F)) return false;
        sum += static_cast<double>(x);
    }
    return p.empty() || std::abs(sum - 1.0) < 1e-5;
}

/// Views of changing size through one network: what an earlier one left behind changes nothing.
void decima_stays_in_bounds() {
    gnomon::Rng rng(11);
    std::vector<float> parameters(gnomon::Decima::parameter_count);
    for (float& p : parameters) p = static_cast<float>(rng.uniform() - 0.5);
    gnomon::Decima kept(parameters);
    gnomon::DecimaGradient gradient(parameters);
    for (int round = 0; round < 60; ++round) {
        const RandomJobs random(rng);
        const auto jobs = static_cast<std::int32_t>(random.executors.size());
        const auto view = random.view(round % 3 == 0 ? jobs - 1 : -1);
        gnomon::Decima fresh(parameters);
        const auto p = kept.stage_probabilities(view), q = fresh.stage_probabilities(view);
        expect(p.size() == random.ready.size() && is_distribution(p), "stages have probabilities");
        expect(std::equal(p.begin(), p.end(), q.begin(), q.end()), "a used network answers as a fresh one");
        if (jobs == 0) continue;
        const auto job = static_cast<std::int32_t>(rng.below(static_cast<std::uint64_t>(jobs)));
        const auto highest = static_cast<std::int32_t>(rng.below(101));
        const auto limits = kept.limit_probabilities(job, 1, highest);
        expect(limits.size() == static_cast<std::size_t>(highest) && is_distribution(limits),
               "limits have probabilities");
        if (p.empty() || highest == 0) continue;
        const auto chosen = static_cast<std::int32_t>(rng.below(p.size()));
        gradient.add(view, {chosen, job, 1, 1, highest}, 0.5F, 0.1F);
    }
    const auto sum = gradient.sum();
    expect(sum.size() == parameters.size() &&
               std::all_of(sum.begin(), sum.end(), [](double x) { return std::isfinite(x); }),
           "a gradient of numbers");
    expect(std::any_of(sum.begin(), sum.end(), [](double x) { return x != 0.0; }), "a gradient that points somewhere");
    bool refused = false;
    try {
        const gnomon::Decima short_of_one{std::span<const float>(parameters).first(parameters.size() - 1)};
    } catch (const std::invalid_argument&) {
        refused = true;
    }
    expect(refused, "a network needs all its parameters");
}

}  // namespace

int main() {
    replays_agree();
    ranks_meet();
    samples_end_as_replays();
    cycles_are_found();
    events_leave_in_order();
    streams_are_apart_and_fair();
    traces_become_graphs();
    random_traces_replay_as_recorded();
    damaged_traces_do_no_harm();
    queues_and_writers_stay_in_bounds("/dev/null");
    placements_stay_in_bounds();
    decima_stays_in_bounds();
    std::printf("native: %d passed, %d failed\n", passed, failed);
    return failed == 0 ? 0 : 1;
}
