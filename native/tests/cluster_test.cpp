#include "engine/cluster/cluster.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "engine/cluster/carbon_rules.hpp"
#include "engine/cluster/decima_order.hpp"
#include "engine/cluster/gates.hpp"
#include "engine/cluster/orders.hpp"
#include "engine/index.hpp"
#include "engine/rng.hpp"
#include "tests/test.hpp"

namespace gnomon::tests {
namespace {

using Times = std::vector<std::int64_t>;

/// Kinds of jobs whose stages wait for earlier ones; durations at one level of executors.
struct Kinds {
    std::vector<std::int64_t> first_stage{0}, first_parent{0}, sample_first, sample, cpu;
    std::vector<std::int32_t> tasks, parents, levels{2}, sample_count;
    std::vector<double> typical, path, work;

    /// A stage of the last kind: fresh, first and later tasks take so long.
    void add_stage(std::int32_t count, std::int64_t fresh, std::int64_t first, std::int64_t rest,
                   const std::vector<std::int32_t>& after = {}) {
        tasks.push_back(count);
        for (const auto took : {fresh, first, rest}) {
            sample_first.push_back(std::ssize(sample));
            sample_count.push_back(1);
            sample.push_back(took);
        }
        parents.insert(parents.end(), after.begin(), after.end());
        first_parent.push_back(std::ssize(parents));
        cpu.push_back(0);
        typical.push_back(static_cast<double>(rest));
    }

    void end_kind() {
        path.resize(tasks.size());
        double all = 0.0;
        for (auto stage = tasks.size(); stage-- > index(first_stage.back());) {
            path[stage] += typical[stage];
            all += typical[stage] * tasks[stage];
            for (auto p = first_parent[stage]; p < first_parent[stage + 1]; ++p) {
                auto& before = path[index(parents[index(p)])];
                before = std::max(before, path[stage]);
            }
        }
        work.push_back(all);
        first_stage.push_back(std::ssize(tasks));
    }

    [[nodiscard]] JobKindColumns columns() const {
        return {first_stage,  tasks,  first_parent, parents, levels, sample_first,
                sample_count, sample, cpu,          typical, path,   work};
    }
};

struct Jobs {
    std::vector<std::int32_t> kind, after, application;
    Times arrival, deadline;
    std::vector<double> weight;

    void add(std::int32_t of_kind, std::int64_t at, std::int32_t follows = -1) {
        application.push_back(static_cast<std::int32_t>(kind.size()));
        kind.push_back(of_kind);
        arrival.push_back(at);
        after.push_back(follows);
        deadline.push_back(never);
        weight.push_back(1.0);
    }

    [[nodiscard]] JobColumns columns() const { return {kind, arrival, after, application, deadline, weight}; }
};

ExecutorSettings some(std::int32_t count, std::int64_t moving_delay = 0) {
    ExecutorSettings settings;
    settings.count = count;
    settings.moving_delay = moving_delay;
    return settings;
}

GridColumns hours(std::int64_t step) {
    GridColumns grid;
    grid.step = step;
    return grid;
}

/// Four tasks on two executors that come in 3: a fresh one each in 10, then one more each in 5.
void tasks_take_what_was_measured() {
    Kinds kinds;
    kinds.add_stage(4, 10, 8, 5);
    kinds.end_kind();
    Jobs jobs;
    jobs.add(0, 0);
    jobs.add(0, 100, 0);  // 100 after the end of the other
    FifoOrder fifo;
    const auto run =
        run_cluster({kinds.columns(), jobs.columns(), some(2, 3), hours(10), {}, 1, 1, true, true}, fifo, {});
    expect(run.start == Times({3, 121}) && run.finish == Times({18, 136}), "jobs start and end when they should");
    expect(run.busy == Times({30, 30}) && run.tasks == 8 && run.moves == 4, "executor time is added up");
    expect(run.log.start == Times({3, 3, 13, 13, 121, 121, 131, 131}), "tasks follow one another");
    expect(run.log.wave == std::vector<std::int8_t>({0, 0, 2, 2, 0, 0, 2, 2}), "waves are distinguished");
    expect(run.busy_at.front() == 14.0 && run.moving_at.front() == 6.0, "time is counted by step of the grid");
    expect(run.end == 136 && run.unfinished == 0, "all is done at the end");
}

/// In the dirty first step one executor may work, in the second both.
void quotas_bind() {
    Kinds kinds;
    kinds.add_stage(4, 10, 10, 10);
    kinds.end_kind();
    Jobs jobs;
    jobs.add(0, 0);
    const std::vector<double> seen{400.0, 100.0}, low{100.0, 100.0}, high{400.0, 400.0};
    const GridColumns grid{20, seen, seen, low, high, 1, seen};
    const std::vector<std::int32_t> allowed{1, 2};
    QuotaGate gate(allowed, false, true, false);
    Gate* const gates[] = {&gate};
    FifoOrder fifo;
    const auto run = run_cluster({kinds.columns(), jobs.columns(), some(2), grid, {}, 1, 1, true, true}, fifo, gates);
    expect(run.log.start == Times({0, 10, 20, 20}), "a quota holds tasks until it rises");
    expect(run.finish == Times({30}) && run.quota_at == std::vector<double>({20.0, 20.0}), "and is counted");
    expect(run.weighted.front() == 20 * 400.0 + 20 * 100.0, "emissions are of the actual intensity");
}

void rules_are_those_of_the_papers() {
    expect(cap_quota(400.0, 100.0, 400.0, 2, 10) == 2 && cap_quota(100.0, 100.0, 400.0, 2, 10) == 10,
           "CAP goes from the least to all executors");
    const double alpha = cap_alpha(100.0, 400.0, 8);
    expect(std::abs(std::pow(1.0 + 1.0 / (8.0 * alpha), 8) - 300.0 / (400.0 * (1.0 - 1.0 / alpha))) < 1e-9,
           "alpha is the root of its equation");
    expect(pcaps_threshold(1.0, 0.5, 100.0, 400.0) == 400.0 && pcaps_threshold(0.0, 0.5, 100.0, 400.0) == 250.0,
           "PCAPS lets the most important stage run");
    expect(narrowed(10, Narrowing::none, 0.5, 400.0, 100.0, 400.0) == 10 &&
               narrowed(10, Narrowing::dimensionless, 0.5, 100.0, 100.0, 400.0) == 5,
           "stages are narrowed");
    const std::vector<double> coming{50.0, 300.0, 60.0};
    expect(runs_now(200.0, coming, 3.0, 0.0) && !runs_now(200.0, coming, 2.0, 0.0), "the cleanest hours are taken");
}

Kinds random_kinds(Rng& rng) {
    const auto some_time = [&] { return static_cast<std::int64_t>(1 + rng.below(30)); };
    Kinds kinds;
    for (int kind = 0; kind < 3; ++kind) {
        const auto first = kinds.tasks.size();
        for (std::uint64_t stages = 1 + rng.below(5); stages-- > 0;) {
            std::vector<std::int32_t> after;
            for (auto s = first; s < kinds.tasks.size(); ++s) {
                if (rng.below(2) == 0) after.push_back(static_cast<std::int32_t>(s));
            }
            kinds.add_stage(static_cast<std::int32_t>(1 + rng.below(6)), some_time(), some_time(), some_time(), after);
        }
        kinds.end_kind();
    }
    return kinds;
}

/// Whether the log of a run is one that executors and stages allow.
bool is_possible(const ClusterRun& run, const JobKindColumns& kinds, const JobColumns& jobs) {
    std::map<std::int32_t, std::int64_t> free_at;
    std::map<std::pair<std::int32_t, std::int32_t>, std::pair<std::int64_t, std::int64_t>> stages;  // start, end
    Times busy(jobs.kind.size(), 0);
    const auto& log = run.log;
    std::vector<std::size_t> order(log.job.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return log.start[a] < log.start[b]; });
    for (const auto i : order) {
        if (log.start[i] < free_at[log.executor[i]]) return false;
        free_at[log.executor[i]] = log.end[i];
        busy[index(log.job[i])] += log.end[i] - log.start[i];
        const auto [stage, is_new] = stages.try_emplace({log.job[i], log.stage[i]}, log.start[i], 0);
        if (!log.failed[i]) stage->second.second = std::max(stage->second.second, log.end[i]);
    }
    for (const auto& [where, times] : stages) {
        const auto first = kinds.first_stage[index(jobs.kind[index(where.first)])];
        const auto stage = index(first + where.second);
        for (auto p = kinds.first_parent[stage]; p < kinds.first_parent[stage + 1]; ++p) {
            const auto parent = static_cast<std::int32_t>(kinds.parents[index(p)] - first);
            if (stages.at({where.first, parent}).second > times.first) return false;
        }
    }
    return busy == run.busy && run.unfinished == 0;
}

/// Every order and gate on random jobs, with failures, stragglers and executors that come and go.
void random_clusters_are_possible() {
    Rng rng(23);
    std::vector<float> parameters(Decima::parameter_count);
    for (float& p : parameters) p = static_cast<float>(rng.uniform() - 0.5);
    for (int round = 0; round < 40; ++round) {
        const auto kinds = random_kinds(rng);
        Jobs jobs;
        for (std::int32_t j = 0; j < 12; ++j) {
            const auto follows = rng.below(4) == 0 ? static_cast<std::int32_t>(rng.below(index(j) + 1)) - 1 : -1;
            jobs.add(static_cast<std::int32_t>(rng.below(3)), static_cast<std::int64_t>(rng.below(200)), follows);
        }
        const auto count = static_cast<std::int32_t>(2 + rng.below(6));
        std::vector<double> seen, low, high, outlook;
        for (int h = 0; h < 30; ++h) seen.push_back(100.0 + rng.uniform() * 300.0);
        for (std::size_t h = 0; h < seen.size(); ++h) {
            for (std::size_t ahead = 0; ahead < 8; ++ahead)
                outlook.push_back(seen[std::min(h + ahead, seen.size() - 1)]);
            low.push_back(*std::min_element(outlook.end() - 8, outlook.end()));
            high.push_back(*std::max_element(outlook.end() - 8, outlook.end()));
        }
        const GridColumns grid{25, seen, seen, low, high, 8, outlook};
        auto settings = some(count, static_cast<std::int64_t>(rng.below(3)));
        settings.straggler_chance = settings.task_failure_chance = 0.1;
        settings.straggler_factor = 3.0;
        settings.failures_per_ns = round % 2 == 0 ? 1e-3 : 0.0;
        settings.startup = 5;
        settings.off_after = round % 3 == 0 ? 20 : never;
        Times from(index(count), 0), until(index(count), never);
        from.back() = 30;
        until.back() = 200;
        settings.from = from;
        settings.until = until;
        const std::vector<std::int32_t> quota{1, count, 2}, width{2, 3, 4};
        const auto softmax = std::make_shared<PathSoftmaxOrder>(4.0);
        const auto decima = std::make_shared<DecimaOrder>(parameters, true, true);
        FifoOrder fifo;
        FairOrder fair(-1.0);
        ShortestOrder shortest;
        CriticalPathOrder critical;
        PcapsOrder pcaps(softmax, 0.5, Narrowing::released), learned(decima, 0.8, Narrowing::literal);
        QuotaGate held(quota, true, false, true), each(quota, false, true, false);
        GreenHadoopGate green(0.5);
        WindowGate window(6, round % 2 == 0);
        ScalerGate scaler(6);
        LookAheadGate ahead({6, 0.02, 1.0, 1.0, width});
        Order* const orders[] = {&fifo, &fair, &shortest, &critical, softmax.get(), decima.get(), &pcaps, &learned};
        const std::vector<std::vector<Gate*>> gates{{},        {&held},   {&each},        {&green},
                                                    {&window}, {&scaler}, {&ahead, &each}};
        const Guard guard{400, 100, 2'000};
        for (auto* order : orders) {
            const auto& with = gates[rng.below(gates.size())];
            const ClusterInput input{
                kinds.columns(), jobs.columns(), settings, grid, guard, index(round), 5, true, true};
            const auto run = run_cluster(input, *order, with);
            expect(is_possible(run, input.kinds, input.jobs), "a run is one that its cluster allows");
            const auto again = run_cluster(input, *order, with);
            expect(run.log.start == again.log.start && run.weighted == again.weighted, "a seed gives the same run");
        }
        const auto& record = decima->record();
        expect(!record.time.empty() && record.chosen.size() == record.time.size() &&
                   record.first_ready.back() == std::ssize(record.ready),
               "decisions are recorded");
    }
}

}  // namespace

void cluster_tests() {
    tasks_take_what_was_measured();
    quotas_bind();
    rules_are_those_of_the_papers();
    random_clusters_are_possible();
}

}  // namespace gnomon::tests
