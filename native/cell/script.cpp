#include "cell/script.hpp"

#include <algorithm>

#include "cell/server.hpp"
#include "clock.hpp"

namespace gnomon::cell {
namespace {

/// A timer is some 50 us late: one that is due so soon is not worth it.
constexpr std::int64_t soon_ns = 25'000;
constexpr std::int64_t ahead_ns = 1'000'000;

}  // namespace

std::int64_t Player::caught_up(std::int64_t planned_ns) const { return std::max(planned_ns, now_ns() - catch_up_ns_); }

/// What a message says of its plan. We are never much ahead of it: a wilder time is nobody's plan.
std::int64_t Player::believed(std::int64_t planned_ns) const {
    return caught_up(std::min(planned_ns, now_ns() + ahead_ns));
}

void Player::begin(Request& request, std::int64_t planned_ns) {
    const Script& script = *request.node->script;
    request.playing = std::make_unique<Playing>();
    Playing& playing = *request.playing;
    playing.begin_ns = playing.last_ns = believed(planned_ns) + script.lead_ns;
    playing.pending = script.steps.size();
    playing.base_ns.assign(script.steps.size(), playing.begin_ns);
    playing.unanswered.reserve(script.steps.size());
    for (const auto& step : script.steps) playing.unanswered.push_back(static_cast<std::uint32_t>(step.after.size()));
    if (script.steps.empty()) return start(request, 0);
    for (std::size_t i = 0; i < script.steps.size(); ++i)
        if (script.steps[i].after.empty()) start(request, i);
}

/// All that a step (past the last: the end) waits for has happened.
void Player::start(Request& request, std::size_t step) {
    const Script& script = *request.node->script;
    Playing& playing = *request.playing;
    const bool is_end = step == script.steps.size();
    const std::int64_t cpu_ns = is_end ? script.rest_cpu_ns : script.steps[step].cpu_ns;
    if (cpu_ns > 0) {
        playing.spinning = step;
        return workers_.enqueue(request.priority, {&request, cpu_ns, false});
    }
    if (is_end) wait(request, step, playing.last_ns + script.rest_ns);
    else wait(request, step, playing.base_ns[step] + script.steps[step].delay_ns);
}

void Player::on_spun(Request& request) {
    const Script& script = *request.node->script;
    const Playing& playing = *request.playing;
    const std::size_t step = playing.spinning;
    if (step == script.steps.size())
        return wait(request, step,
                    caught_up(playing.last_ns + script.rest_cpu_ns) + script.rest_ns - script.rest_cpu_ns);
    const Step& own = script.steps[step];
    wait(request, step, caught_up(playing.base_ns[step] + own.cpu_ns) + own.delay_ns - own.cpu_ns);
}

void Player::wait(Request& request, std::size_t step, std::int64_t planned_ns) {
    const auto then = [this, &request, step, planned_ns] { act(request, step, planned_ns); };
    if (planned_ns - now_ns() > soon_ns) loop_.at(planned_ns, then);
    else loop_.post(then);
}

void Player::act(Request& request, std::size_t step, std::int64_t planned_ns) {
    const Script& script = *request.node->script;
    Playing& playing = *request.playing;
    if (step == script.steps.size()) {
        playing.end_ns = caught_up(planned_ns);
        playing.has_ended = true;
        return listener_.end(request);
    }
    ++playing.under_way;
    listener_.call(request, script.steps[step], static_cast<std::uint32_t>(step), caught_up(planned_ns));
    if (!script.steps[step].is_waited) settle_one(request);
}

void Player::settle_one(Request& request) {
    if (--request.playing->pending == 0) start(request, request.node->script->steps.size());
}

std::int64_t Player::answered_ns(const Call& call, const Step& step) const {
    // Without an answer it broke: that takes what it takes.
    return call.answered_ns == 0 ? now_ns() : believed(call.answered_ns) + step.tail_ns;
}

void Player::on_answered(Request& request, std::uint32_t step, std::int64_t answered_ns) {
    const auto& steps = request.node->script->steps;
    Playing& playing = *request.playing;
    --playing.under_way;
    for (const auto later : steps[step].before) {
        playing.base_ns[later] = std::max(playing.base_ns[later], answered_ns);
        if (--playing.unanswered[later] == 0) start(request, later);
    }
    if (!steps[step].is_waited) return;
    playing.last_ns = std::max(playing.last_ns, answered_ns);
    settle_one(request);
}

}  // namespace gnomon::cell
