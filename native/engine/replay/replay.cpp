#include "engine/replay/replay.hpp"

#include <algorithm>

#include "engine/index.hpp"
#include "engine/replay/event_replay.hpp"
#include "engine/replay/hold_back.hpp"

namespace gnomon {
namespace {

/// The index order is topological: one pass, no queue, no in-degrees. False when it is not.
template <bool Causes>
bool replay_forward(const GraphView& graph, Replay& out) {
    std::vector<std::int64_t> free_at(index(graph.lanes), 0);
    std::vector<Task> last(Causes ? index(graph.lanes) : 0, -1);
    const std::int64_t n = graph.tasks();
    for (std::int64_t i = 0; i < n; ++i) {
        const std::size_t lane = index(graph.lane[index(i)]);
        const Task task = static_cast<Task>(i);
        hold_back_by_lane<Causes>(out, task, free_at[lane], Causes ? last[lane] : -1);
        const std::int64_t end = out.start[index(i)] + graph.duration[index(i)];
        free_at[lane] = end;
        if constexpr (Causes) last[lane] = task;
        for (const Task to : graph.successors(i)) {
            if (to <= task) return false;
            hold_back_by_edge<Causes>(out, to, end, task);
        }
        if (end > out.makespan) out.makespan = end;
    }
    out.finished = n;
    return true;
}

/// Any index order, and rendezvous: tasks are visited when their last predecessor has been.
template <bool Causes>
void replay_worklist(const GraphView& graph, Replay& out) {
    const std::int64_t n = graph.tasks();
    const auto next = next_on_lane(graph);
    std::vector<std::int32_t> missing(index(n), 0);
    for (const Task to : graph.edge_target) ++missing[index(to)];
    for (const Task to : next)
        if (to >= 0) ++missing[index(to)];

    const Groups groups(graph.group);
    std::vector<std::int32_t> absent(groups.size());
    for (std::size_t g = 0; g < groups.size(); ++g)
        absent[g] = static_cast<std::int32_t>(groups.of(static_cast<std::int64_t>(g)).size());

    std::vector<Task> ready;
    for (std::int64_t i = 0; i < n; ++i)
        if (missing[index(i)] == 0) ready.push_back(static_cast<Task>(i));

    const auto arrive = [&](Task task) {
        if (--missing[index(task)] == 0) ready.push_back(task);
    };
    const auto play = [&](Task task) {
        const std::int64_t end = out.start[index(task)] + graph.duration[index(task)];
        for (const Task to : graph.successors(task)) {
            hold_back_by_edge<Causes>(out, to, end, task);
            arrive(to);
        }
        if (const Task to = next[index(task)]; to >= 0) {
            hold_back_by_lane<Causes>(out, to, end, task);
            arrive(to);
        }
        out.makespan = std::max(out.makespan, end);
        ++out.finished;
    };
    while (!ready.empty()) {
        const Task task = ready.back();
        ready.pop_back();
        const std::int32_t group = graph.group.empty() ? -1 : graph.group[index(task)];
        if (group < 0) {
            play(task);
            continue;
        }
        if (--absent[index(group)] > 0) continue;
        const auto members = groups.of(group);
        const Task latest = latest_of(out, members);
        const std::int64_t start = out.start[index(latest)];
        for (const Task m : members) {
            if (out.start[index(m)] == start) continue;
            out.start[index(m)] = start;
            if constexpr (Causes) {
                out.cause[index(m)] = latest;
                out.reason[index(m)] = Reason::rendezvous;
            }
        }
        for (const Task m : members) play(m);
    }
    if (out.finished < n) {
        out.stuck_at = out.makespan;
        for (std::int64_t i = 0; i < n && out.stuck.size() < 8; ++i) {
            const std::int32_t group = graph.group.empty() ? -1 : graph.group[index(i)];
            if (missing[index(i)] > 0 || (group >= 0 && absent[index(group)] > 0))
                out.stuck.push_back(static_cast<Task>(i));
        }
    }
}

void prepare(const GraphView& graph, Replay& out, bool causes) {
    out = Replay{};
    out.start.assign(index(graph.tasks()), 0);
    if (causes) {
        out.cause.assign(index(graph.tasks()), -1);
        out.reason.assign(index(graph.tasks()), Reason::none);
    }
}

}  // namespace

Groups::Groups(std::span<const std::int32_t> group) {
    std::int32_t count = 0;
    for (const std::int32_t g : group) count = std::max(count, g + 1);
    offset.assign(index(count) + 1, 0);
    for (const std::int32_t g : group)
        if (g >= 0) ++offset[index(g) + 1];
    for (std::size_t g = 1; g < offset.size(); ++g) offset[g] += offset[g - 1];
    member.resize(index(offset.back()));
    auto fill = offset;
    for (std::size_t i = 0; i < group.size(); ++i)
        if (group[i] >= 0) member[index(fill[index(group[i])]++)] = static_cast<Task>(i);
}

Task latest_of(const Replay& out, std::span<const Task> members) {
    Task latest = members.front();
    for (const Task m : members)
        if (out.start[index(m)] > out.start[index(latest)]) latest = m;
    return latest;
}

Replay replay(const GraphView& graph, const Limits* limits, const SlowDown* slow, bool causes) {
    Replay out;
    prepare(graph, out, causes);
    if (!graph.wait_task.empty() || limits != nullptr || slow != nullptr) {
        out.method = "events";
        EventReplay(graph, limits, slow, causes, out).run();
        return out;
    }
    if (graph.group.empty()) {
        out.method = "forward";
        if (causes ? replay_forward<true>(graph, out) : replay_forward<false>(graph, out)) return out;
        prepare(graph, out, causes);
    }
    out.method = "worklist";
    causes ? replay_worklist<true>(graph, out) : replay_worklist<false>(graph, out);
    return out;
}

}  // namespace gnomon
