#include "engine/cores/cores.hpp"

#include <algorithm>
#include <numeric>
#include <random>

#include "tests/test.hpp"

namespace gnomon::tests {
namespace {

using threads::PolicyKind;

/// Random requests under every policy: all end, none before its time, and nothing is lost track of.
void requests_end() {
    std::mt19937_64 rng(4);
    const auto pick = [&](std::int64_t low, std::int64_t high) {
        return std::uniform_int_distribution<std::int64_t>(low, high)(rng);
    };
    bool in_time = true, accounted = true;
    for (int round = 0; round < 400; ++round) {
        const auto count = static_cast<std::size_t>(pick(0, 80)), workers = static_cast<std::size_t>(pick(2, 5));
        std::vector<std::int64_t> arrival, service, hint, deadline, late;
        std::vector<std::int32_t> kind;
        for (std::size_t i = 0; i < count; ++i) {
            arrival.push_back(pick(0, 500));
            service.push_back(pick(0, 60));
            hint.push_back(pick(0, 60));
            deadline.push_back(pick(0, 1000));
            kind.push_back(static_cast<std::int32_t>(pick(0, 20)));
        }
        std::sort(arrival.begin(), arrival.end());
        for (std::int64_t i = pick(0, 3); i > 0; --i) late.push_back(pick(0, 9));
        const threads::PolicySettings settings{static_cast<PolicyKind>(pick(0, 7)), pick(1, 20), pick(1, 100),
                                               pick(1, 300), 1};
        const auto policy = threads::make_policy(settings);
        policy->reserve(count);
        const Mechanism mechanism{pick(0, 5), pick(0, 3), late};
        const auto run = run_cores({arrival, service, kind, hint, deadline}, workers, *policy, mechanism, 1);
        std::int64_t cuts = 0;
        for (std::size_t i = 0; i < count; ++i) {
            in_time &= run.latency[i] >= service[i] + mechanism.dispatch_ns;
            cuts += run.preemptions[i];
        }
        const auto taken = static_cast<std::int64_t>(count) + cuts;
        accounted &= run.lost == cuts * mechanism.cost_ns + taken * mechanism.dispatch_ns;
    }
    expect(in_time, "requests take at least their service time");
    expect(accounted, "every preemption and dispatch is paid for");
}

void queues_are_in_order() {
    std::mt19937_64 rng(5);
    std::vector<threads::Task> tasks(200);
    threads::Ranked ranked;
    ranked.reserve(tasks.size());
    std::vector<std::int64_t> keys;
    for (auto& task : tasks) {
        keys.push_back(std::uniform_int_distribution<std::int64_t>(0, 40)(rng));
        ranked.push(task, keys.back());
    }
    std::sort(keys.begin(), keys.end());
    bool sorted = true;
    std::uint64_t before = 0;
    for (std::size_t i = 0; i < keys.size(); ++i) {
        const auto* task = ranked.pop();
        sorted &= task->key == keys[i] && (i == 0 || keys[i] != keys[i - 1] || task->order > before);
        before = task->order;
    }
    expect(sorted && ranked.pop() == nullptr, "the least key first, equal ones in order");
}

}  // namespace

void cores_tests() {
    requests_end();
    queues_are_in_order();
}

}  // namespace gnomon::tests
