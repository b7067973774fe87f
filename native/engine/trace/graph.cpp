#include "engine/trace/graph.hpp"

#include <algorithm>
#include <limits>
#include <optional>

#include "engine/index.hpp"
#include "engine/trace/stream_waits.hpp"

namespace gnomon {
namespace {

using Index = std::int32_t;
using Ns = std::int64_t;
constexpr Index none = -1;

/// A silent host gap shorter than this is the thread's own time, not a wait for another thread.
constexpr Ns shortest_thread_wait = 20'000;
/// How long after another's end a start may come and still count as waiting for it.
constexpr Ns reaction = 50'000;
/// A launch call this much longer than the median one was blocked by a full queue.
constexpr Ns blocked_factor = 10;
constexpr Ns shortest_block = 100'000;
/// A launch is shorter than this; what claims to be longer must not overflow what is inferred from it.
constexpr Ns longest_launch = Ns{1} << 40;
/// Host and device clocks may disagree by so much, and a kernel seem to start before its launch.
constexpr Ns clock_jitter = 10'000;
/// How many exchanges one silence may end.
constexpr int most_awaited = 16;

/// A device task shorter than this needs next to nothing of the device, as copies do.
constexpr Ns tiny_task = 5'000;

/// A stretch of a thread inside one innermost event, or inside none.
struct Piece {
    Ns start, end;
    Index owner;
};

class Builder {
public:
    explicit Builder(const TraceEvents& events) : in_(events) {}

    TraceGraph build() {
        sort_into_lanes();
        find_launches();
        for (Index lane = 0; lane < in_.host_lanes; ++lane) add_thread(lane);
        first_device_task_ = task_count();
        for (Index lane = in_.host_lanes; lane < in_.lanes; ++lane) add_device_lane(lane);
        tie_launches();
        tie_synchronise_calls();
        tie_threads();
        tie_streams();
        return std::move(out_);
    }

private:
    [[nodiscard]] EventClass class_of(Index event) const { return static_cast<EventClass>(in_.event_class[event]); }
    [[nodiscard]] bool has(Index event, std::uint8_t flag) const { return (in_.flags[event] & flag) != 0; }
    [[nodiscard]] Index task_count() const { return static_cast<Index>(out_.start.size()); }
    [[nodiscard]] std::span<const Index> events_of(Index lane) const {
        return {by_lane_.data() + lane_begin_[lane], by_lane_.data() + lane_begin_[lane + 1]};
    }

    void sort_into_lanes() {
        const auto n = static_cast<Index>(in_.start.size());
        lane_begin_.assign(index(in_.lanes) + 1, 0);
        for (Index e = 0; e < n; ++e)
            if (class_of(e) != EventClass::ignored) ++lane_begin_[in_.lane[e] + 1];
        for (Index lane = 0; lane < in_.lanes; ++lane) lane_begin_[lane + 1] += lane_begin_[lane];
        by_lane_.resize(index(lane_begin_[in_.lanes]));
        auto next = lane_begin_;
        for (Index e = 0; e < n; ++e)
            if (class_of(e) != EventClass::ignored) by_lane_[next[in_.lane[e]]++] = e;
    }

    // -- who launched what -------------------------------------------------------------------

    void find_launches() {
        const auto n = static_cast<Index>(in_.start.size());
        for (Index e = 0; e < n; ++e)
            if (class_of(e) == EventClass::device && in_.correlation[e] > 0) device_events_.push_back(e);
        std::stable_sort(device_events_.begin(), device_events_.end(),
                         [&](Index a, Index b) { return in_.correlation[a] < in_.correlation[b]; });
        std::vector<Ns> lengths;
        for (Index e = 0; e < n; ++e)
            if (class_of(e) == EventClass::call && !launched_by_call(e).empty())
                lengths.push_back(in_.end[e] - in_.start[e]);
        if (!lengths.empty()) {
            const auto middle = lengths.begin() + static_cast<std::ptrdiff_t>(lengths.size() / 2);
            std::nth_element(lengths.begin(), middle, lengths.end());
            median_launch_ = std::min(*middle, longest_launch);
        }
        launch_task_.assign(in_.start.size(), none);
        device_task_.assign(in_.start.size(), none);
        serial_end_.assign(in_.start.size(), 0);
        lane_ends_.resize(index(in_.lanes));
        is_exchange_.assign(index(in_.lanes), 0);
        for (Index lane = in_.host_lanes; lane < in_.lanes; ++lane) {
            const auto events = events_of(lane);
            for (std::size_t i = 0; i < events.size(); ++i) {
                lane_ends_[lane].push_back(serial_end_[events[i]] = end_on_lane(events, i));
                is_exchange_[lane] |= has(events[i], event_flag::host_waits);
            }
        }
    }

    /// What was over before an instant was not launched then, whatever the clocks.
    [[nodiscard]] bool all_end_after(std::span<const Index> events, Ns instant) const {
        return std::all_of(events.begin(), events.end(), [&](Index e) { return serial_end_[e] >= instant; });
    }

    /// Overlap on one stream (dependent launch, clock jitter) is cut: a lane is serial.
    [[nodiscard]] Ns end_on_lane(std::span<const Index> events, std::size_t i) const {
        const Ns end = in_.end[events[i]];
        return i + 1 < events.size() ? std::min(end, in_.start[events[i + 1]]) : end;
    }

    [[nodiscard]] std::span<const Index> launched_by_call(Index call) const {
        const Ns correlation = in_.correlation[call];
        if (correlation <= 0) return {};
        const auto below = [&](Index e, Ns wanted) { return in_.correlation[e] < wanted; };
        const auto first = std::lower_bound(device_events_.begin(), device_events_.end(), correlation, below);
        auto last = first;
        while (last != device_events_.end() && in_.correlation[*last] == correlation) ++last;
        return {first, last};
    }

    [[nodiscard]] Ns first_start(std::span<const Index> launched) const {
        Ns first = std::numeric_limits<Ns>::max();
        for (const Index e : launched) first = std::min(first, in_.start[e]);
        return first;
    }

    // -- host --------------------------------------------------------------------------------

    /// Pieces that touch and never overlap. A call that is all covered, or recorded without
    /// length, still gets an empty piece: something may be waiting for it.
    void flatten(std::span<const Index> events) {
        pieces_.clear();
        stack_.clear();
        Ns cursor = 0;
        const auto emit = [&](Ns until, Index owner) {
            if (until <= cursor) return;
            pieces_.push_back({cursor, until, owner});
            if (owner != none) seen_[owner] = 1;
            cursor = until;
        };
        const auto close = [&] {
            const Index event = stack_.back();
            stack_.pop_back();
            emit(in_.end[event], event);
            if (class_of(event) == EventClass::call && !seen_[event]) pieces_.push_back({cursor, cursor, event});
        };
        for (const Index event : events) {
            while (!stack_.empty() && in_.end[stack_.back()] <= in_.start[event]) close();
            emit(in_.start[event], stack_.empty() ? none : stack_.back());
            stack_.push_back(event);
        }
        while (!stack_.empty()) close();
    }

    /// The piece in which each call does its work: others may be nested inside the call. A launch
    /// acts in the piece in which its first task starts, or in its last; others in their longest.
    void choose_acting_pieces() {
        for (std::size_t i = 0; i < pieces_.size(); ++i) {
            const Index call = pieces_[i].owner;
            if (call == none || class_of(call) != EventClass::call) continue;
            const auto number = static_cast<Index>(i);
            if (acting_[call] == none) {
                acting_[call] = number;
                continue;
            }
            const Piece& before = pieces_[acting_[call]];
            const auto launched = launched_by_call(call);
            const bool is_better = launched.empty() ? pieces_[i].end - pieces_[i].start > before.end - before.start
                                                    : before.end < first_start(launched);
            if (is_better) acting_[call] = number;
        }
    }

    void add_thread(Index lane) {
        if (seen_.empty()) {
            seen_.assign(in_.start.size(), 0);
            acting_.assign(in_.start.size(), none);
        }
        flatten(events_of(lane));
        choose_acting_pieces();
        for (std::size_t i = 0; i < pieces_.size(); ++i) {
            const Piece& piece = pieces_[i];
            if (piece.owner == none || class_of(piece.owner) == EventClass::mark) {
                add(lane, piece.start, piece.end, TaskKind::gap, none);
            } else if (acting_[piece.owner] == static_cast<Index>(i)) {
                add_call(lane, piece);
            } else {
                const bool is_call = class_of(piece.owner) == EventClass::call;
                add(lane, piece.start, piece.end, is_call ? TaskKind::runtime : TaskKind::host, piece.owner);
            }
        }
    }

    void add_call(Index lane, Piece piece) {
        const Index call = piece.owner;
        if (has(call, event_flag::synchronises)) {
            syncs_.push_back(add(lane, piece.start, piece.end, TaskKind::sync, call));
            return;
        }
        const auto launched = launched_by_call(call);
        if (launched.empty()) {
            add(lane, piece.start, piece.end, TaskKind::runtime, call);
            return;
        }
        // The task may start before the call returns: only what came before can hold it back.
        const Ns first = first_start(launched);
        if (first < piece.start) {
            ++out_.before_launch;
            // By a little it is the clocks: it was launched as the call began.
            const bool is_jitter = piece.start - first <= clock_jitter && all_end_after(launched, piece.start);
            const Index task = add(lane, piece.start, is_jitter ? piece.start : piece.end, TaskKind::launch, call);
            if (!is_jitter) return;
            if (piece.end > piece.start) add(lane, piece.start, piece.end, TaskKind::runtime, call);
            for (const Index event : launched) launch_task_[event] = task;
            return;
        }
        if (const auto copied = blocking_copy(piece, launched)) {
            add_blocking_copy(lane, piece, launched, *copied);
            return;
        }
        const auto room = room_made(piece, launched.front());
        if (room) {
            add(lane, piece.start, room->second, TaskKind::blocked, call, 0);
            piece.start = room->second;
        }
        const Ns cut = std::min(std::max(first, piece.start), piece.end);
        const Index task = add(lane, piece.start, cut, TaskKind::launch, call);
        if (room) queue_waits_.emplace_back(room->first, task);
        if (cut < piece.end) add(lane, cut, piece.end, TaskKind::runtime, call);
        for (const Index event : launched) launch_task_[event] = task;
    }

    /// The copy that a call waited for: one that outlasts its copy, and takes longer than asking.
    [[nodiscard]] std::optional<Index> blocking_copy(const Piece& piece, std::span<const Index> launched) const {
        const Index last = *std::max_element(launched.begin(), launched.end(),
                                             [&](Index a, Index b) { return in_.end[a] < in_.end[b]; });
        if (in_.end[last] > piece.end) return {};
        if (has(piece.owner, event_flag::copies)) return last;
        const bool is_long = piece.end - piece.start >= std::max(shortest_thread_wait, 3 * median_launch_);
        if (!is_long || !has(last, event_flag::copies)) return {};
        return last;
    }

    /// A short launch, then a wait for the copy.
    void add_blocking_copy(Index lane, const Piece& piece, std::span<const Index> launched, Index copied) {
        const Ns cut = std::min(first_start(launched), piece.start + median_launch_);
        const Index task = add(lane, piece.start, cut, TaskKind::launch, piece.owner);
        for (const Index event : launched) launch_task_[event] = task;
        const Index wait = add(lane, cut, piece.end, TaskKind::sync, piece.owner);
        copy_waits_.emplace_back(copied, wait);
    }

    /// The device event whose end let a blocked launch go on, and when.
    [[nodiscard]] std::optional<std::pair<Index, Ns>> room_made(const Piece& piece, Index event) const {
        if (piece.end - piece.start < std::max(shortest_block, blocked_factor * median_launch_)) return {};
        const Index lane = in_.lane[event];
        const auto& ends = lane_ends_[lane];
        // Before the call's very end: what follows the call must not come before what it waits for.
        const auto at = std::lower_bound(ends.begin(), ends.end(), piece.end) - ends.begin() - 1;
        if (at < 0 || ends[at] <= piece.start || in_.start[event] <= ends[at]) return {};
        return std::pair{events_of(lane)[at], ends[at]};
    }

    // -- device ------------------------------------------------------------------------------

    void add_device_lane(Index lane) {
        const auto events = events_of(lane);
        Ns free = 0;
        for (std::size_t i = 0; i < events.size(); ++i) {
            const Index event = events[i];
            const Ns end = serial_end_[event];
            if (end < in_.end[event]) ++out_.overlapping;
            const Index launch = launch_task_[event];
            const Ns ready = std::max(free, launch == none ? 0 : out_.end[launch]);
            // Not before its launch, whatever the clocks: it ends as recorded, a little shorter.
            const Ns start = std::max(in_.start[event], ready);
            add(lane, ready, start, TaskKind::latency, none);
            out_.launched_by.back() = launch;
            device_task_[event] = add(lane, start, end, TaskKind::device, event);
            out_.launched_by.back() = launch;
            free = end;
        }
    }

    // -- what ties lanes together ------------------------------------------------------------

    void tie_launches() {
        for (Index task = first_device_task_ + 1; task < task_count(); task += 2)
            if (out_.launched_by[task] != none) edge(out_.launched_by[task], task - 1, EdgeKind::launch);
        for (const auto& [event, target] : queue_waits_) edge(device_task_[event], target, EdgeKind::queue);
        for (const auto& [event, wait] : copy_waits_) {
            if (launch_task_[event] != wait - 1) continue;  // another call claims to have launched it
            const Index copied = device_task_[event];
            edge(copied, wait, EdgeKind::event);
            out_.sized[wait] = out_.end[wait] - std::max(out_.start[wait], out_.end[copied]);
        }
    }

    /// When each prefix of a lane had been issued, and when its last task ended.
    struct Issued {
        std::vector<Ns> by;
        std::vector<Ns> end;
    };

    [[nodiscard]] std::vector<Issued> issue_order() const {
        std::vector<Issued> issued(index(in_.lanes));
        for (Index lane = in_.host_lanes; lane < in_.lanes; ++lane) {
            Ns latest = 0;
            for (const Index event : events_of(lane)) {
                const Index launch = launch_task_[event];
                latest = std::max(latest, launch == none ? 0 : out_.end[launch]);
                issued[lane].by.push_back(latest);
                issued[lane].end.push_back(out_.end[device_task_[event]]);
            }
        }
        return issued;
    }

    void tie_synchronise_calls() {
        if (syncs_.empty()) return;
        const auto issued = issue_order();
        std::vector<std::pair<Index, Ns>> held;
        const auto launches = lanes_by_thread();
        for (const Index task : syncs_) {
            const Index call = out_.event[task];
            const Ns begin = out_.start[task], end = out_.end[task];
            const bool of_device = has(call, event_flag::of_device);
            const auto& own = launches[out_.lane[task]];
            held.clear();
            for (Index lane = in_.host_lanes; lane < in_.lanes; ++lane) {
                // What CPU backends exchange is not the device's; and a thread that launched onto
                // some streams waits for one of those.
                if (is_exchange_[lane] || (!of_device && !own.empty() && !own[lane])) continue;
                const auto& by = issued[lane].by;
                const auto at = std::upper_bound(by.begin(), by.end(), begin) - by.begin() - 1;
                if (at >= 0 && issued[lane].end[at] <= end) held.emplace_back(lane, issued[lane].end[at]);
            }
            if (held.empty() || has(call, event_flag::of_event)) {
                tie_event_wait(task, issued);
                continue;
            }
            if (!of_device) {
                const auto last = std::max_element(held.begin(), held.end(),
                                                   [](const auto& a, const auto& b) { return a.second < b.second; });
                held = {*last};
            }
            Ns latest = begin;
            for (const auto& [lane, lane_end] : held) {
                out_.wait_task.push_back(task);
                out_.wait_lane.push_back(lane);
                latest = std::max(latest, lane_end);
            }
            out_.sized[task] = end - latest;
        }
    }

    /// Which device lanes each thread launched onto; none for a thread that launched nothing.
    [[nodiscard]] std::vector<std::vector<std::uint8_t>> lanes_by_thread() const {
        std::vector<std::vector<std::uint8_t>> found(index(in_.host_lanes));
        for (Index task = first_device_task_ + 1; task < task_count(); task += 2) {
            const Index launch = out_.launched_by[task];
            if (launch == none) continue;
            auto& own = found[out_.lane[launch]];
            if (own.empty()) own.assign(index(in_.lanes), 0);
            own[out_.lane[task]] = 1;
        }
        return found;
    }

    /// An event wait: for the device task that ended last inside the call, if any did, of those that
    /// had been asked for: what another thread asked for meanwhile is none of the call's business.
    void tie_event_wait(Index task, const std::vector<Issued>& issued) {
        const Ns begin = out_.start[task], end = out_.end[task];
        std::pair<Ns, Index> last{begin, none};
        for (Index lane = in_.host_lanes; lane < in_.lanes; ++lane) {
            if (is_exchange_[lane]) continue;
            const auto& [by, ends] = issued[lane];
            const auto asked_for = std::upper_bound(by.begin(), by.end(), begin) - by.begin();
            const auto at = std::upper_bound(ends.begin(), ends.begin() + asked_for, end) - ends.begin() - 1;
            if (at >= 0 && ends[at] > begin) last = std::max(last, {ends[at], device_task_[events_of(lane)[at]]});
        }
        if (last.second == none) return;
        edge(last.second, task, EdgeKind::event);
        out_.sized[task] = end - last.first;
    }

    void tie_threads() {
        std::vector<std::pair<Ns, Index>> working, awaited;
        for (Index task = 0; task < first_device_task_; ++task)
            // A blocked call does nothing that another thread could wait for.
            if (kind_of(task) != TaskKind::gap && kind_of(task) != TaskKind::blocked)
                working.emplace_back(out_.end[task], task);
        for (Index task = first_device_task_ + 1; task < task_count(); task += 2)
            if (has(out_.event[task], event_flag::host_waits)) awaited.emplace_back(out_.end[task], task);
        std::sort(working.begin(), working.end());
        std::sort(awaited.begin(), awaited.end());
        for (Index task = 0; task < first_device_task_; ++task) {
            const Ns begin = out_.start[task], end = out_.end[task];
            if (kind_of(task) != TaskKind::gap || end - begin < shortest_thread_wait) continue;
            // The longer the silence, the longer it may take to come back from it.
            const Ns since = std::max(begin + 1, end - std::max(reaction, (end - begin) / 5));
            Ns latest = begin;
            // Everything a thread may wait for that ended as the silence did; of several waited
            // for together (a send and a receive) all count.
            int count = 0;
            for (auto at = std::lower_bound(awaited.begin(), awaited.end(), std::pair{end, none});
                 at != awaited.begin() && (at - 1)->first >= since && count < most_awaited; --at) {
                const Index launch = out_.launched_by[(at - 1)->second];
                if (launch != none && out_.end[launch] > begin) continue;  // asked for later
                edge((at - 1)->second, task, EdgeKind::thread);
                latest = std::max(latest, (at - 1)->first);
                ++count;
            }
            // The gap's own thread was silent: whatever ended inside it, ended on another. Not at
            // its very end: calls without length there could come to wait for one another.
            if (latest == begin) {
                const auto at = std::lower_bound(working.begin(), working.end(), std::pair{end, none});
                if (at != working.begin() && (at - 1)->first >= since) {
                    edge((at - 1)->second, task, EdgeKind::thread);
                    latest = (at - 1)->first;
                }
            }
            if (latest > begin) out_.sized[task] = end - latest;
        }
    }

    void tie_streams() {
        if (!in_.known_source.empty()) {
            tie_known_waits();
            return;
        }
        if (in_.lanes - in_.host_lanes < 2) return;
        const auto tasks = device_tasks();
        if (tasks.empty()) return;
        for (const auto& [source, target, confidence] : infer_stream_waits(tasks)) {
            const Index from = task_at(source), to = task_at(target);
            edge(from, to - 1, EdgeKind::stream);
            out_.sized[to - 1] = out_.start[to] - out_.end[from];
            out_.inferred_source.push_back(from);
            out_.inferred_target.push_back(to);
            out_.confidence.push_back(confidence);
        }
    }

    /// A device lane alternates between gaps and tasks.
    [[nodiscard]] Index task_at(Index number) const { return first_device_task_ + 2 * number + 1; }

    /// The device's tasks as the inference sees them; none when the host asked no stream to wait.
    [[nodiscard]] std::vector<DeviceTask> device_tasks() const {
        std::vector<Ns> wait_asked(in_.start.size(), -1);
        std::vector<std::uint8_t> recorded(in_.start.size(), 0);
        if (!mark_events(wait_asked, recorded)) return {};
        std::vector<DeviceTask> tasks;
        for (Index task = first_device_task_ + 1; task < task_count(); task += 2) {
            const Index event = out_.event[task], launch = out_.launched_by[task];
            DeviceTask seen;
            seen.lane = out_.lane[task];
            seen.start = out_.start[task];
            seen.end = out_.end[task];
            seen.ready = out_.start[task - 1];
            seen.asked = launch == none ? -1 : out_.start[launch];
            seen.wait_asked = wait_asked[event];
            // Before the window nobody saw what was recorded.
            seen.is_recorded = launch == none || recorded[event];
            seen.finds_room = has(event, event_flag::finds_room) || seen.end - seen.start < tiny_task;
            seen.identity = in_.identity.empty() ? -1 : in_.identity[event];
            seen.step = in_.step.empty() ? -1 : in_.step[event];
            tasks.push_back(seen);
        }
        return tasks;
    }

    /// Which device events were launched right after the host asked a stream to wait, and for which
    /// an event was recorded before the next launch; true when there are any of the first.
    bool mark_events(std::vector<Ns>& wait_asked, std::vector<std::uint8_t>& recorded) const {
        bool any_wait = false, any_record = false;
        for (Index lane = 0; lane < in_.host_lanes; ++lane) {
            Ns asked = -1;
            std::span<const Index> last;
            for (const Index event : events_of(lane)) {
                if (has(event, event_flag::stream_wait)) {
                    if (asked < 0) asked = in_.start[event];
                } else if (has(event, event_flag::event_record)) {
                    any_record = true;
                    for (const Index launched : last) recorded[launched] = 1;
                } else if (const auto launched = launched_by_call(event); !launched.empty()) {
                    any_wait |= asked >= 0;
                    for (const Index one : launched) wait_asked[one] = asked;
                    last = launched;
                    asked = -1;
                }
            }
        }
        // Many profilers leave record calls out: then any end may have been recorded.
        if (!any_record) std::fill(recorded.begin(), recorded.end(), std::uint8_t{1});
        return any_wait;
    }

    void tie_known_waits() {
        for (std::size_t i = 0; i < in_.known_source.size(); ++i) {
            const Index source = device_task_[in_.known_source[i]];
            const Index target = device_task_[in_.known_target[i]];
            // What lies on one lane waits for what is before it anyway.
            if (source == none || target == none || out_.lane[source] == out_.lane[target]) continue;
            if (out_.end[source] > out_.start[target]) {
                ++out_.refuted;
                continue;
            }
            const Index gap = target - 1;
            edge(source, gap, EdgeKind::stream);
            out_.sized[gap] = std::min(out_.sized[gap], out_.start[target] - out_.end[source]);
        }
    }

    // -- the columns -------------------------------------------------------------------------

    [[nodiscard]] TaskKind kind_of(Index task) const { return static_cast<TaskKind>(out_.kind[task]); }

    Index add(Index lane, Ns start, Ns end, TaskKind kind, Index event, Ns sized = -1) {
        out_.lane.push_back(lane);
        out_.event.push_back(event);
        out_.start.push_back(start);
        out_.end.push_back(end);
        out_.sized.push_back(sized < 0 ? end - start : sized);
        out_.kind.push_back(static_cast<std::uint8_t>(kind));
        out_.launched_by.push_back(none);
        return task_count() - 1;
    }

    void edge(Index source, Index target, EdgeKind kind) {
        out_.source.push_back(source);
        out_.target.push_back(target);
        out_.edge_kind.push_back(static_cast<std::uint8_t>(kind));
    }

    const TraceEvents& in_;
    TraceGraph out_;
    std::vector<Index> lane_begin_, by_lane_;
    std::vector<Index> device_events_;              // by correlation
    std::vector<std::vector<Ns>> lane_ends_;        // of a device lane's events, in order
    std::vector<Ns> serial_end_;                    // the same, by event
    std::vector<Index> launch_task_, device_task_;  // by event
    std::vector<Piece> pieces_;
    std::vector<Index> stack_, acting_;
    std::vector<std::uint8_t> seen_, is_exchange_;
    std::vector<Index> syncs_;
    std::vector<std::pair<Index, Index>> queue_waits_;  // event that made room, host task
    std::vector<std::pair<Index, Index>> copy_waits_;   // copy, host task that waits for it
    Ns median_launch_ = 0;
    Index first_device_task_ = 0;
};

}  // namespace

TraceGraph build_trace_graph(const TraceEvents& events) { return Builder(events).build(); }

}  // namespace gnomon
