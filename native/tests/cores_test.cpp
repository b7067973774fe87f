#include <algorithm>
#include <numeric>
#include <random>

#include "engine/cores/quantum.hpp"
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
        const threads::PolicySettings settings{
            static_cast<PolicyKind>(pick(0, 8)), pick(1, 20), pick(1, 100), pick(1, 300), 1, 0.1};
        std::vector<std::unique_ptr<threads::Policy>> policies(round % 2 == 0 ? 1 : workers);
        for (auto& one : policies) {
            one = threads::make_policy(settings);
            one->reserve(count);
        }
        const Mechanism mechanism{pick(0, 5), pick(0, 3), late};
        threads::QuantumController controller(round % 4 == 0, settings, mechanism);
        const Control control{round % 3 == 0 ? &controller : nullptr, pick(10, 200)};
        const auto run = run_cores({arrival, service, kind, hint, deadline}, workers, policies, mechanism, 1, control);
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

    // Taking tasks out of the middle leaves the order of the rest.
    threads::Fifo fifo;
    for (std::size_t i = 0; i < tasks.size(); ++i) {
        tasks[i].kind = static_cast<std::int32_t>(i);
        ranked.push(tasks[i], std::uniform_int_distribution<std::int64_t>(0, 40)(rng));
    }
    for (int round = 0; round < 60; ++round) {
        const auto wanted = std::uniform_int_distribution<int>(0, 199)(rng);
        if (auto* found = ranked.pop_if([&](const auto& task) { return task.kind >= wanted; })) fifo.push(*found);
    }
    expect(ranked.size() + fifo.size() == tasks.size(), "nothing is lost");
    bool rising = true;
    for (std::int64_t last = 0; const auto* task = ranked.pop(); last = task->key) rising &= task->key >= last;
    expect(rising, "the order holds when some are taken from the middle");
    const auto size = fifo.size();
    const auto* last = fifo.pop_if([&, n = std::size_t{0}](const auto&) mutable { return ++n == size; });
    threads::Task one;
    fifo.push(one);
    expect(last != nullptr && fifo.size() == size, "the last one can be taken, and another be added");
    const threads::Task* end = nullptr;
    while (const auto* task = fifo.pop()) end = task;
    expect(end == &one, "at the end");
}

void quanta_fit_the_load() {
    std::mt19937_64 rng(6);
    std::vector<std::int64_t> bimodal, light;
    for (int i = 0; i < 2000; ++i) {
        bimodal.push_back(i % 200 == 0 ? 500'000 : 5'000);
        light.push_back(static_cast<std::int64_t>(std::exponential_distribution<double>(1.0 / 5000.0)(rng)) + 1);
    }
    const std::int64_t late[] = {200};
    const threads::PolicySettings settings{PolicyKind::two_queue, 10'000, 500'000, threads::unlimited, 0, 0.0};
    const auto decide = [&](const auto& service, double load, bool is_paper, Mechanism mechanism) {
        threads::QuantumController controller(is_paper, settings, mechanism);
        double total = 0.0;
        for (const auto one : service) total += static_cast<double>(one);
        const auto arrivals = static_cast<std::uint64_t>(load * 1e8 / (total / static_cast<double>(service.size())));
        threads::QuantumChoice choice;
        for (int i = 0; i < 3; ++i) choice = controller.decide({100'000'000, arrivals, 1, 1, service});
        return choice.quantum;
    };
    const Mechanism flag{250, 0, late}, signal{11'000, 0, late};
    expect(decide(light, 0.7, false, flag) == threads::unlimited, "light tails are not cut");
    expect(decide(bimodal, 0.7, false, flag) < 30'000, "heavy ones soon");
    expect(decide(bimodal, 0.7, false, signal) >= 22'000, "and later where that is dear");
    expect(decide(bimodal, 0.99, true, flag) == 3'000, "the paper's rules go down to 3 us under load");
    expect(threads::tail_index(light) > 2.0 && threads::tail_index(bimodal) > 0.0, "tails");
}

}  // namespace

void cores_tests() {
    requests_end();
    queues_are_in_order();
    quanta_fit_the_load();
}

}  // namespace gnomon::tests
