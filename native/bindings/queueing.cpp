#include "engine/queueing/queueing.hpp"

#include "bindings/structs.hpp"

namespace gnomon::bindings {

void bind_queueing(nb::module_& m) {
    nb::enum_<Discipline>(m, "Discipline")
        .value("fifo", Discipline::fifo)
        .value("lifo", Discipline::lifo)
        .value("shortest", Discipline::shortest)
        .value("random", Discipline::random)
        .value("custom", Discipline::custom);
    bind_result<Served>(m, "Served", "Start, end and server of each job.", Column{"start", &Served::start},
                        Column{"end", &Served::end}, Column{"server", &Served::server});
    m.def(
        "serve",
        [](In<std::int64_t> arrival, In<std::int64_t> size, std::int32_t servers, Discipline discipline,
           std::uint64_t seed, nb::object choose) {
            require(arrival.size() == size.size() && servers > 0 && all_within(view(size), 0, INT64_MAX),
                    "every job needs an arrival and a size of 0 or more, and a server");
            Choose call;
            if (!choose.is_none()) {
                // A copy: the policy may keep what it was shown.
                call = [&choose](std::int64_t now, std::span<const std::int64_t> waiting) {
                    nb::gil_scoped_acquire acquire;
                    auto jobs = to_numpy(std::vector<std::int64_t>(waiting.begin(), waiting.end()));
                    return nb::cast<std::int64_t>(choose(now, jobs));
                };
            }
            nb::gil_scoped_release release;
            return serve(view(arrival), view(size), servers, discipline, seed, call);
        },
        nb::kw_only(), nb::arg("arrival").noconvert(), nb::arg("size").noconvert(), nb::arg("servers"),
        nb::arg("discipline"), nb::arg("seed") = 0, nb::arg("choose").none() = nb::none(),
        "Plays jobs through a queue.");
    m.def(
        "poisson_arrivals",
        [](std::int64_t count, double mean_gap_ns, std::uint64_t seed) {
            return to_numpy(poisson_arrivals(count, mean_gap_ns, seed));
        },
        nb::arg("count"), nb::arg("mean_gap_ns"), nb::arg("seed"));
    m.def(
        "exponential_sizes",
        [](std::int64_t count, double mean_ns, std::uint64_t seed) {
            return to_numpy(exponential_sizes(count, mean_ns, seed));
        },
        nb::arg("count"), nb::arg("mean_ns"), nb::arg("seed"));
}

}  // namespace gnomon::bindings
