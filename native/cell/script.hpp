// Recorded visits: calls at their recorded times, in sequence or in parallel as they were.
//
// A recording already contains what its own runtime took. Ours would come on top, so every message
// says when it was planned to be sent, and waits count from there: a call that came 40 us late is
// made up for by a wait of 40 us less. A request is never made up for by more than `catch_up_ns`:
// what is later than that is a machine that is too slow, and has to show.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "cell/config.hpp"
#include "cell/loop.hpp"
#include "cell/pool.hpp"
#include "cell/workers.hpp"

namespace gnomon::cell {

/// How far a recorded visit has come. Times are planned ones.
struct Playing {
    std::int64_t begin_ns = 0, last_ns = 0;  // its begin, and the last answer that its end waits for
    std::int64_t end_ns = 0;
    std::vector<std::uint32_t> unanswered;  // by step: steps that it still waits for
    std::vector<std::int64_t> base_ns;      // by step: when the last of them was answered
    std::size_t pending = 0;                // steps that the end still waits for
    std::size_t under_way = 0;              // calls without an answer
    std::size_t spinning = 0;               // the step whose CPU time is being spent; all of them: the end
    bool has_ended = false;
};

class Player {
public:
    struct Listener {
        std::function<void(Request&, const Step&, std::uint32_t, std::int64_t planned_ns)> call;
        std::function<void(Request&)> end;
    };

    Player(Loop& loop, Workers& workers, std::int64_t catch_up_ns, Listener listener)
        : loop_(loop), workers_(workers), catch_up_ns_(catch_up_ns), listener_(std::move(listener)) {}

    /// A visit whose call was planned to be sent then. Nothing happens before the end of this turn.
    void begin(Request& request, std::int64_t planned_ns);
    /// The CPU time of a step was spent.
    void on_spun(Request& request);
    /// When a call was answered, by plan.
    [[nodiscard]] std::int64_t answered_ns(const Call& call, const Step& step) const;
    void on_answered(Request& request, std::uint32_t step, std::int64_t answered_ns);

private:
    void start(Request& request, std::size_t step);
    void wait(Request& request, std::size_t step, std::int64_t planned_ns);
    void act(Request& request, std::size_t step, std::int64_t planned_ns);
    void settle_one(Request& request);
    [[nodiscard]] std::int64_t caught_up(std::int64_t planned_ns) const;
    [[nodiscard]] std::int64_t believed(std::int64_t planned_ns) const;

    Loop& loop_;
    Workers& workers_;
    const std::int64_t catch_up_ns_;
    const Listener listener_;
};

}  // namespace gnomon::cell
