#include "engine/placement/placement.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <utility>
#include <vector>

#include "tests/test.hpp"

namespace gnomon::tests {
namespace {

/// Random fleets and jobs: no server ever holds more than it has, every job runs as long as it
/// should.
void placements_stay_in_bounds() {
    std::mt19937_64 rng(5);
    const auto pick = [&](std::int64_t low, std::int64_t high) {
        return std::uniform_int_distribution<std::int64_t>(low, high)(rng);
    };
    for (int round = 0; round < 300; ++round) {
        const auto count = static_cast<std::size_t>(pick(1, 5));
        std::vector<std::int32_t> servers, room;
        std::vector<double> speed;
        std::vector<std::pair<std::int32_t, Part>> order;
        const bool sleep = pick(0, 1) == 1;
        for (std::size_t g = 0; g < count; ++g) {
            servers.push_back(static_cast<std::int32_t>(pick(1, pick(0, 9) == 0 ? 5000 : 70)));
            room.push_back(static_cast<std::int32_t>(pick(1, 130)));
            speed.push_back(static_cast<double>(pick(1, 8)) / 4);
            const auto group = static_cast<std::int32_t>(g);
            if (sleep && pick(0, 1) == 1) {
                order.push_back({group, Part::asleep});
                order.push_back({group, Part::awake});
            } else {
                order.push_back({group, Part::any});
            }
        }
        std::shuffle(order.begin(), order.end(), rng);
        const auto most = *std::max_element(room.begin(), room.end());
        std::vector<std::int64_t> release, work;
        std::vector<std::int32_t> slots;
        for (int job = 0; job < 400; ++job) {
            release.push_back(pick(0, 2000));
            slots.push_back(static_cast<std::int32_t>(pick(1, most)));
            work.push_back(pick(0, 3000));
        }
        std::sort(release.begin(), release.end());
        std::vector<std::int32_t> group;
        std::vector<std::uint8_t> part;
        for (const auto& [of, which] : order) {
            group.push_back(of);
            part.push_back(static_cast<std::uint8_t>(which));
        }
        const auto placed = place({servers, room, speed}, {group, part}, {release, slots, work}, sleep);
        bool right = true;
        std::map<std::pair<std::int32_t, std::int32_t>, std::map<std::int64_t, std::int64_t>> changes;
        for (std::size_t job = 0; job < release.size(); ++job) {
            const auto g = static_cast<std::size_t>(placed.group[job]);
            right &= placed.start[job] >= release[job] && placed.server[job] < servers[g];
            right &= placed.end[job] - placed.start[job] == std::llround(static_cast<double>(work[job]) / speed[g]);
            auto& own = changes[{placed.group[job], placed.server[job]}];
            own[placed.start[job]] += slots[job];
            own[placed.end[job]] -= slots[job];
        }
        for (const auto& [where, steps] : changes) {
            std::int64_t held = 0;
            for (const auto& [time, change] : steps) {
                held += change;
                right &= held >= 0 && held <= room[static_cast<std::size_t>(where.first)];
            }
        }
        for (std::size_t i = 0; i < placed.awake_from.size(); ++i) {
            right &= placed.awake_from[i] <= placed.awake_until[i];
        }
        expect(right, "a placement keeps within its servers");
    }
    const std::vector<std::int64_t> time{0, 10, 20, 30}, early{0, 3}, late{15, 3}, length{5, 20};
    const std::vector<double> area{0.0, 50.0, 60.0, 90.0};
    const auto starts = cleanest_starts(time, area, early, late, length);
    expect(starts[0] == 10 && starts[1] == 3, "the cleanest start");
}

/// A small slow server before a large fast one; the third job waits for all of the large one.
void jobs_go_where_they_fit() {
    const std::vector<std::int32_t> servers{1, 1}, room{2, 4}, group{0, 1}, slots{2, 2, 4};
    const std::vector<double> speed{1.0, 2.0};
    const std::vector<std::uint8_t> part{0, 0};
    const std::vector<std::int64_t> release{0, 0, 0}, work{100, 100, 100};
    const auto placed = place({servers, room, speed}, {group, part}, {release, slots, work}, true);
    expect(placed.group == std::vector<std::int32_t>({0, 1, 1}), "each job on the first server with room");
    expect(placed.start == std::vector<std::int64_t>({0, 0, 50}), "a job waits for room");
    expect(placed.end == std::vector<std::int64_t>({100, 50, 100}), "a fast server takes less time");
    expect(placed.awake_from == std::vector<std::int64_t>({0, 0, 50}) &&
               placed.awake_until == std::vector<std::int64_t>({50, 100, 100}),
           "an empty server sleeps");
}

}  // namespace

void placement_tests() {
    placements_stay_in_bounds();
    jobs_go_where_they_fit();
}

}  // namespace gnomon::tests
