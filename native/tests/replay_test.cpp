#include "engine/replay/replay.hpp"

#include <algorithm>
#include <cmath>
#include <span>
#include <vector>

#include "engine/replay/samples.hpp"
#include "engine/rng.hpp"
#include "engine/timeline.hpp"
#include "tests/test.hpp"

namespace gnomon::tests {
namespace {

struct RandomGraph {
    std::vector<std::int32_t> lane, target, group, wait_task, wait_lane, resource;
    std::vector<std::int64_t> duration, offset{0}, capacity{1'000'000};
    std::vector<std::uint8_t> edge_kind, kind;
    static constexpr std::int32_t lanes = 5;

    explicit RandomGraph(Rng& rng) {
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

    [[nodiscard]] GraphView view(bool groups, bool waits) const {
        GraphView v{lane, duration, offset, target, edge_kind, lanes, {}, {}, {}, 0};
        if (groups) v.group = group;
        if (waits) {
            v.wait_task = wait_task;
            v.wait_lane = wait_lane;
        }
        return v;
    }
};

void replays_agree() {
    Rng rng(1);
    for (int round = 0; round < 300; ++round) {
        const RandomGraph graph(rng);
        const Limits plenty{graph.resource, {}, graph.capacity};
        const auto forward = replay(graph.view(false, false), nullptr, nullptr, true);
        const auto worklist = replay(graph.view(true, false), nullptr, nullptr, true);
        const auto events = replay(graph.view(false, false), &plenty, nullptr, true);
        expect(forward.method == "forward" && events.method == "events", "methods are chosen");
        expect(graph.lane.empty() || worklist.method == "worklist", "groups take the worklist");
        expect(forward.start == worklist.start && forward.start == events.start, "starts agree");
        expect(forward.cause == worklist.cause && forward.cause == events.cause, "causes agree");

        std::vector<double> factor(9, 1.5);
        const SlowDown slow{graph.kind, {}, factor, 3};
        const std::vector<std::int64_t> scarce{1};
        const Limits limits{graph.resource, {}, scarce};
        const auto all = replay(graph.view(true, true), &limits, &slow, true);
        // Random waits can wait for their own future; then the blocked tasks are named.
        const bool is_whole = all.finished == static_cast<std::int64_t>(graph.lane.size());
        expect(is_whole == all.stuck.empty(), "either all is played or the stuck are named");
        if (!all.start.empty()) {
            const auto path = follow_causes(all.cause, static_cast<std::int32_t>(all.start.size()) - 1);
            expect(!path.empty(), "a path has its end");
        }
    }
}

/// Two ranks of the same shape meet at every task: each waits for the slower of the two.
void ranks_meet() {
    Rng rng(3);
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
        const GraphView view{lane, duration, offset, target, kind, 2, group, {}, {}, -1};
        const auto worklist = replay(view, nullptr, nullptr, true);
        expect(worklist.makespan == expected, "every meeting waits for the slower");
        const std::vector<std::int32_t> resource(2 * n, 0);
        const std::vector<std::int64_t> capacity{2};
        const Limits pairs{resource, {}, capacity};
        const auto events = replay(view, &pairs, nullptr, true);
        expect(events.start == worklist.start, "a limit that never binds changes nothing");
    }
}

/// Many samples in one go end when each of them alone would.
void samples_end_as_replays() {
    Rng rng(5);
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
            const auto ends = replay_samples(view, {cell, factor, 3, mark, 2, 0.0, 0, 0});
            std::vector<std::int64_t> expected;
            bool is_whole = true;
            for (std::size_t s = 0; s < samples && is_whole; ++s) {
                std::vector<std::int64_t> duration(n);
                for (std::size_t i = 0; i < n; ++i)
                    duration[i] = std::llrint(static_cast<double>(graph.duration[i]) *
                                              factor[3 * s + static_cast<std::size_t>(cell[i])]);
                auto changed = view;
                changed.duration = duration;
                const auto one = replay(changed, nullptr, nullptr, false);
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
        const Stretch noisy{cell, ones, 3, {}, 1, 0.1, 9, 0};
        const auto whole = replay_samples(graph.view(false, false), noisy);
        auto later = noisy;
        later.first = samples - 1;
        later.factor = std::span<const double>(ones).first(3);
        const auto last = replay_samples(graph.view(false, false), later);
        expect(whole.back() == last.back(), "noise belongs to the sample, not to its batch");
    }
}

void cycles_are_found() {
    const std::vector<std::int32_t> lane{0, 1}, target{1, 0};
    const std::vector<std::int64_t> duration{1, 1}, offset{0, 1, 2};
    const std::vector<std::uint8_t> kind{0, 0};
    const GraphView loop{lane, duration, offset, target, kind, 2, {}, {}, {}, -1};
    expect(first_cycle(loop).size() == 2, "a cycle of two is found");
    expect(replay(loop, nullptr, nullptr, false).stuck.size() == 2, "a cycle is stuck");
}

/// A span of class 0 up to 10, one of class 1 from 5 to 15.
void classes_overlap() {
    const std::vector<std::int64_t> start{0, 5}, end{10, 15};
    const std::vector<std::uint8_t> span_class{0, 1};
    const auto time = class_overlap(start, end, span_class, {}, 1, 2);
    expect(time == std::vector<std::int64_t>({0, 5, 5, 5}), "each set of classes has its time");
}

}  // namespace

void replay_tests() {
    replays_agree();
    ranks_meet();
    samples_end_as_replays();
    cycles_are_found();
    classes_overlap();
}

}  // namespace gnomon::tests
