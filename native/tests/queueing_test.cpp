#include "engine/queueing/queueing.hpp"

#include <stdexcept>
#include <vector>

#include "tests/test.hpp"

namespace gnomon::tests {
namespace {

void every_job_is_served() {
    const auto arrival = poisson_arrivals(2000, 100.0, 3);
    const auto size = exponential_sizes(2000, 80.0, 3);
    for (const auto rule : {Discipline::fifo, Discipline::lifo, Discipline::shortest, Discipline::random}) {
        const auto served = serve(arrival, size, 2, rule, 5, {});
        bool all = true;
        for (std::size_t i = 0; i < size.size(); ++i)
            all = all && served.start[i] >= arrival[i] && served.end[i] == served.start[i] + size[i];
        expect(all, "every job is served after it arrives");
    }
}

void disciplines_choose() {
    const std::vector<std::int64_t> arrival{0, 1, 2}, size{10, 10, 1};
    using Times = std::vector<std::int64_t>;
    const auto start = [&](Discipline discipline, std::int32_t servers, const Choose& choose = {}) {
        return serve(arrival, size, servers, discipline, 0, choose).start;
    };
    expect(start(Discipline::fifo, 1) == Times({0, 10, 20}), "first come, first served");
    expect(start(Discipline::lifo, 1) == Times({0, 11, 10}), "last come, first served");
    expect(start(Discipline::shortest, 1) == Times({0, 11, 10}), "the shortest first");
    expect(start(Discipline::fifo, 2) == Times({0, 1, 10}), "two servers");
    const auto late = [](std::int64_t now, std::span<const std::int64_t>) { return now < 7 ? ~std::int64_t{7} : 0; };
    expect(start(Discipline::custom, 1, late) == Times({7, 17, 27}), "a policy may hold until a time");
    bool refused = false;
    try {
        start(Discipline::custom, 1, [](std::int64_t, std::span<const std::int64_t>) { return 9; });
    } catch (const std::out_of_range&) {
        refused = true;
    }
    expect(refused, "a job that does not wait cannot be picked");
}

}  // namespace

void queueing_tests() {
    every_job_is_served();
    disciplines_choose();
}

}  // namespace gnomon::tests
