#include "engine/graph.hpp"

#include <algorithm>

#include "engine/index.hpp"

namespace gnomon {

std::vector<Task> next_on_lane(const GraphView& graph) {
    std::vector<Task> next(graph.lane.size(), -1);
    std::vector<Task> last(index(graph.lanes), -1);
    for (std::size_t i = graph.lane.size(); i-- > 0;) {
        const auto lane = index(graph.lane[i]);
        next[i] = last[lane];
        last[lane] = static_cast<Task>(i);
    }
    return next;
}

bool is_forward(const GraphView& graph) {
    for (std::int64_t i = 0; i < graph.tasks(); ++i)
        for (const Task to : graph.successors(i))
            if (to <= i) return false;
    return true;
}

std::vector<Task> first_cycle(const GraphView& graph) {
    // Depth-first search with its own stack: graphs are far deeper than the machine's.
    enum : std::uint8_t { unseen, open, closed };
    const auto n = index(graph.tasks());
    const auto next = next_on_lane(graph);
    std::vector<std::uint8_t> state(n, unseen);
    struct Frame {
        Task task;
        std::int64_t position;  // -1: the lane successor comes first
    };
    std::vector<Frame> stack;
    for (std::size_t root = 0; root < n; ++root) {
        if (state[root] != unseen) continue;
        stack.push_back({static_cast<Task>(root), -1});
        state[root] = open;
        while (!stack.empty()) {
            Frame& frame = stack.back();
            const auto at = index(frame.task);
            const auto edges = graph.successors(frame.task);
            Task to = -1;
            if (frame.position < 0) {
                to = next[at];
            } else if (frame.position < static_cast<std::int64_t>(edges.size())) {
                to = edges[index(frame.position)];
            } else {
                state[at] = closed;
                stack.pop_back();
                continue;
            }
            ++frame.position;
            if (to < 0 || state[index(to)] == closed) continue;
            if (state[index(to)] == open) {
                std::vector<Task> cycle;
                auto from = std::find_if(stack.begin(), stack.end(), [to](const Frame& f) { return f.task == to; });
                for (; from != stack.end(); ++from) cycle.push_back(from->task);
                return cycle;
            }
            state[index(to)] = open;
            stack.push_back({to, -1});
        }
    }
    return {};
}

}  // namespace gnomon
