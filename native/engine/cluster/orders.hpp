// Orders: which stage is served next. The baselines, Decima, and PCAPS over a probabilistic one.
#pragma once

#include <memory>
#include <vector>

#include "engine/cluster/carbon_rules.hpp"
#include "engine/cluster/policy.hpp"

namespace gnomon {

/// The first job that came, all executors; a job that an executor just came free of goes first.
class FifoOrder : public Order {
public:
    /// `per_job` bounds what one job holds. Where executors are kept, none leaves its application
    /// before that is done, as for Spark on Kubernetes without dynamic allocation.
    explicit FifoOrder(std::int32_t per_job = INT32_MAX, bool keep = false) : per_job_(per_job), keep_(keep) {}
    Choice next(ClusterState& state, Rng& rng) override;
    [[nodiscard]] bool keeps_executors() const override { return keep_; }

private:
    std::int32_t per_job_;
    bool keep_;
};

/// Every job the same share, or one by its work to the power of `exponent` and its weight.
class FairOrder : public Order {
public:
    explicit FairOrder(double exponent = 0.0) : exponent_(exponent) {}
    void begin(const ClusterState& state) override;
    Choice next(ClusterState& state, Rng& rng) override;

private:
    void share_out(const ClusterState& state);

    double exponent_;
    std::uint32_t shared_at_ = 0;      // the epoch that shares are of
    std::vector<double> weight_;       // in order of arrival
    std::vector<std::int32_t> share_;  // by slot
};

/// The job with the least work left.
class ShortestOrder : public Order {
public:
    Choice next(ClusterState& state, Rng& rng) override;
};

/// The stage with the longest way to its job's end.
class CriticalPathOrder : public Order {
public:
    Choice next(ClusterState& state, Rng& rng) override;
};

/// An order that gives every open stage a chance, and draws one.
class ProbabilisticOrder : public Order {
public:
    Choice next(ClusterState& state, Rng& rng) override;

    /// All stages that could be served now, with a chance each; empty where there is none.
    std::span<const OpenStage> gather(ClusterState& state);
    std::span<const double> chances() const { return chances_; }
    /// The place of the one that is drawn.
    std::size_t draw(Rng& rng) const;
    /// What is done for it.
    Choice serve(const ClusterState& state, std::size_t drawn, Rng& rng);

protected:
    /// How many executors its job may hold.
    virtual std::int32_t limit(const ClusterState& state, std::size_t drawn, Rng& rng) = 0;
    /// How many of the idle executors may be given out.
    [[nodiscard]] virtual std::int32_t offer(const ClusterState& state) { return state.idle(); }
    /// Whether a job's stages are to be weighed at all.
    [[nodiscard]] virtual bool wants_more(const ClusterState&, std::int32_t) const { return true; }
    /// Fills `chances_`, one for each of `candidates_`, so that they add up to 1.
    virtual void weigh(const ClusterState& state) = 0;

    std::vector<OpenStage> candidates_;
    std::vector<double> chances_;
    std::int32_t offered_ = 0;  // of the idle executors those that may be given out
};

/// A softmax over the ways to the end, each as a share of the longest: `sharpness` times that.
class PathSoftmaxOrder final : public ProbabilisticOrder {
public:
    explicit PathSoftmaxOrder(double sharpness) : sharpness_(sharpness) {}

protected:
    std::int32_t limit(const ClusterState& state, std::size_t drawn, Rng& rng) override;
    void weigh(const ClusterState& state) override;

private:
    double sharpness_;
};

/// PCAPS (Algorithm 1): the drawn stage runs if its importance lets it at this intensity.
class PcapsOrder final : public Order {
public:
    PcapsOrder(std::shared_ptr<ProbabilisticOrder> inner, double gamma, Narrowing narrowing)
        : inner_(std::move(inner)), gamma_(gamma), narrowing_(narrowing) {}
    void begin(const ClusterState& state) override { inner_->begin(state); }
    Choice next(ClusterState& state, Rng& rng) override;
    [[nodiscard]] bool keeps_idle(std::int32_t application) const override { return inner_->keeps_idle(application); }

private:
    std::shared_ptr<ProbabilisticOrder> inner_;
    double gamma_;
    Narrowing narrowing_;
};

}  // namespace gnomon
