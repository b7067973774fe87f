// A scheduling policy as Python gives it: to the simulator and to the runtime.
#pragma once

#include "bindings/structs.hpp"
#include "policy/policy.hpp"

namespace gnomon::bindings {

struct Scheduling {
    std::uint8_t rule = 0;
    std::int64_t quantum = threads::unlimited, hard_quantum = 500'000, patience = threads::unlimited;
    std::size_t reserved = 0;
    double share = 0.0;

    [[nodiscard]] threads::PolicySettings settings() const {
        return {static_cast<threads::PolicyKind>(rule), quantum, hard_quantum, patience, reserved, share};
    }
};

inline void check_workers(const Scheduling& scheduling, std::size_t workers) {
    require(workers >= 1 && workers <= 4096, "1 to 4096 workers");
    require(scheduling.reserved < workers || scheduling.settings().kind != threads::PolicyKind::reserved,
            "a worker has to be left for other requests");
}

}  // namespace gnomon::bindings
