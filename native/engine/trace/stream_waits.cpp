#include "engine/trace/stream_waits.hpp"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

namespace gnomon {
namespace {

using Index = std::int32_t;
using Ns = std::int64_t;

/// A stream cannot see another's event sooner than this (about 1.3 us on an H200).
constexpr Ns soonest = 800;
/// A start this soon after an end is an answer to it.
constexpr Ns prompt = 4'000;
/// Below this the stream's own tasks or the launch explain the start as well.
constexpr Ns shortest_wait = 2'000;
/// How long an event may take to be seen while the device is busy.
constexpr Ns slow_event = 10'000;
constexpr Ns slowest_event = 20'000;
/// Starts closer than this have no order.
constexpr Ns simultaneous = 500;
/// How many starts before and after are looked at; more than a device has streams.
constexpr Index neighbours = 60;
/// With more candidates than this the times tell nothing.
constexpr std::size_t most_candidates = 32;
constexpr double least_confidence = 0.25;

/// A target in one step: which sources would explain its start.
struct Instance {
    Index target;
    bool is_held;       // its start is not explained by its own stream and launch
    bool is_overtaken;  // a full device alone does not explain it either
    std::vector<Index> candidates;
};

class Inference {
public:
    explicit Inference(std::span<const DeviceTask> tasks) : tasks_(tasks) {
        by_start_ = order([&](Index a, Index b) { return tasks_[a].start < tasks_[b].start; });
        by_end_ = order([&](Index a, Index b) { return tasks_[a].end < tasks_[b].end; });
        for (const Index task : by_start_)
            if (!tasks_[task].finds_room) turns_.push_back(task);
        for (Index task = 0; task < size(); ++task)
            if (tasks_[task].identity >= 0 && tasks_[task].step >= 0)
                known_[{tasks_[task].identity, tasks_[task].step}] = task;
    }

    std::vector<StreamWait> run() {
        std::map<Index, std::vector<Instance>> repeats;
        std::vector<StreamWait> found;
        for (Index target = 0; target < size(); ++target) {
            const DeviceTask& task = tasks_[target];
            if (task.wait_asked < 0) continue;
            Instance instance = look_at(target);
            if (task.identity >= 0 && task.step >= 0) {
                repeats[task.identity].push_back(std::move(instance));
            } else {
                decide({&instance, 1}, found);
            }
        }
        for (const auto& [identity, instances] : repeats) decide(instances, found);
        std::sort(found.begin(), found.end(),
                  [](const StreamWait& a, const StreamWait& b) { return a.target < b.target; });
        return found;
    }

private:
    [[nodiscard]] Index size() const { return static_cast<Index>(tasks_.size()); }

    template <typename Less>
    [[nodiscard]] std::vector<Index> order(Less less) const {
        std::vector<Index> all(tasks_.size());
        std::iota(all.begin(), all.end(), 0);
        std::stable_sort(all.begin(), all.end(), less);
        return all;
    }

    [[nodiscard]] Instance look_at(Index target) const {
        const DeviceTask& task = tasks_[target];
        Ns low = task.ready, high = task.start - soonest;
        if (task.finds_room) {
            low = std::max(low, task.start - slowest_event);
        } else {
            bound_by_turns(task, low, high);
        }
        Instance instance{target,
                          task.start - task.ready >= shortest_wait && high > task.ready,
                          task.finds_room || low > task.ready,
                          {}};
        if (!instance.is_held) return instance;
        const auto first =
            std::lower_bound(by_end_.begin(), by_end_.end(), low, [&](Index t, Ns at) { return tasks_[t].end < at; });
        for (auto at = first; at != by_end_.end() && tasks_[*at].end <= high; ++at) {
            if (!may_precede(*at, target)) continue;
            instance.candidates.push_back(*at);
            if (instance.candidates.size() > most_candidates) {
                instance.candidates.clear();
                break;
            }
        }
        return instance;
    }

    /// When the task became ready, inferred from those that took the device before and after it.
    void bound_by_turns(const DeviceTask& task, Ns& low, Ns& high) const {
        const auto at = std::lower_bound(turns_.begin(), turns_.end(), task.start,
                                         [&](Index t, Ns when) { return tasks_[t].start < when; });
        const auto place = static_cast<Index>(at - turns_.begin());
        for (Index i = std::max(0, place - neighbours); i < place; ++i) {
            const DeviceTask& before = tasks_[turns_[i]];
            if (before.lane != task.lane && before.start < task.start - simultaneous)
                low = std::max(low, before.ready - slow_event);
        }
        const Index end = std::min(static_cast<Index>(turns_.size()), place + neighbours);
        for (Index i = place; i < end; ++i) {
            const DeviceTask& after = tasks_[turns_[i]];
            // Only of one that waited for nothing do we know when it was ready.
            if (after.wait_asked < 0 && after.lane != task.lane && after.start > task.start + simultaneous)
                high = std::min(high, after.ready);
        }
    }

    [[nodiscard]] bool may_precede(Index source, Index target) const {
        const DeviceTask &a = tasks_[source], &b = tasks_[target];
        return a.lane != b.lane && a.is_recorded && a.asked < b.wait_asked;
    }

    /// The same candidate in other steps has the same key: its identity, and how many steps before.
    [[nodiscard]] std::int64_t key_of(Index source, Index target) const {
        const DeviceTask &a = tasks_[source], &b = tasks_[target];
        if (a.identity < 0 || a.step < 0 || b.step < 0 || a.step > b.step) return -1 - std::int64_t{source};
        return (std::int64_t{a.identity} << 8) + std::min(b.step - a.step, 255);
    }

    /// Whether a candidate ended too late for the target in some step: then it is none.
    [[nodiscard]] bool is_refuted(std::int64_t key, std::span<const Instance> instances) const {
        if (key < 0) return false;
        for (const Instance& instance : instances) {
            const DeviceTask& target = tasks_[instance.target];
            const auto found = known_.find({static_cast<Index>(key >> 8), target.step - static_cast<Index>(key & 255)});
            if (found != known_.end() && tasks_[found->second].end + soonest > target.start) return true;
        }
        return false;
    }

    struct Candidate {
        int steps = 0, prompt_steps = 0;
        Ns total_latency = 0;
        bool operator>(const Candidate& other) const {
            if (prompt_steps != other.prompt_steps) return prompt_steps > other.prompt_steps;
            return total_latency < other.total_latency;
        }
    };

    void decide(std::span<const Instance> instances, std::vector<StreamWait>& found) const {
        std::map<std::int64_t, Candidate> candidates;
        int held = 0, overtaken = 0;
        for (const Instance& instance : instances) {
            held += instance.is_held;
            overtaken += instance.is_held && instance.is_overtaken;
            for (const Index source : instance.candidates) {
                Candidate& candidate = candidates[key_of(source, instance.target)];
                const Ns latency = tasks_[instance.target].start - tasks_[source].end;
                ++candidate.steps;
                candidate.prompt_steps += latency < prompt;
                candidate.total_latency += latency;
            }
        }
        std::erase_if(candidates, [&](const auto& one) { return is_refuted(one.first, instances); });
        if (candidates.empty()) return;
        int most = 0;
        for (const auto& [key, candidate] : candidates) most = std::max(most, candidate.steps);
        std::erase_if(candidates, [&](const auto& one) { return one.second.steps < most; });
        const auto best = std::max_element(candidates.begin(), candidates.end(),
                                           [](const auto& a, const auto& b) { return b.second > a.second; });
        const double sure = confidence(candidates, best->second, held, overtaken, most);
        if (sure < least_confidence) return;
        for (const Instance& instance : instances)
            for (const Index source : instance.candidates)
                if (key_of(source, instance.target) == best->first) found.push_back({source, instance.target, sure});
    }

    /// Measured on random graphs of known edges (`docs/systems/training/evidence.md`).
    static double confidence(const std::map<std::int64_t, Candidate>& rivals, const Candidate& best, int held,
                             int overtaken, int steps) {
        const double share = static_cast<double>(steps) / held;
        const bool is_alone_prompt =
            best.prompt_steps > 0 && std::count_if(rivals.begin(), rivals.end(), [&](const auto& one) {
                                         return one.second.prompt_steps >= best.prompt_steps;
                                     }) == 1;
        const double doubt = share < 1.0 ? 0.6 : 1.0;  // in some step something else must be true
        if (is_alone_prompt) return doubt * share * (rivals.size() == 1 ? 0.98 : 0.9);
        // Where nobody overtook it, a full device may be all there was to wait for.
        const double by_overtaking = static_cast<double>(overtaken) / held;
        const double count = static_cast<double>(rivals.size());
        return 0.97 * doubt * share * (by_overtaking / count + (1.0 - by_overtaking) / (count + 1.0));
    }

    std::span<const DeviceTask> tasks_;
    std::vector<Index> by_start_, by_end_, turns_;
    std::map<std::pair<Index, Index>, Index> known_;
};

}  // namespace

std::vector<StreamWait> infer_stream_waits(std::span<const DeviceTask> tasks) { return Inference(tasks).run(); }

}  // namespace gnomon
