#include "engine/replay/samples.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "engine/index.hpp"
#include "engine/replay/hold_back.hpp"
#include "engine/replay/replay.hpp"
#include "engine/rng.hpp"

namespace gnomon {
namespace {

constexpr std::size_t batch_size = 8;
using Row = std::array<double, batch_size>;

/// Nearest whole number, ties to even, for |x| < 2^51. Unlike rint it needs no instruction beyond
/// the oldest x86-64 and goes through eight numbers at once.
inline double round_to_even(double x) {
    constexpr double shift = 6755399441055744.0;  // 1.5 * 2^52
    return (x + shift) - shift;
}

/// Tasks in an order in which each comes after what it waits for. Members of a rendezvous group
/// are neighbours and form one unit; everybody else is a unit alone.
struct Order {
    std::vector<Task> task;
    std::vector<std::int64_t> unit{0};           // where each unit begins, and the end
    std::vector<std::int64_t> before_offset{0};  // per place
    std::vector<std::int32_t> before;            // places that must have ended

    explicit Order(const GraphView& graph) {
        const auto next = next_on_lane(graph);
        find(graph, next);
        if (complete(graph)) tie(graph, next);
    }

    [[nodiscard]] bool complete(const GraphView& graph) const {
        return static_cast<std::int64_t>(task.size()) == graph.tasks();
    }

private:
    void close_unit() { unit.push_back(static_cast<std::int64_t>(task.size())); }

    void find(const GraphView& graph, const std::vector<Task>& next) {
        const std::int64_t n = graph.tasks();
        task.reserve(index(n));
        if (graph.group.empty() && is_forward(graph)) {
            for (std::int64_t i = 0; i < n; ++i) {
                task.push_back(static_cast<Task>(i));
                close_unit();
            }
            return;
        }
        std::vector<std::int32_t> missing(index(n), 0);
        for (const Task to : graph.edge_target) ++missing[index(to)];
        for (const Task to : next)
            if (to >= 0) ++missing[index(to)];
        const Groups groups(graph.group);
        std::vector<std::int32_t> absent(groups.size());
        for (std::size_t g = 0; g < groups.size(); ++g)
            absent[g] = static_cast<std::int32_t>(groups.of(static_cast<std::int64_t>(g)).size());
        std::vector<Task> ready;
        for (std::int64_t i = n; i-- > 0;)
            if (missing[index(i)] == 0) ready.push_back(static_cast<Task>(i));
        const auto place = [&](Task done) {
            task.push_back(done);
            const auto arrive = [&](Task to) {
                if (--missing[index(to)] == 0) ready.push_back(to);
            };
            for (const Task to : graph.successors(done)) arrive(to);
            if (next[index(done)] >= 0) arrive(next[index(done)]);
        };
        while (!ready.empty()) {
            const Task one = ready.back();
            ready.pop_back();
            const std::int32_t group = graph.group.empty() ? -1 : graph.group[index(one)];
            if (group < 0) {
                place(one);
            } else if (--absent[index(group)] > 0) {
                continue;
            } else {
                for (const Task member : groups.of(group)) place(member);
            }
            close_unit();
        }
    }

    void tie(const GraphView& graph, const std::vector<Task>& next) {
        const std::int64_t n = graph.tasks();
        std::vector<std::int32_t> where(index(n));
        for (std::size_t p = 0; p < task.size(); ++p) where[index(task[p])] = static_cast<std::int32_t>(p);
        before_offset.assign(index(n) + 1, 0);
        const auto each_tie = [&](auto&& use) {
            for (const Task from : task) {
                for (const Task to : graph.successors(from)) use(where[index(from)], where[index(to)]);
                if (const Task to = next[index(from)]; to >= 0) use(where[index(from)], where[index(to)]);
            }
        };
        each_tie([&](std::int32_t, std::int32_t to) { ++before_offset[index(to) + 1]; });
        for (std::size_t p = 1; p < before_offset.size(); ++p) before_offset[p] += before_offset[p - 1];
        before.resize(index(before_offset.back()));
        auto fill = before_offset;
        each_tie([&](std::int32_t from, std::int32_t to) { before[index(fill[index(to)]++)] = from; });
    }
};

/// Factors of eight samples: by cell, and by task where there is noise.
class Batch {
public:
    Batch(const GraphView& graph, const Stretch& stretch)
        : graph_(graph),
          stretch_(stretch),
          cell_(index(stretch.cells)),
          noise_(stretch.noise > 0.0 ? index(graph.tasks()) : 0) {}

    void load(std::size_t first, std::size_t samples) {
        for (std::size_t b = 0; b < batch_size; ++b) {
            // The last batch may be short: it plays its last sample again.
            const std::size_t sample = first + std::min(b, samples - 1);
            for (std::size_t c = 0; c < cell_.size(); ++c) cell_[c][b] = stretch_.factor[sample * cell_.size() + c];
            if (noise_.empty()) continue;
            Rng rng(stretch_.seed, stretch_.first + sample);
            for (Row& row : noise_) row[b] = std::exp(stretch_.noise * rng.normal());
        }
    }

    /// Durations of a task, rounded as numpy does.
    void durations(Task task, Row& out) const {
        const double planned = static_cast<double>(graph_.duration[index(task)]);
        const Row& by_cell = cell_[index(stretch_.cell[index(task)])];
        if (noise_.empty()) {
            for (std::size_t b = 0; b < batch_size; ++b) out[b] = round_to_even(planned * by_cell[b]);
            return;
        }
        const Row& own = noise_[index(task)];
        for (std::size_t b = 0; b < batch_size; ++b) out[b] = round_to_even(planned * (by_cell[b] * own[b]));
    }

    [[nodiscard]] std::size_t mark(Task task) const {
        return stretch_.mark.empty() ? 0 : index(stretch_.mark[index(task)]);
    }

private:
    const GraphView& graph_;
    const Stretch& stretch_;
    std::vector<Row> cell_, noise_;
};

void play(const Order& order, const Batch& batch, std::vector<Row>& end, std::vector<Row>& latest) {
    Row start, duration;
    for (std::size_t u = 0; u + 1 < order.unit.size(); ++u) {
        start.fill(0.0);
        const auto begin = index(order.unit[u]), stop = index(order.unit[u + 1]);
        const auto ties_end = index(order.before_offset[stop]);
        for (auto t = index(order.before_offset[begin]); t < ties_end; ++t) {
            const Row& row = end[index(order.before[t])];
            for (std::size_t b = 0; b < batch_size; ++b) start[b] = std::max(start[b], row[b]);
        }
        for (auto p = begin; p < stop; ++p) {
            batch.durations(order.task[p], duration);
            Row& row = end[p];
            for (std::size_t b = 0; b < batch_size; ++b) row[b] = start[b] + duration[b];
            Row& last = latest[batch.mark(order.task[p])];
            for (std::size_t b = 0; b < batch_size; ++b) last[b] = std::max(last[b], row[b]);
        }
    }
}

/// One sample of a graph with run-time waits: a replay of its own.
bool play_waits(GraphView graph, const Batch& batch, std::size_t sample, std::vector<std::int64_t>& duration,
                std::vector<Row>& latest) {
    Row row;
    for (std::size_t i = 0; i < duration.size(); ++i) {
        batch.durations(static_cast<Task>(i), row);
        duration[i] = static_cast<std::int64_t>(row[sample]);
    }
    graph.duration = duration;
    const Replay played = replay(graph, nullptr, nullptr, false);
    if (played.finished < graph.tasks()) return false;
    for (std::size_t i = 0; i < duration.size(); ++i) {
        const std::int64_t end = played.end.empty() ? played.start[i] + duration[i] : played.end[i];
        double& last = latest[batch.mark(static_cast<Task>(i))][sample];
        last = std::max(last, static_cast<double>(end));
    }
    return true;
}

}  // namespace

std::vector<std::int64_t> replay_samples(const GraphView& graph, const Stretch& stretch) {
    const std::size_t cells = index(stretch.cells), marks = index(stretch.marks);
    const std::size_t samples = cells == 0 ? 0 : stretch.factor.size() / cells;
    std::vector<std::int64_t> ends(samples * marks, 0);
    const bool waits = !graph.wait_task.empty();
    const Order order(waits ? GraphView{} : graph);
    if (!waits && !order.complete(graph)) return {};
    Batch batch(graph, stretch);
    std::vector<Row> end(waits ? 0 : index(graph.tasks())), latest(marks);
    std::vector<std::int64_t> duration(waits ? index(graph.tasks()) : 0);
    for (std::size_t first = 0; first < samples; first += batch_size) {
        const std::size_t count = std::min(batch_size, samples - first);
        batch.load(first, count);
        for (Row& row : latest) row.fill(0.0);
        if (waits) {
            for (std::size_t b = 0; b < count; ++b)
                if (!play_waits(graph, batch, b, duration, latest)) return {};
        } else {
            play(order, batch, end, latest);
        }
        for (std::size_t b = 0; b < count; ++b)
            for (std::size_t m = 0; m < marks; ++m)
                ends[(first + b) * marks + m] = static_cast<std::int64_t>(latest[m][b]);
    }
    return ends;
}

}  // namespace gnomon
