#include "engine/decima/network.hpp"

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "engine/decima/kernels.hpp"
#include "engine/index.hpp"

namespace gnomon {
namespace decima {

void softmax(std::vector<float>& scores) {
    if (scores.empty()) return;
    const float most = *std::max_element(scores.begin(), scores.end());
    float sum = 0.0F;
    for (float& score : scores) sum += (score = std::exp(score - most));
    if (!std::isfinite(sum)) throw std::runtime_error("the network's answer is not a number");
    for (float& score : scores) score /= sum;
}

std::vector<float> checked(std::span<const float> parameters) {
    if (parameters.size() != Decima::parameter_count) throw std::invalid_argument("Decima has 4770 parameters");
    for (const float p : parameters) {
        if (!std::isfinite(p)) throw std::invalid_argument("a parameter is not a number");
    }
    return {parameters.begin(), parameters.end()};
}

}  // namespace decima

void DecimaWork::look(const DecimaView& view) {
    arrange(view);
    fill_inputs(view);
}

/// Places of the nodes: a counting sort by height and whether a message is wanted from them.
void DecimaWork::arrange(const DecimaView& view) {
    nodes = view.work_ms.size();
    jobs = view.job_executors.size();
    has_parent.assign(nodes, 0);
    for (const auto child : view.child) has_parent[index(child)] = 1;
    std::int32_t highest = 0;
    for (const auto height : view.height) highest = std::max(highest, height);
    const auto key = [&](std::size_t node) { return index(view.height[node]) * 2 + (has_parent[node] ? 0 : 1); };
    group_first.assign(2 * index(highest) + 4, 0);
    for (std::size_t node = 0; node < nodes; ++node) ++group_first[key(node) + 2];
    for (std::size_t g = 2; g < group_first.size(); ++g) group_first[g] += group_first[g - 1];
    place.resize(nodes);
    node_at.resize(nodes);
    for (std::size_t node = 0; node < nodes; ++node) {
        // Counts stand two further on, so that filling leaves the firsts one further on.
        place[node] = group_first[key(node) + 1]++;
        node_at[index(place[node])] = static_cast<std::int32_t>(node);
    }
}

void DecimaWork::fill_inputs(const DecimaView& view) {
    job_input.widen(jobs);
    job_summary.widen(jobs);
    job_score.widen(jobs);
    input.widen(nodes);
    embedding.widen(nodes);
    message.resize((nodes + decima::most_lanes) * decima::width);
    job_summed.assign((jobs + decima::most_lanes) * decima::width, 0.0F);
    job_of_node.resize(nodes);
    job_at.resize(nodes);
    const float free = view.free_executors * decima::executors_scale;
    for (std::size_t job = 0; job < jobs; ++job) {
        const float held = view.job_executors[job] * decima::executors_scale;
        const float own =
            static_cast<std::int32_t>(job) == view.source_job ? decima::own_executor : -decima::own_executor;
        job_input.row(0)[job] = held;
        job_input.row(1)[job] = own;
        job_input.row(2)[job] = free;
        for (std::size_t node = index(view.job_first[job]); node < index(view.job_first[job + 1]); ++node) {
            const std::size_t at = index(place[node]);
            job_of_node[node] = job_at[at] = static_cast<std::int32_t>(job);
            input.row(0)[at] = held;
            input.row(1)[at] = own;
            input.row(2)[at] = free;
            input.row(3)[at] = view.work_ms[node] * decima::work_scale;
            input.row(4)[at] = view.tasks[node] * decima::tasks_scale;
        }
    }
}

namespace {

void stages_plain(DecimaWork& w, const DecimaView& view) { decima::Kernels<decima::Lanes4>::stages(w, view); }
void limits_plain(DecimaWork& w, std::size_t job, std::int32_t lowest) {
    decima::Kernels<decima::Lanes4>::limits(w, job, lowest);
}

#ifdef GNOMON_WIDER_VECTORS
[[gnu::target("avx2")]] void stages_avx2(DecimaWork& w, const DecimaView& view) {
    decima::Kernels<decima::Lanes8>::stages(w, view);
}
[[gnu::target("avx2")]] void limits_avx2(DecimaWork& w, std::size_t job, std::int32_t lowest) {
    decima::Kernels<decima::Lanes8>::limits(w, job, lowest);
}
[[gnu::target("avx512f")]] void stages_avx512(DecimaWork& w, const DecimaView& view) {
    decima::Kernels<decima::Lanes16>::stages(w, view);
}
[[gnu::target("avx512f")]] void limits_avx512(DecimaWork& w, std::size_t job, std::int32_t lowest) {
    decima::Kernels<decima::Lanes16>::limits(w, job, lowest);
}

#endif

}  // namespace

#ifdef GNOMON_WIDER_VECTORS
decima::Stages* const decima::stages = __builtin_cpu_supports("avx512f") ? stages_avx512
                                       : __builtin_cpu_supports("avx2")  ? stages_avx2
                                                                         : stages_plain;
decima::Limits* const decima::limits = __builtin_cpu_supports("avx512f") ? limits_avx512
                                       : __builtin_cpu_supports("avx2")  ? limits_avx2
                                                                         : limits_plain;
#else
decima::Stages* const decima::stages = stages_plain;
decima::Limits* const decima::limits = limits_plain;
#endif

Decima::Decima(std::span<const float> parameters) : work_(std::make_unique<DecimaWork>(parameters)) {}
Decima::~Decima() = default;
Decima::Decima(Decima&&) noexcept = default;
Decima& Decima::operator=(Decima&&) noexcept = default;

std::span<const float> Decima::stage_probabilities(const DecimaView& view) {
    DecimaWork& w = *work_;
    w.look(view);
    w.stage_p.resize(view.ready.size());
    decima::stages(w, view);
    decima::softmax(w.stage_p);
    return w.stage_p;
}

std::span<const float> Decima::limit_probabilities(std::int32_t job, std::int32_t lowest, std::int32_t highest) {
    DecimaWork& w = *work_;
    if (job < 0 || index(job) >= w.jobs) throw std::out_of_range("no such job in the last view");
    w.limit_p.resize(highest < lowest ? 0 : index(highest - lowest) + 1);
    decima::limits(w, index(job), lowest);
    decima::softmax(w.limit_p);
    return w.limit_p;
}

}  // namespace gnomon
