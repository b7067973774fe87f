#include "engine/decima/gradient.hpp"

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "engine/decima/kernels.hpp"
#include "engine/index.hpp"

namespace gnomon {

using decima::width;

/// Derivatives of the loss by what the forward pass computed.
struct DecimaBackward {
    decima::Matrix embedding{width}, message{width}, job_summary{width};
    std::array<float, width> global_summary{};
    std::vector<float> stage, limit;  // by score
    // Of each parameter sixteen sums, so that lanes need not be added up; emptied into `total`
    // before float32 has too few digits. Which of the sixteen a node goes to does not depend on the
    // width of the vectors, so neither does the gradient.
    std::vector<float> sums = std::vector<float>(Decima::parameter_count * decima::most_lanes);
    std::vector<double> total = std::vector<double>(Decima::parameter_count);
    std::int64_t nodes_added = 0;
    static constexpr std::int64_t most_nodes = 20'000;

    void clear(const DecimaWork& w) {
        embedding.widen(w.nodes);
        message.widen(w.nodes);
        job_summary.widen(w.jobs);
        embedding.clear();
        message.clear();
        job_summary.clear();
        global_summary = {};
    }

    void empty_sums() {
        for (std::size_t p = 0; p < total.size(); ++p) {
            for (std::size_t lane = 0; lane < decima::most_lanes; ++lane) {
                total[p] += static_cast<double>(sums[p * decima::most_lanes + lane]);
            }
        }
        std::fill(sums.begin(), sums.end(), 0.0F);
        nodes_added = 0;
    }
};

namespace {

using decima::Layer;
using decima::Matrix;
using decima::most_lanes;
using decima::Net;

template <typename Lanes>
struct Reverse {
    static constexpr std::size_t lanes = sizeof(Lanes) / sizeof(float);
    using Forward = decima::Kernels<Lanes>;

    DecimaWork& w;
    DecimaBackward& b;
    std::size_t slot = 0;  // of the first lane among the sixteen sums

    /// Begins a block at this distance from the start of its row; how many of its lanes count.
    GNOMON_INLINE std::size_t begin(std::size_t distance, std::size_t left) {
        slot = distance % most_lanes;
        return std::min(lanes, left);
    }

    /// From the derivatives by a layer's sums: adds those by its parameters, gives those by its
    /// inputs from `first` on.
    template <std::size_t In, std::size_t Out>
    GNOMON_INLINE void layer(const Layer& of, const Lanes* input, const Lanes* by_sum, Lanes* by_input,
                             std::size_t first = 0) {
        float* const weights = b.sums.data() + (of.weight - w.parameters.data()) * std::ptrdiff_t{most_lanes} + slot;
        for (std::size_t i = 0; i < In; ++i) {
            for (std::size_t o = 0; o < Out; ++o) {
                float* const at = weights + (i * Out + o) * most_lanes;
                Lanes sum;
                decima::load(sum, at);
                sum += input[i] * by_sum[o];
                decima::store(at, sum);
            }
        }
        float* const biases = weights + In * Out * most_lanes;
        for (std::size_t o = 0; o < Out; ++o) {
            Lanes sum;
            decima::load(sum, biases + o * most_lanes);
            sum += by_sum[o];
            decima::store(biases + o * most_lanes, sum);
        }
        for (std::size_t i = first; i < In; ++i) {
            Lanes sum = by_sum[0] * of.weight[i * Out];
            for (std::size_t o = 1; o < Out; ++o) sum += by_sum[o] * of.weight[i * Out + o];
            by_input[i] = sum;
        }
    }

    /// Derivatives by a layer's sums from those by its outputs.
    template <std::size_t Out>
    GNOMON_INLINE static void through_activation(const Lanes* output, Lanes* by_output) {
        for (std::size_t o = 0; o < Out; ++o) {
            by_output[o] = output[o] > 0.0F ? by_output[o] : by_output[o] * decima::slope;
        }
    }

    /// `by_output` is used up; of `by_input` the rows from `first` on are filled.
    template <std::size_t In>
    GNOMON_INLINE void embed(const Net<In, 16, 8, 8>& net, const Lanes* input, Lanes* by_output, Lanes* by_input,
                             std::size_t first = 0) {
        Lanes one[16], two[8], three[8], by_one[16], by_two[8];
        decima::dense<In, 16, true>(net.layer[0], input, one);
        decima::dense<16, 8, true>(net.layer[1], one, two);
        decima::dense<8, 8, false>(net.layer[2], two, three);
        through_activation<8>(three, by_output);
        layer<8, 8>(net.layer[2], two, by_output, by_two);
        through_activation<8>(two, by_two);
        layer<16, 8>(net.layer[1], one, by_two, by_one);
        through_activation<16>(one, by_one);
        layer<In, 16>(net.layer[0], input, by_one, by_input, first);
    }

    template <std::size_t In>
    GNOMON_INLINE void score(const Net<In, 32, 16, 8, 1>& net, const Lanes* input, const Lanes& by_score,
                             Lanes* by_input, std::size_t first) {
        Lanes one[32], two[16], three[8], by_one[32], by_two[16], by_three[8];
        decima::dense<In, 32, true>(net.layer[0], input, one);
        decima::dense<32, 16, true>(net.layer[1], one, two);
        decima::dense<16, 8, true>(net.layer[2], two, three);
        layer<8, 1>(net.layer[3], three, &by_score, by_three);
        through_activation<8>(three, by_three);
        layer<16, 8>(net.layer[2], two, by_three, by_two);
        through_activation<16>(two, by_two);
        layer<32, 16>(net.layer[1], one, by_two, by_one);
        through_activation<32>(one, by_one);
        layer<In, 32>(net.layer[0], input, by_one, by_input, first);
    }

    /// A block whose lanes from `count` on are zero: what is left there from before must not count.
    template <std::size_t Rows>
    GNOMON_INLINE static void load_some(const Matrix& matrix, std::size_t at, std::size_t count, Lanes* block) {
        Forward::template load_block<Rows>(matrix, at, block);
        for (std::size_t lane = count; lane < lanes; ++lane) {
            for (std::size_t r = 0; r < Rows; ++r) block[r][lane] = 0.0F;
        }
    }

    GNOMON_INLINE static void add_some(Matrix& matrix, std::size_t at, std::size_t count, const Lanes* block) {
        for (std::size_t f = 0; f < width; ++f) {
            float* const to = matrix.row(f) + at;
            for (std::size_t lane = 0; lane < count; ++lane) to[lane] += block[f][lane];
        }
    }

    GNOMON_INLINE void stage_head(const DecimaView& view) {
        for (std::size_t at = 0; at < view.ready.size(); at += lanes) {
            const std::size_t count = begin(at, view.ready.size() - at);
            Lanes in[29] = {}, by_score = {}, by_in[29];
            for (std::size_t lane = 0; lane < count; ++lane) {
                const std::size_t node = index(view.ready[at + lane]);
                const std::size_t stands = index(w.place[node]), job = index(w.job_of_node[node]);
                for (std::size_t f = 0; f < 5; ++f) in[f][lane] = w.input.row(f)[stands];
                for (std::size_t f = 0; f < width; ++f) {
                    in[5 + f][lane] = w.embedding.row(f)[stands];
                    in[5 + width + f][lane] = w.job_summary.row(f)[job];
                    in[5 + 2 * width + f][lane] = w.global_summary[f];
                }
                by_score[lane] = b.stage[at + lane];
            }
            score(w.stage_head, in, by_score, by_in, 5);
            for (std::size_t lane = 0; lane < count; ++lane) {
                const std::size_t node = index(view.ready[at + lane]);
                const std::size_t stands = index(w.place[node]), job = index(w.job_of_node[node]);
                for (std::size_t f = 0; f < width; ++f) {
                    b.embedding.row(f)[stands] += by_in[5 + f][lane];
                    b.job_summary.row(f)[job] += by_in[5 + width + f][lane];
                    b.global_summary[f] += by_in[5 + 2 * width + f][lane];
                }
            }
        }
    }

    GNOMON_INLINE void limit_head(std::size_t job, std::int32_t lowest) {
        for (std::size_t at = 0; at < b.limit.size(); at += lanes) {
            const std::size_t count = begin(at, b.limit.size() - at);
            Lanes in[20] = {}, by_score = {}, by_in[20];
            for (std::size_t f = 0; f < 3; ++f) in[f] += w.job_input.row(f)[job];
            for (std::size_t f = 0; f < width; ++f) {
                in[3 + f] += w.job_summary.row(f)[job];
                in[3 + width + f] += w.global_summary[f];
            }
            for (std::size_t lane = 0; lane < count; ++lane) {
                in[19][lane] = static_cast<float>(lowest + static_cast<std::int32_t>(at + lane)) * decima::limit_scale;
                by_score[lane] = b.limit[at + lane];
            }
            score(w.limit_head, in, by_score, by_in, 3);
            for (std::size_t f = 0; f < width; ++f) {
                for (std::size_t lane = 0; lane < count; ++lane) {
                    b.job_summary.row(f)[job] += by_in[3 + f][lane];
                    b.global_summary[f] += by_in[3 + width + f][lane];
                }
            }
        }
    }

    GNOMON_INLINE void summaries() {
        for (std::size_t at = 0; at < w.jobs; at += lanes) {
            const std::size_t count = begin(at, w.jobs - at);
            Lanes in[width], by_out[width] = {}, by_in[width];
            Forward::template load_block<width>(w.job_summary, at, in);
            for (std::size_t f = 0; f < width; ++f) {
                for (std::size_t lane = 0; lane < count; ++lane) by_out[f][lane] = b.global_summary[f];
            }
            embed(w.summarize_all, in, by_out, by_in);
            add_some(b.job_summary, at, count, by_in);
        }
        for (std::size_t at = 0; at < w.nodes; at += lanes) {
            const std::size_t count = begin(at, w.nodes - at);
            Lanes in[5 + width], by_out[width] = {}, by_in[5 + width];
            Forward::template load_block<5>(w.input, at, in);
            Forward::template load_block<width>(w.embedding, at, in + 5);
            for (std::size_t f = 0; f < width; ++f) {
                const float* const by_summary = b.job_summary.row(f);
                for (std::size_t lane = 0; lane < count; ++lane) by_out[f][lane] = by_summary[w.job_at[at + lane]];
            }
            embed(w.summarize_job, in, by_out, by_in, 5);
            add_some(b.embedding, at, count, by_in + 5);
        }
    }

    GNOMON_INLINE void send(std::size_t from, std::size_t to) {
        for (std::size_t at = from; at < to; at += lanes) {
            const std::size_t count = begin(at - from, to - at);
            Lanes in[width], by_out[width], by_in[width];
            Forward::template load_block<width>(w.embedding, at, in);
            load_some<width>(b.message, at, count, by_out);
            embed(w.process, in, by_out, by_in);
            add_some(b.embedding, at, count, by_in);
        }
    }

    GNOMON_INLINE void receive(const DecimaView& view, std::size_t from, std::size_t to) {
        for (std::size_t at = from; at < to; at += lanes) {
            const std::size_t count = begin(at - from, to - at);
            Lanes in[width], by_out[width], by_in[width];
            Forward::messages_of(w, view, at, count, in);
            load_some<width>(b.embedding, at, count, by_out);
            embed(w.aggregate, in, by_out, by_in);
            for (std::size_t lane = 0; lane < count; ++lane) {
                const std::size_t node = index(w.node_at[at + lane]);
                for (auto e = view.child_first[node]; e < view.child_first[node + 1]; ++e) {
                    const std::size_t child = index(w.place[index(view.child[index(e)])]);
                    for (std::size_t f = 0; f < width; ++f) b.message.row(f)[child] += by_in[f][lane];
                }
            }
        }
    }

    /// From the roots to the leaves: a node's derivatives are whole when all its parents had their
    /// turn.
    GNOMON_INLINE void messages(const DecimaView& view) {
        for (std::size_t level = w.group_first.size() / 2 - 1; level-- > 0;) {
            const auto first = index(w.group_first[2 * level]);
            send(first, index(w.group_first[2 * level + 1]));
            if (level > 0) receive(view, first, index(w.group_first[2 * level + 2]));
        }
    }

    GNOMON_INLINE void preparation() {
        for (std::size_t at = 0; at < w.nodes; at += lanes) {
            const std::size_t count = begin(at, w.nodes - at);
            Lanes in[5], by_out[width], by_in[5];
            Forward::template load_block<5>(w.input, at, in);
            load_some<width>(b.embedding, at, count, by_out);
            embed(w.prepare, in, by_out, by_in, 5);
        }
    }

    GNOMON_INLINE void run(const DecimaView& view, std::size_t job, std::int32_t lowest) {
        stage_head(view);
        limit_head(job, lowest);
        summaries();
        messages(view);
        preparation();
    }
};

/// Derivatives by the scores of -advantage x log p(taken) - entropy_weight x entropy, the entropy
/// as a share of that of even chances.
struct ByScore {
    double entropy = 0.0, log_probability = 0.0;

    ByScore(std::span<const float> p, std::size_t taken, float advantage, float entropy_weight,
            std::vector<float>& by_score) {
        constexpr float least = 1e-30F;
        constexpr float negligible = 1e-12F;  // what comes of it would be denormal, and slow
        for (const float x : p) entropy -= static_cast<double>(x * std::log(std::max(x, least)));
        const float scale = p.size() > 1 ? 1.0F / std::log(static_cast<float>(p.size())) : 0.0F;
        by_score.resize(p.size());
        for (std::size_t i = 0; i < p.size(); ++i) {
            const float pull = (std::log(std::max(p[i], least)) + static_cast<float>(entropy)) * scale;
            by_score[i] = advantage * (p[i] - (i == taken ? 1.0F : 0.0F)) + entropy_weight * p[i] * pull;
            if (std::abs(by_score[i]) < negligible) by_score[i] = 0.0F;
        }
        entropy *= static_cast<double>(scale);
        log_probability = static_cast<double>(std::log(std::max(p[taken], least)));
    }
};

using Run = void(DecimaWork&, DecimaBackward&, const DecimaView&, std::size_t job, std::int32_t lowest);

void run_plain(DecimaWork& w, DecimaBackward& b, const DecimaView& view, std::size_t job, std::int32_t lowest) {
    Reverse<decima::Lanes4>{w, b}.run(view, job, lowest);
}

#ifdef GNOMON_WIDER_VECTORS
[[gnu::target("avx2")]] void run_avx2(DecimaWork& w, DecimaBackward& b, const DecimaView& view, std::size_t job,
                                      std::int32_t lowest) {
    Reverse<decima::Lanes8>{w, b}.run(view, job, lowest);
}
[[gnu::target("avx512f")]] void run_avx512(DecimaWork& w, DecimaBackward& b, const DecimaView& view, std::size_t job,
                                           std::int32_t lowest) {
    Reverse<decima::Lanes16>{w, b}.run(view, job, lowest);
}
Run* const run = __builtin_cpu_supports("avx512f") ? run_avx512 : __builtin_cpu_supports("avx2") ? run_avx2 : run_plain;
#else
Run* const run = run_plain;
#endif

}  // namespace

DecimaGradient::DecimaGradient(std::span<const float> parameters)
    : work_(std::make_unique<DecimaWork>(parameters)), backward_(std::make_unique<DecimaBackward>()) {}
DecimaGradient::~DecimaGradient() = default;
DecimaGradient::DecimaGradient(DecimaGradient&&) noexcept = default;
DecimaGradient& DecimaGradient::operator=(DecimaGradient&&) noexcept = default;

void DecimaGradient::add(const DecimaView& view, const DecimaChoice& choice, float advantage, float entropy_weight) {
    DecimaWork& w = *work_;
    DecimaBackward& b = *backward_;
    w.look(view);
    w.stage_p.resize(view.ready.size());
    w.limit_p.resize(index(choice.highest - choice.lowest) + 1);
    decima::stages(w, view);
    decima::limits(w, index(choice.job), choice.lowest);
    decima::softmax(w.stage_p);
    decima::softmax(w.limit_p);
    b.clear(w);
    const ByScore stage(w.stage_p, index(choice.chosen), advantage, entropy_weight, b.stage);
    const ByScore limit(w.limit_p, index(choice.limit - choice.lowest), advantage, entropy_weight, b.limit);
    entropy_ += stage.entropy + limit.entropy;
    log_probability_ += stage.log_probability + limit.log_probability;
    run(w, b, view, index(choice.job), choice.lowest);
    b.nodes_added += static_cast<std::int64_t>(w.nodes);
    if (b.nodes_added > DecimaBackward::most_nodes) b.empty_sums();
}

std::vector<double> DecimaGradient::sum() {
    backward_->empty_sums();
    return backward_->total;
}

}  // namespace gnomon
