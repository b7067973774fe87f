// What Decima's forward pass and its gradient share: nets over lanes, and the state of one decision.
// Everything here is inlined into functions that are compiled for one width of vectors.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/decima/network.hpp"
#include "engine/index.hpp"

// The kernels are compiled for the machine everybody has and again for wider vectors, which are
// chosen when the program runs. None knows fused multiply-add here (-ffp-contract=off).
#if defined(__x86_64__) && defined(__GNUC__)
#define GNOMON_WIDER_VECTORS 1
#endif
#define GNOMON_INLINE [[gnu::always_inline]] inline

namespace gnomon::decima {

inline constexpr std::size_t most_lanes = 16;
inline constexpr std::size_t width = 8;  // of embeddings, messages and summaries
inline constexpr float slope = 0.2F;     // of the leaky ReLU
// How the authors scale what the network sees.
inline constexpr float executors_scale = 1.0F / 20.0F;
inline constexpr float own_executor = 2.0F;
inline constexpr float work_scale = 1.0F / 100'000.0F;
inline constexpr float tasks_scale = 1.0F / 200.0F;
inline constexpr float limit_scale = 1.0F / 50.0F;

/// Numbers that are computed with at once: as many as a register of the machine holds.
using Lanes4 = float __attribute__((vector_size(16)));
using Lanes8 = float __attribute__((vector_size(32)));
using Lanes16 = float __attribute__((vector_size(64)));

template <typename Lanes>
GNOMON_INLINE void load(Lanes& to, const float* from) {
    __builtin_memcpy(&to, from, sizeof to);
}
template <typename Lanes>
GNOMON_INLINE void store(float* to, const Lanes& from) {
    __builtin_memcpy(to, &from, sizeof from);
}

/// Four numbers of each of four rows: rows become columns.
GNOMON_INLINE void transpose4(const float* from, std::size_t from_stride, float* to, std::size_t to_stride) {
    Lanes4 a, b, c, d;
    load(a, from);
    load(b, from + from_stride);
    load(c, from + 2 * from_stride);
    load(d, from + 3 * from_stride);
    const Lanes4 ab = __builtin_shufflevector(a, b, 0, 4, 1, 5), cd = __builtin_shufflevector(c, d, 0, 4, 1, 5);
    const Lanes4 ab_rest = __builtin_shufflevector(a, b, 2, 6, 3, 7);
    const Lanes4 cd_rest = __builtin_shufflevector(c, d, 2, 6, 3, 7);
    store(to, __builtin_shufflevector(ab, cd, 0, 1, 4, 5));
    store(to + to_stride, __builtin_shufflevector(ab, cd, 2, 3, 6, 7));
    store(to + 2 * to_stride, __builtin_shufflevector(ab_rest, cd_rest, 0, 1, 4, 5));
    store(to + 3 * to_stride, __builtin_shufflevector(ab_rest, cd_rest, 2, 3, 6, 7));
}

struct Layer {
    const float* weight;  // input x output
    const float* bias;
};

/// Layers of a net: how many inputs it has, and how many outputs each layer.
template <std::size_t In, std::size_t... Out>
struct Net {
    std::array<Layer, sizeof...(Out)> layer;

    /// Takes its parameters off the front of `parameters`.
    explicit Net(std::span<const float>& parameters) {
        std::size_t inputs = In, i = 0;
        for (const std::size_t outputs : {Out...}) {
            layer[i++] = {parameters.data(), parameters.data() + inputs * outputs};
            parameters = parameters.subspan(inputs * outputs + outputs);
            inputs = outputs;
        }
    }
};

using Embed = Net<width, 16, 8, 8>;

/// sums[o] += input[i] * weight[i][o] over the inputs. Eight outputs at a time: enough sums on the
/// way to hide how long an addition takes, few enough for sixteen registers.
template <std::size_t In, std::size_t Out, typename Lanes>
GNOMON_INLINE void accumulate(const float* weight, const Lanes* input, Lanes* sums) {
    constexpr std::size_t tile = Out < 8 ? Out : 8;
    static_assert(Out % tile == 0);
    for (std::size_t o = 0; o < Out; o += tile) {
        Lanes sum[tile];
        for (std::size_t t = 0; t < tile; ++t) sum[t] = sums[o + t];
        for (std::size_t i = 0; i < In; ++i) {
            const Lanes x = input[i];
            for (std::size_t t = 0; t < tile; ++t) sum[t] += x * weight[i * Out + o + t];
        }
        for (std::size_t t = 0; t < tile; ++t) sums[o + t] = sum[t];
    }
}

template <std::size_t Out, typename Lanes>
GNOMON_INLINE void activate(Lanes* sums) {
    for (std::size_t o = 0; o < Out; ++o) {
        const Lanes small = sums[o] * slope;
        sums[o] = sums[o] > small ? sums[o] : small;
    }
}

/// A layer, with its activation unless it is the last one.
template <std::size_t In, std::size_t Out, bool Active, typename Lanes>
GNOMON_INLINE void dense(const Layer& layer, const Lanes* input, Lanes* output) {
    constexpr std::size_t tile = Out < 8 ? Out : 8;
    static_assert(Out % tile == 0);
    for (std::size_t o = 0; o < Out; o += tile) {
        Lanes sum[tile];
        for (std::size_t t = 0; t < tile; ++t) sum[t] = Lanes{} + layer.bias[o + t];
        for (std::size_t i = 0; i < In; ++i) {
            const Lanes x = input[i];
            for (std::size_t t = 0; t < tile; ++t) sum[t] += x * layer.weight[i * Out + o + t];
        }
        if constexpr (Active) activate<tile>(sum);
        for (std::size_t t = 0; t < tile; ++t) output[o + t] = sum[t];
    }
}

template <std::size_t In, typename Lanes>
GNOMON_INLINE void embed(const Net<In, 16, 8, 8>& net, const Lanes* input, Lanes* output) {
    Lanes first[16], second[8];
    dense<In, 16, true>(net.layer[0], input, first);
    dense<16, 8, true>(net.layer[1], first, second);
    dense<8, 8, true>(net.layer[2], second, output);
}

/// The rest of a head, from the sums of its first layer.
template <std::size_t In, typename Lanes>
GNOMON_INLINE void score(const Net<In, 32, 16, 8, 1>& net, Lanes* first, Lanes& output) {
    Lanes second[16], third[8];
    activate<32>(first);
    dense<32, 16, true>(net.layer[1], first, second);
    dense<16, 8, true>(net.layer[2], second, third);
    dense<8, 1, false>(net.layer[3], third, &output);
}

/// Rows are features, columns are nodes or jobs. A block of lanes may start at any column, so there
/// is room for one more behind the last.
class Matrix {
public:
    explicit Matrix(std::size_t rows) : rows_(rows) {}

    void widen(std::size_t columns) {
        if (columns + most_lanes <= stride_) return;
        stride_ = (columns + columns / 2 + 2 * most_lanes) / most_lanes * most_lanes;
        values_.assign(rows_ * stride_, 0.0F);
    }
    void clear() { std::fill(values_.begin(), values_.end(), 0.0F); }
    [[nodiscard]] float* row(std::size_t r) { return values_.data() + r * stride_; }
    [[nodiscard]] const float* row(std::size_t r) const { return values_.data() + r * stride_; }

private:
    std::size_t rows_, stride_ = 0;
    std::vector<float> values_;
};

/// A copy of the parameters; std::invalid_argument if they are not Decima's.
std::vector<float> checked(std::span<const float> parameters);

/// Scores to probabilities, in place; std::runtime_error if a score is not a number.
void softmax(std::vector<float>& scores);

}  // namespace gnomon::decima

namespace gnomon {

/// Parameters, and what one decision has been computed to; kept from decision to decision.
struct DecimaWork {
    std::vector<float> parameters;
    std::span<const float> unread;  // consumed by the nets below, in this order
    decima::Net<5, 16, 8, 8> prepare;
    decima::Embed process, aggregate;
    decima::Net<13, 16, 8, 8> summarize_job;
    decima::Embed summarize_all;
    decima::Net<29, 32, 16, 8, 1> stage_head;
    decima::Net<20, 32, 16, 8, 1> limit_head;

    // Nodes stand in order of height, of equal height those with parents first: a step of the
    // message passing then has its nodes side by side.
    std::size_t nodes = 0, jobs = 0;
    std::vector<std::uint8_t> has_parent;
    std::vector<std::int32_t> group_first;     // first place of nodes with key 2 x height + (no parent)
    std::vector<std::int32_t> place, node_at;  // of a node, and back
    std::vector<std::int32_t> job_of_node, job_at;
    decima::Matrix job_input{3}, job_summary{decima::width}, job_score{32};
    decima::Matrix input{5}, embedding{decima::width};
    // Eight numbers side by side, since they are added to one another as a whole.
    std::vector<float> message;     // of each node, by place
    std::vector<float> job_summed;  // of each job; `job_summary` is the same by feature
    std::array<float, decima::width> global_summary{};
    std::vector<float> stage_p, limit_p;

    explicit DecimaWork(std::span<const float> given)
        : parameters(decima::checked(given)),
          unread(parameters),
          prepare(unread),
          process(unread),
          aggregate(unread),
          summarize_job(unread),
          summarize_all(unread),
          stage_head(unread),
          limit_head(unread) {}

    /// Places of the nodes and inputs of the nets, from a view.
    void look(const DecimaView& view);

private:
    void arrange(const DecimaView& view);
    void fill_inputs(const DecimaView& view);
};

namespace decima {

template <typename Lanes>
struct Kernels {
    static constexpr std::size_t lanes = sizeof(Lanes) / sizeof(float);

    template <std::size_t Rows>
    GNOMON_INLINE static void load_block(const Matrix& matrix, std::size_t at, Lanes* block) {
        for (std::size_t r = 0; r < Rows; ++r) load(block[r], matrix.row(r) + at);
    }

    template <std::size_t Rows>
    GNOMON_INLINE static void store_block(Matrix& matrix, std::size_t at, const Lanes* block) {
        for (std::size_t r = 0; r < Rows; ++r) store(matrix.row(r) + at, block[r]);
    }

    /// Numbers of each lane side by side.
    GNOMON_INLINE static void to_rows(const Lanes* block, float* rows) {
        float columns[width][lanes];
        for (std::size_t f = 0; f < width; ++f) store(columns[f], block[f]);
        for (std::size_t lane = 0; lane < lanes; lane += 4) {
            for (std::size_t f = 0; f < width; f += 4) {
                transpose4(&columns[f][lane], lanes, rows + lane * width + f, width);
            }
        }
    }

    /// And back.
    GNOMON_INLINE static void to_block(const float* rows, Lanes* block) {
        float columns[width][lanes];
        for (std::size_t lane = 0; lane < lanes; lane += 4) {
            for (std::size_t f = 0; f < width; f += 4) {
                transpose4(rows + lane * width + f, width, &columns[f][lane], lanes);
            }
        }
        for (std::size_t f = 0; f < width; ++f) load(block[f], columns[f]);
    }

    GNOMON_INLINE static void add_row(float* sum, const float* row) {
        Lanes8 x, y;
        load(x, sum);
        load(y, row);
        store(sum, x + y);
    }

    GNOMON_INLINE static void prepare(DecimaWork& w) {
        for (std::size_t at = 0; at < w.nodes; at += lanes) {
            Lanes in[5], out[width];
            load_block<5>(w.input, at, in);
            embed(w.prepare, in, out);
            store_block<width>(w.embedding, at, out);
        }
    }

    /// Messages of the nodes at [from, to). What is written behind them is overwritten by the turn
    /// of those that stand there.
    GNOMON_INLINE static void send(DecimaWork& w, std::size_t from, std::size_t to) {
        for (std::size_t at = from; at < to; at += lanes) {
            Lanes in[width], out[width];
            load_block<width>(w.embedding, at, in);
            embed(w.process, in, out);
            to_rows(out, w.message.data() + at * width);
        }
    }

    /// Sums of the messages that `count` nodes from `at` on got from their children.
    GNOMON_INLINE static void messages_of(const DecimaWork& w, const DecimaView& view, std::size_t at,
                                          std::size_t count, Lanes* block) {
        float sums[lanes * width] = {};
        for (std::size_t lane = 0; lane < count; ++lane) {
            const std::size_t node = index(w.node_at[at + lane]);
            for (auto e = view.child_first[node]; e < view.child_first[node + 1]; ++e) {
                const std::size_t child = index(w.place[index(view.child[index(e)])]);
                add_row(sums + lane * width, w.message.data() + child * width);
            }
        }
        to_block(sums, block);
    }

    GNOMON_INLINE static void receive(DecimaWork& w, const DecimaView& view, std::size_t from, std::size_t to) {
        for (std::size_t at = from; at < to; at += lanes) {
            const std::size_t count = std::min(lanes, to - at);
            Lanes in[width], out[width];
            messages_of(w, view, at, count, in);
            embed(w.aggregate, in, out);
            Lanes own[width];
            load_block<width>(w.embedding, at, own);
            // Behind the last one stand nodes whose turn has not come.
            if (count < lanes) {
                for (std::size_t f = 0; f < width; ++f) {
                    for (std::size_t lane = count; lane < lanes; ++lane) out[f][lane] = 0.0F;
                }
            }
            for (std::size_t f = 0; f < width; ++f) own[f] += out[f];
            store_block<width>(w.embedding, at, own);
        }
    }

    /// Equation 1 of the paper from the leaves to the roots. The authors' program stops after eight
    /// levels; here all are gone through, which is the same for jobs that are no deeper.
    GNOMON_INLINE static void pass_messages(DecimaWork& w, const DecimaView& view) {
        const std::size_t levels = w.group_first.size() / 2 - 1;
        for (std::size_t level = 0; level < levels; ++level) {
            const auto first = index(w.group_first[2 * level]);
            const auto childless = index(w.group_first[2 * level + 1]);
            if (level > 0) receive(w, view, first, index(w.group_first[2 * level + 2]));
            send(w, first, childless);
        }
    }

    GNOMON_INLINE static void summarize(DecimaWork& w) {
        for (std::size_t at = 0; at < w.nodes; at += lanes) {
            Lanes in[5 + width], out[width];
            load_block<5>(w.input, at, in);
            load_block<width>(w.embedding, at, in + 5);
            embed(w.summarize_job, in, out);
            const std::size_t count = std::min(lanes, w.nodes - at);
            float rows[lanes * width];
            to_rows(out, rows);
            for (std::size_t lane = 0; lane < count; ++lane) {
                add_row(w.job_summed.data() + index(w.job_at[at + lane]) * width, rows + lane * width);
            }
        }
        w.global_summary = {};
        for (std::size_t at = 0; at < w.jobs; at += lanes) {
            Lanes in[width], out[width];
            to_block(w.job_summed.data() + at * width, in);
            store_block<width>(w.job_summary, at, in);
            embed(w.summarize_all, in, out);
            const std::size_t count = std::min(lanes, w.jobs - at);
            float rows[lanes * width];
            to_rows(out, rows);
            for (std::size_t lane = 0; lane < count; ++lane) add_row(w.global_summary.data(), rows + lane * width);
        }
    }

    /// What a job's nodes share of the stage head's first layer: its bias, the job's inputs (0 to 2)
    /// and the two summaries (13 to 28).
    GNOMON_INLINE static void score_jobs(DecimaWork& w) {
        const Layer& layer = w.stage_head.layer[0];
        for (std::size_t at = 0; at < w.jobs; at += lanes) {
            Lanes in[3 + 2 * width], sums[32];
            load_block<3>(w.job_input, at, in);
            load_block<width>(w.job_summary, at, in + 3);
            for (std::size_t f = 0; f < width; ++f) in[3 + width + f] = Lanes{} + w.global_summary[f];
            for (std::size_t o = 0; o < 32; ++o) sums[o] = Lanes{} + layer.bias[o];
            accumulate<3, 32>(layer.weight, in, sums);
            accumulate<2 * width, 32>(layer.weight + 13 * 32, in + 3, sums);
            store_block<32>(w.job_score, at, sums);
        }
    }

    GNOMON_INLINE static void score_stages(DecimaWork& w, const DecimaView& view) {
        const Layer& layer = w.stage_head.layer[0];
        const std::size_t ready = view.ready.size();
        for (std::size_t at = 0; at < ready; at += lanes) {
            const std::size_t count = std::min(lanes, ready - at);
            float own[2 + width][lanes] = {}, shared[32][lanes] = {};
            for (std::size_t lane = 0; lane < count; ++lane) {
                const std::size_t node = index(view.ready[at + lane]);
                const std::size_t stands = index(w.place[node]), job = index(w.job_of_node[node]);
                own[0][lane] = w.input.row(3)[stands];
                own[1][lane] = w.input.row(4)[stands];
                for (std::size_t f = 0; f < width; ++f) own[2 + f][lane] = w.embedding.row(f)[stands];
                for (std::size_t o = 0; o < 32; ++o) shared[o][lane] = w.job_score.row(o)[job];
            }
            Lanes in[2 + width], sums[32], scores;
            for (std::size_t f = 0; f < 2 + width; ++f) load(in[f], own[f]);
            for (std::size_t o = 0; o < 32; ++o) load(sums[o], shared[o]);
            accumulate<2 + width, 32>(layer.weight + 3 * 32, in, sums);
            score(w.stage_head, sums, scores);
            for (std::size_t lane = 0; lane < count; ++lane) w.stage_p[at + lane] = scores[lane];
        }
    }

    GNOMON_INLINE static void stages(DecimaWork& w, const DecimaView& view) {
        prepare(w);
        pass_messages(w, view);
        summarize(w);
        score_jobs(w);
        score_stages(w, view);
    }

    GNOMON_INLINE static void limits(DecimaWork& w, std::size_t job, std::int32_t lowest) {
        const Layer& layer = w.limit_head.layer[0];
        float shared[32];  // all of the first layer's sum but the limit's term, its last
        for (std::size_t o = 0; o < 32; ++o) shared[o] = layer.bias[o];
        const auto add = [&](std::size_t input, float value) {
            for (std::size_t o = 0; o < 32; ++o) shared[o] += value * layer.weight[input * 32 + o];
        };
        for (std::size_t i = 0; i < 3; ++i) add(i, w.job_input.row(i)[job]);
        for (std::size_t f = 0; f < width; ++f) add(3 + f, w.job_summary.row(f)[job]);
        for (std::size_t f = 0; f < width; ++f) add(3 + width + f, w.global_summary[f]);
        const float* const of_limit = layer.weight + 19 * 32;
        for (std::size_t at = 0; at < w.limit_p.size(); at += lanes) {
            float limit[lanes];
            for (std::size_t lane = 0; lane < lanes; ++lane) {
                limit[lane] = static_cast<float>(lowest + static_cast<std::int32_t>(at + lane)) * limit_scale;
            }
            Lanes in, sums[32], scores;
            load(in, limit);
            for (std::size_t o = 0; o < 32; ++o) sums[o] = in * of_limit[o] + shared[o];
            score(w.limit_head, sums, scores);
            const std::size_t count = std::min(lanes, w.limit_p.size() - at);
            for (std::size_t lane = 0; lane < count; ++lane) w.limit_p[at + lane] = scores[lane];
        }
    }
};

/// The forward pass at this machine's width: scores of the ready stages into `stage_p`, of a job's
/// limits from `lowest` on into `limit_p`, both as long as the caller has made them.
using Stages = void(DecimaWork&, const DecimaView&);
using Limits = void(DecimaWork&, std::size_t job, std::int32_t lowest);
extern Stages* const stages;
extern Limits* const limits;

}  // namespace decima
}  // namespace gnomon
