#include "profile/reuse.hpp"

#include <algorithm>
#include <list>
#include <random>

#include "profile/set_cache.hpp"
#include "tests/test.hpp"

namespace gnomon::tests {
namespace {

/// The same as a list that is searched from the front, whatever the lines, also when stamps run out.
void distances_are_those_of_a_list() {
    std::mt19937_64 rng(5);
    bool is_same = true;
    for (int round = 0; round < 20; ++round) {
        profile::ReuseStack fast(64);
        std::list<std::uint64_t> slow;
        const std::uint64_t lines = 1 + rng() % 400;
        for (int i = 0; i < 3000; ++i) {
            // Near ones more often than far ones.
            const std::uint64_t line = std::min(rng() % lines, rng() % lines);
            const auto found = std::find(slow.begin(), slow.end(), line);
            std::size_t wanted = profile::buckets - 1;
            if (found != slow.end()) {
                wanted = profile::bucket_of(static_cast<std::uint64_t>(std::distance(slow.begin(), found)));
                slow.erase(found);
            }
            slow.push_front(line);
            is_same = is_same && fast.touch(line) == wanted;
        }
    }
    expect(is_same, "reuse: distances are those of a list");
}

/// With one set it misses what was touched as many lines ago as it has, or never; lines of other sets do not matter.
void a_set_forgets_what_was_touched_longest_ago() {
    std::mt19937_64 rng(6);
    bool is_same = true;
    for (const std::size_t sets : {1, 4, 64}) {
        const std::size_t ways = 8;
        profile::SetCache cache(sets * ways, ways);
        std::list<std::uint64_t> slow;
        for (int i = 0; i < 20000; ++i) {
            const std::uint64_t line = std::min(rng() % (20 * sets), rng() % (20 * sets));
            const auto found = std::find(slow.begin(), slow.end(), line);
            const auto nearer = std::count_if(slow.begin(), found, [&](auto one) { return one % sets == line % sets; });
            const bool is_miss = found == slow.end() || static_cast<std::size_t>(nearer) >= ways;
            if (found != slow.end()) slow.erase(found);
            slow.push_front(line);
            is_same = is_same && cache.misses(line) == is_miss;
        }
    }
    expect(is_same, "set cache: misses are those of lists, one a set");
}

}  // namespace

void reuse_tests() {
    distances_are_those_of_a_list();
    a_set_forgets_what_was_touched_longest_ago();
}

}  // namespace gnomon::tests
