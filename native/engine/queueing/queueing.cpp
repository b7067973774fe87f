#include "engine/queueing/queueing.hpp"

#include <algorithm>
#include <cmath>
#include <deque>
#include <set>
#include <stdexcept>

#include "engine/event_queue.hpp"
#include "engine/index.hpp"
#include "engine/rng.hpp"

namespace gnomon {
namespace {

constexpr std::uint64_t arrival_stream = 1, size_stream = 2, choice_stream = 3;

/// Jobs that wait, held in the shape that makes the discipline's choice cheap.
class Waiting {
public:
    Waiting(Discipline discipline, std::span<const std::int64_t> size, std::uint64_t seed, const Choose& choose)
        : discipline_(discipline), size_(size), rng_(seed, choice_stream), choose_(choose) {}

    [[nodiscard]] bool empty() const {
        return discipline_ == Discipline::shortest ? by_size_.empty() : in_order_.empty();
    }

    void add(std::int64_t job) {
        if (discipline_ == Discipline::shortest) by_size_.emplace(size_[index(job)], job);
        else in_order_.push_back(job);
    }

    /// The job to serve next, or ~t to hold until t.
    std::int64_t take(std::int64_t now) {
        if (discipline_ == Discipline::shortest) {
            const auto job = by_size_.begin()->second;
            by_size_.erase(by_size_.begin());
            return job;
        }
        std::int64_t position = 0;
        const auto count = static_cast<std::int64_t>(in_order_.size());
        if (discipline_ == Discipline::lifo) position = count - 1;
        if (discipline_ == Discipline::random)
            position = static_cast<std::int64_t>(rng_.below(static_cast<std::uint64_t>(count)));
        if (discipline_ == Discipline::custom) {
            const std::vector<std::int64_t> view(in_order_.begin(), in_order_.end());
            position = choose_(now, view);
            if (position < 0) return position;
            if (position >= count) throw std::out_of_range("the policy picked a job that does not wait");
        }
        const auto job = in_order_[index(position)];
        in_order_.erase(in_order_.begin() + position);
        return job;
    }

private:
    Discipline discipline_;
    std::span<const std::int64_t> size_;
    Rng rng_;
    const Choose& choose_;
    std::deque<std::int64_t> in_order_;
    std::set<std::pair<std::int64_t, std::int64_t>> by_size_;
};

}  // namespace

Served serve(std::span<const std::int64_t> arrival, std::span<const std::int64_t> size, std::int32_t servers,
             Discipline discipline, std::uint64_t seed, const Choose& choose) {
    const auto jobs = arrival.size();
    Served out{std::vector<std::int64_t>(jobs, -1), std::vector<std::int64_t>(jobs, -1),
               std::vector<std::int32_t>(jobs, -1)};
    Waiting waiting(discipline, size, seed, choose);
    EventQueue departures;  // key: the server
    EventQueue idle;        // time unused: hands out the lowest free server
    for (std::int32_t s = 0; s < servers; ++s) idle.push(0, s);
    std::size_t next = 0;
    std::int64_t wake = never;  // when a policy that holds wants to be asked again
    while (next < jobs || !departures.empty() || wake != never) {
        // Departures first: a job that arrives as a server frees finds it free.
        std::int64_t now = std::min(next < jobs ? arrival[next] : never, wake);
        if (!departures.empty()) now = std::min(now, departures.top().time);
        wake = never;
        while (!departures.empty() && departures.top().time == now) idle.push(0, departures.pop().key);
        while (next < jobs && arrival[next] == now) waiting.add(static_cast<std::int64_t>(next++));
        while (!idle.empty() && !waiting.empty()) {
            const auto job = waiting.take(now);
            if (job < 0) {
                if (~job > now) wake = ~job;
                break;
            }
            const auto j = index(job);
            const auto server = idle.pop().key;
            out.start[j] = now;
            out.end[j] = now + size[j];
            out.server[j] = static_cast<std::int32_t>(server);
            departures.push(out.end[j], server);
        }
    }
    return out;
}

std::vector<std::int64_t> poisson_arrivals(std::int64_t count, double mean_gap_ns, std::uint64_t seed) {
    Rng rng(seed, arrival_stream);
    std::vector<std::int64_t> times(index(count));
    double now = 0.0;
    for (auto& t : times) t = std::llround(now += rng.exponential(mean_gap_ns));
    return times;
}

std::vector<std::int64_t> exponential_sizes(std::int64_t count, double mean_ns, std::uint64_t seed) {
    Rng rng(seed, size_stream);
    std::vector<std::int64_t> sizes(index(count));
    for (auto& s : sizes) s = std::llround(rng.exponential(mean_ns));
    return sizes;
}

}  // namespace gnomon
