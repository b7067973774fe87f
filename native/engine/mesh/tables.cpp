#include "engine/mesh/tables.hpp"

#include <algorithm>
#include <functional>
#include <map>

#include "engine/index.hpp"

namespace gnomon::mesh {
namespace {

std::vector<Draw> draws_of(const Input& in) {
    std::vector<Draw> draws;
    for (std::size_t d = 0; d < in.draw_shape.size(); ++d) {
        const auto shape = static_cast<Shape>(in.draw_shape[d]);
        if (shape == Shape::lognormal) {
            draws.push_back(lognormal(in.draw_mean[d], in.draw_cv[d]));
            continue;
        }
        const auto from = index(in.draw_points[d]), count = index(in.draw_points[d + 1]) - from;
        draws.push_back({shape, in.draw_mean[d], 0.0, in.share.subspan(from, count), in.value.subspan(from, count)});
    }
    return draws;
}

/// The place of a callee among the pools of its caller.
std::int32_t pool_to(const std::vector<std::pair<std::int32_t, std::int32_t>>& pools, std::int32_t callee) {
    const auto found = std::find_if(pools.begin(), pools.end(), [=](const auto& pool) { return pool.first == callee; });
    return found == pools.end() ? -1 : static_cast<std::int32_t>(found - pools.begin());
}

}  // namespace

Tables::Tables(const Input& in) : draws(draws_of(in)), pools(in.service_replicas.size()) {
    std::map<std::int32_t, std::int32_t, std::greater<>> by_priority;
    for (const auto priority : in.class_priority) by_priority[priority] = 0;
    std::int32_t next = 0;
    for (auto& entry : by_priority) entry.second = next++;
    ranks = std::max<std::size_t>(by_priority.size(), 1);
    for (const auto priority : in.class_priority) rank.push_back(by_priority[priority]);

    for (std::size_t p = 0; p < in.pool_service.size(); ++p)
        pools[index(in.pool_service[p])].emplace_back(in.pool_callee[p], in.pool_size[p]);

    // Parents come first: what a call hands down to the calls below it is known by then.
    const auto count = in.call_service.size();
    std::vector<std::int32_t> class_of(count, -1), pool_of(count, -1);
    for (std::size_t c = 0; c < in.class_call.size(); ++c)
        class_of[index(in.class_call[c])] = static_cast<std::int32_t>(c);
    std::map<std::pair<std::int32_t, std::int32_t>, std::int32_t> pair_of;
    for (std::size_t c = 0; c < count; ++c) {
        const auto service = in.call_service[c];
        const auto [place, is_new] =
            pair_of.try_emplace({class_of[c], service}, static_cast<std::int32_t>(pairs.size()));
        if (is_new) pairs.emplace_back(class_of[c], service);
        calls.push_back({service, in.call_cpu[c], in.call_wait[c], in.call_stage[c], in.call_stage[c + 1],
                         place->second, pool_of[c], in.call_retries[c], in.call_timeout[c], in.call_probability[c],
                         in.call_error_share[c], in.call_is_queued[c] != 0});
        for (auto s = index(in.call_stage[c]); s < index(in.call_stage[c + 1]); ++s)
            for (auto below = index(in.stage_call[s]); below < index(in.stage_call[s + 1]); ++below) {
                class_of[below] = class_of[c];
                pool_of[below] = pool_to(pools[index(service)], in.call_service[below]);
            }
    }
}

}  // namespace gnomon::mesh
