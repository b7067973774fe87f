// Gates: what the grid forbids for now. CAP and other quotas, GreenHadoop, windows, elastic jobs,
// and the look-ahead of pcaps+.
#pragma once

#include <vector>

#include "engine/cluster/policy.hpp"

namespace gnomon {

/// So many executors may be busy, or held, by step of the grid: CAP, suspend-resume, a fixed quota.
class QuotaGate final : public Gate {
public:
    /// With `narrows`, a job's limit shrinks as the quota does (CAP: P' = ceil(P r / K)). With
    /// `each_task` it holds for every task that starts, else only before decisions. With `of_held`
    /// it is one of executors that applications hold.
    QuotaGate(std::span<const std::int32_t> quota, bool narrows, bool each_task, bool of_held)
        : quota_(quota.begin(), quota.end()), narrows_(narrows), each_task_(each_task), of_held_(of_held) {}
    [[nodiscard]] std::int32_t quota(const ClusterState& state) override;
    [[nodiscard]] std::int32_t limit(const ClusterState& state, std::int32_t slot, std::int32_t limit) override;
    [[nodiscard]] bool asks_each_task() const override { return each_task_; }
    [[nodiscard]] bool counts_held() const override { return of_held_; }

private:
    std::vector<std::int32_t> quota_;
    bool narrows_, each_task_, of_held_;
};

/// GreenHadoop (Goiri et al., EuroSys 2012) on a grid: all green capacity now, and as much brown
/// as the work needs that green hours of the window will not do. How green an hour is, is where
/// it lies between the dirtiest (0) and the cleanest (1) hour expected.
class GreenHadoopGate final : public Gate {
public:
    explicit GreenHadoopGate(double theta) : theta_(theta) {}
    [[nodiscard]] std::int32_t quota(const ClusterState& state) override;

private:
    double theta_;
};

/// Let's Wait Awhile (Wiesner et al., Middleware 2021): a job waits for the cleanest hours of its
/// window, in one piece or in as many as it takes.
class WindowGate final : public Gate {
public:
    WindowGate(std::int32_t window, bool whole) : window_(window), whole_(whole) {}
    void on_arrival(const ClusterState& state, std::int32_t slot) override;
    [[nodiscard]] bool admits(const ClusterState& state, std::int32_t slot, std::int32_t stage) override;

private:
    std::int32_t window_;
    bool whole_;
    std::vector<std::vector<char>> plan_;  // by slot: may it run in this step of its window
    std::vector<std::size_t> planned_at_;
};

/// After CarbonScaler (Hanafy et al., SIGMETRICS 2024): executors for a job go to the hours where
/// one more does most work a gram, until its work is done.
class ScalerGate final : public Gate {
public:
    explicit ScalerGate(std::int32_t window) : window_(window) {}
    void on_arrival(const ClusterState& state, std::int32_t slot) override;
    [[nodiscard]] bool admits(const ClusterState& state, std::int32_t slot, std::int32_t stage) override;
    [[nodiscard]] std::int32_t limit(const ClusterState& state, std::int32_t slot, std::int32_t limit) override;

private:
    [[nodiscard]] std::int32_t planned(const ClusterState& state, std::int32_t slot) const;

    std::int32_t window_;
    std::vector<std::vector<std::int32_t>> plan_;  // by slot: executors in this step
    std::vector<std::size_t> planned_at_;
};

/// pcaps+: every ready stage is asked whether this hour is among the cleanest that it needs.
///
/// A stage needs as many hours as its way to the job's end takes, or as all waiting work takes on
/// the whole cluster if that is more. It may run if fewer hours than that are expected to be
/// cleaner before its job has to be done. So the longer the way to the end, the dirtier an hour
/// may be: precedence decides, by the duration model, and the deadline is kept by itself.
class LookAheadGate final : public Gate {
public:
    struct Settings {
        std::int32_t window = 24;             // hours after its arrival that a job may be held
        double margin = 0.0;                  // an hour counts as cleaner if it is so by this share
        double spread = 1.0;                  // how much of the cluster waiting work may take
        double careful = 1.0;                 // hours needed, times this
        std::span<const std::int32_t> width;  // of each kind: executors up to which it stays
                                              // efficient; empty: as the order says
    };
    explicit LookAheadGate(const Settings& settings)
        : settings_(settings), width_(settings.width.begin(), settings.width.end()) {}
    [[nodiscard]] bool admits(const ClusterState& state, std::int32_t slot, std::int32_t stage) override;
    [[nodiscard]] std::int32_t limit(const ClusterState& state, std::int32_t slot, std::int32_t limit) override;

private:
    Settings settings_;
    std::vector<std::int32_t> width_;
};

}  // namespace gnomon
