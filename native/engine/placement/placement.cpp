#include "engine/placement/placement.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <deque>
#include <stdexcept>

#include "engine/event_queue.hpp"
#include "engine/index.hpp"

namespace gnomon {
namespace {

/// A set of small numbers that gives its least one, and the least from some number on, quickly.
class NumberSet {
public:
    explicit NumberSet(std::size_t size = 0) : words_((size + 63) / 64), summary_((words_.size() + 63) / 64) {}

    void insert(std::size_t number) {
        words_[number / 64] |= bit(number);
        summary_[number / 4096] |= bit(number / 64);
    }
    void erase(std::size_t number) {
        if ((words_[number / 64] &= ~bit(number)) == 0) summary_[number / 4096] &= ~bit(number / 64);
    }
    [[nodiscard]] bool holds_nothing_ever() const { return words_.empty(); }
    [[nodiscard]] bool empty() const {
        return std::all_of(summary_.begin(), summary_.end(), [](auto word) { return word == 0; });
    }
    /// The least number that is `from` or more, -1 for none.
    [[nodiscard]] std::int64_t next(std::size_t from) const {
        std::size_t word = from / 64;
        if (word >= words_.size()) return -1;
        if (const auto here = words_[word] & (~std::uint64_t{0} << (from % 64))) return at(word, here);
        ++word;
        std::size_t block = word / 64;
        if (block >= summary_.size()) return -1;
        auto words = summary_[block] & (~std::uint64_t{0} << (word % 64));
        while (words == 0) {
            if (++block == summary_.size()) return -1;
            words = summary_[block];
        }
        word = block * 64 + index(std::countr_zero(words));
        return at(word, words_[word]);
    }
    /// The greatest number, -1 for none.
    [[nodiscard]] std::int64_t last() const {
        for (std::size_t block = summary_.size(); block-- > 0;) {
            if (summary_[block] == 0) continue;
            const auto word = block * 64 + 63 - index(std::countl_zero(summary_[block]));
            return static_cast<std::int64_t>(word * 64 + 63) - std::countl_zero(words_[word]);
        }
        return -1;
    }

private:
    static std::uint64_t bit(std::size_t number) { return std::uint64_t{1} << (number % 64); }
    static std::int64_t at(std::size_t word, std::uint64_t bits) {
        return static_cast<std::int64_t>(word * 64) + std::countr_zero(bits);
    }

    std::vector<std::uint64_t> words_;
    std::vector<std::uint64_t> summary_;
};

/// The servers of one group, by how much room they have.
class Group {
public:
    Group(std::int32_t servers, std::int32_t slots, bool sleep)
        : slots_(slots),
          sleeps_(sleep),
          free_(index(servers), slots),
          awake_from_(sleep ? index(servers) : 0),
          rooms_(index(slots) + 1),
          asleep_(index(servers)),
          by_room_(index(slots) + 1) {
        for (std::size_t server = 0; server < free_.size(); ++server) {
            if (sleep) asleep_.insert(server);
            else add(server, slots);
        }
    }

    /// The most room of one server in this part of the group.
    [[nodiscard]] std::int32_t most_room(Part part) const {
        const auto awake = static_cast<std::int32_t>(std::max<std::int64_t>(rooms_.last(), 0));
        const std::int32_t asleep = asleep_.empty() ? 0 : slots_;
        if (part == Part::awake) return awake;
        return part == Part::asleep ? asleep : std::max(awake, asleep);
    }

    /// Takes slots on the fullest server that has them, of equals the first; there has to be one.
    std::int32_t take(std::int32_t slots, Part part, std::int64_t now) {
        const auto room = part == Part::asleep ? -1 : rooms_.next(index(slots));
        std::size_t server;
        if (room >= 0) {
            server = index(by_room_[index(room)].next(0));
            remove(server, static_cast<std::int32_t>(room));
        } else {
            server = index(asleep_.next(0));
            asleep_.erase(server);
            awake_from_[server] = now;
        }
        free_[server] -= slots;
        add(server, free_[server]);
        return static_cast<std::int32_t>(server);
    }

    /// Gives slots back; whether the server went to sleep.
    bool give_back(std::int32_t server, std::int32_t slots) {
        const auto at = index(server);
        remove(at, free_[at]);
        free_[at] += slots;
        if (sleeps_ && free_[at] == slots_) {
            asleep_.insert(at);
            return true;
        }
        add(at, free_[at]);
        return false;
    }

    [[nodiscard]] std::int64_t awake_from(std::int32_t server) const { return awake_from_[index(server)]; }

private:
    void add(std::size_t server, std::int32_t room) {
        auto& same = by_room_[index(room)];
        if (same.holds_nothing_ever()) same = NumberSet(free_.size());
        same.insert(server);
        rooms_.insert(index(room));
    }
    void remove(std::size_t server, std::int32_t room) {
        auto& same = by_room_[index(room)];
        same.erase(server);
        if (same.empty()) rooms_.erase(index(room));
    }

    std::int32_t slots_;
    bool sleeps_;
    std::vector<std::int32_t> free_;
    std::vector<std::int64_t> awake_from_;
    NumberSet rooms_;
    NumberSet asleep_;
    std::vector<NumberSet> by_room_;  // made when first used: most rooms never occur
};

/// The first candidate whose room suffices: a tree of maxima over the order of preference.
class FirstFit {
public:
    explicit FirstFit(std::size_t candidates)
        : width_(std::bit_ceil(std::max<std::size_t>(candidates, 1))), most_(2 * width_) {}

    void set(std::size_t candidate, std::int32_t room) {
        std::size_t node = width_ + candidate;
        most_[node] = room;
        while (node > 1) {
            node /= 2;
            const auto most = std::max(most_[2 * node], most_[2 * node + 1]);
            if (most_[node] == most) break;
            most_[node] = most;
        }
    }
    [[nodiscard]] std::int64_t first(std::int32_t slots) const {
        if (most_[1] < slots) return -1;
        std::size_t node = 1;
        while (node < width_) node = 2 * node + (most_[2 * node] < slots);
        return static_cast<std::int64_t>(node - width_);
    }

private:
    std::size_t width_;
    std::vector<std::int32_t> most_;
};

class Placing {
public:
    Placing(const ServerGroups& groups, const Preference& order, const PlacementJobs& jobs, bool sleep)
        : speed_(groups.speed), order_(order), jobs_(jobs), first_fit_(order.size()), places_(groups.servers.size()) {
        groups_.reserve(groups.servers.size());
        for (std::size_t g = 0; g < groups.servers.size(); ++g) {
            groups_.emplace_back(groups.servers[g], groups.slots[g], sleep);
        }
        for (std::size_t c = 0; c < order.size(); ++c) {
            const auto group = index(order.group[c]);
            places_[group].push_back(c);
            first_fit_.set(c, groups_[group].most_room(order.part_of(c)));
        }
        const std::size_t count = jobs.release.size();
        placed_.start.resize(count);
        placed_.end.resize(count);
        placed_.group.resize(count);
        placed_.server.resize(count);
    }

    PlacedJobs run() {
        for (std::size_t job = 0; job < jobs_.release.size(); ++job) {
            finish_until(jobs_.release[job]);
            if (!waiting_.empty() || !begin(job, jobs_.release[job])) waiting_.push_back(job);
        }
        while (!running_.empty()) finish_until(running_.top().time);
        return std::move(placed_);
    }

private:
    /// Ends what ends until then, and lets those in line begin in their turn.
    void finish_until(std::int64_t time) {
        while (!running_.empty() && running_.top().time <= time) {
            const auto now = running_.top().time;
            while (!running_.empty() && running_.top().time == now) {
                const auto job = index(running_.top().key);
                running_.pop();
                finish(job, now);
            }
            while (!waiting_.empty() && begin(waiting_.front(), now)) waiting_.pop_front();
        }
    }

    bool begin(std::size_t job, std::int64_t now) {
        const auto found = first_fit_.first(jobs_.slots[job]);
        if (found < 0) return false;
        const auto candidate = index(found);
        const auto group = order_.group[candidate];
        const auto g = index(group);
        const double lasts = static_cast<double>(jobs_.work[job]) / speed_[g];
        if (lasts > static_cast<double>(farthest - std::max<std::int64_t>(now, 0))) {
            throw std::invalid_argument("a job would end more than 146 years off zero");
        }
        const auto length = std::llround(lasts);
        placed_.start[job] = now;
        placed_.end[job] = now + length;
        placed_.group[job] = group;
        placed_.server[job] = groups_[g].take(jobs_.slots[job], order_.part_of(candidate), now);
        running_.push(now + length, static_cast<std::int64_t>(job));
        look_again(g);
        return true;
    }

    void finish(std::size_t job, std::int64_t now) {
        const auto group = placed_.group[job];
        auto& servers = groups_[index(group)];
        if (servers.give_back(placed_.server[job], jobs_.slots[job])) {
            placed_.awake_group.push_back(group);
            placed_.awake_from.push_back(servers.awake_from(placed_.server[job]));
            placed_.awake_until.push_back(now);
        }
        look_again(index(group));
    }

    void look_again(std::size_t group) {
        for (const auto candidate : places_[group]) {
            first_fit_.set(candidate, groups_[group].most_room(order_.part_of(candidate)));
        }
    }

    std::span<const double> speed_;
    const Preference& order_;
    const PlacementJobs& jobs_;
    std::vector<Group> groups_;
    FirstFit first_fit_;
    std::vector<std::vector<std::size_t>> places_;  // where a group stands in the order
    EventQueue running_;
    std::deque<std::size_t> waiting_;
    PlacedJobs placed_;
};

/// The area under a step function up to any time.
class Area {
public:
    Area(std::span<const std::int64_t> time, std::span<const double> area) : time_(time), area_(area) {}

    /// `hint` is a step at or before the time.
    [[nodiscard]] double at(std::int64_t t, std::size_t hint) const {
        while (hint + 2 < time_.size() && time_[hint + 1] <= t) ++hint;
        const double share = static_cast<double>(t - time_[hint]) / static_cast<double>(time_[hint + 1] - time_[hint]);
        return area_[hint] + share * (area_[hint + 1] - area_[hint]);
    }
    [[nodiscard]] std::size_t step_of(std::int64_t t) const {
        const auto above = std::upper_bound(time_.begin(), time_.end(), t) - time_.begin();
        return index(std::clamp<std::int64_t>(above - 1, 0, std::ssize(time_) - 2));
    }

private:
    std::span<const std::int64_t> time_;
    std::span<const double> area_;
};

}  // namespace

PlacedJobs place(const ServerGroups& groups, const Preference& order, const PlacementJobs& jobs,
                 bool empty_servers_sleep) {
    return Placing(groups, order, jobs, empty_servers_sleep).run();
}

std::vector<std::int64_t> cleanest_starts(std::span<const std::int64_t> time, std::span<const double> area,
                                          std::span<const std::int64_t> earliest, std::span<const std::int64_t> latest,
                                          std::span<const std::int64_t> length) {
    const Area under(time, area);
    const double whole = std::max(std::abs(area.front()), std::abs(area.back()));
    std::vector<std::int64_t> starts(earliest.size());
    for (std::size_t job = 0; job < earliest.size(); ++job) {
        std::size_t begins = under.step_of(earliest[job]);
        std::size_t ends = under.step_of(earliest[job] + length[job]);
        std::int64_t now = starts[job] = earliest[job];
        double least = under.at(now + length[job], ends) - under.at(now, begins);
        while (true) {
            while (begins + 2 < time.size() && time[begins + 1] <= now) ++begins;
            while (ends + 2 < time.size() && time[ends + 1] <= now + length[job]) ++ends;
            const double between = under.at(now + length[job], ends) - under.at(now, begins);
            // Differences of running sums differ in their last bits: of equals the earliest is meant.
            if (between < least - 1e-9 * std::abs(least) - 1e-14 * whole) {
                least = between;
                starts[job] = now;
            }
            if (now >= latest[job]) break;
            std::int64_t next = latest[job];
            if (time[begins + 1] > now) next = std::min(next, time[begins + 1]);
            if (time[ends + 1] > now + length[job]) next = std::min(next, time[ends + 1] - length[job]);
            now = next;
        }
    }
    return starts;
}

}  // namespace gnomon
