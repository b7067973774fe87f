// Which quantum fits the load of now; `unlimited` if preemption does not pay. Reads no clock: the runtime and the
// simulator say what they have seen.
#pragma once

#include <span>
#include <vector>

#include "engine/cores/cores.hpp"

namespace gnomon::threads {

/// Since the last decision.
struct Seen {
    Nanoseconds period = 0;
    std::uint64_t arrivals = 0;
    std::uint64_t in_hand = 0;  // requests that wait or run, now
    std::size_t workers = 1;
    std::span<const std::int64_t> service;  // of the last requests that ended, without what preempting them cost
};

struct QuantumChoice {
    Nanoseconds quantum = unlimited;
    double load = 0.0;
    const char* why = "";
};

class QuantumController {
public:
    /// `is_paper`: the rules of LibPreemptible, which step the quantum by load and tail and know no cost. Otherwise the
    /// last requests are simulated with every quantum of a grid, at the cost and lateness of `mechanism`.
    QuantumController(bool is_paper, const PolicySettings& policy, const Mechanism& mechanism);

    QuantumChoice decide(const Seen& seen);

private:
    QuantumChoice step(const Seen& seen, double load);
    QuantumChoice search(const Seen& seen, double load);

    bool is_paper_;
    PolicySettings policy_;
    Mechanism mechanism_;
    std::vector<std::int64_t> late_;
    Nanoseconds quantum_;
    std::uint64_t decisions_ = 0, unfit_ = 0;
};

/// Exponent of a power law fitted to the largest hundredth of the values (Hill); infinite where they are too few or
/// equal.
double tail_index(std::span<const std::int64_t> values);

}  // namespace gnomon::threads
