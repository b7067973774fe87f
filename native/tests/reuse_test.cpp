#include "profile/reuse.hpp"

#include <algorithm>
#include <list>
#include <random>

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

}  // namespace

void reuse_tests() { distances_are_those_of_a_list(); }

}  // namespace gnomon::tests
