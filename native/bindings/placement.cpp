#include "engine/placement/placement.hpp"

#include <nanobind/stl/tuple.h>

#include "bindings/arrays.hpp"

namespace gnomon::bindings {
namespace {

bool is_sorted_up(std::span<const std::int64_t> values) {
    return std::is_sorted(values.begin(), values.end());
}

/// Every job fits on an empty server of some candidate that may be used for it.
bool all_fit(std::span<const Candidate> order, std::span<const std::int32_t> room,
             std::span<const std::int32_t> slots) {
    std::int32_t most = 0;
    for (const auto& candidate : order) most = std::max(most, room[static_cast<std::size_t>(candidate.group)]);
    return all_within(slots, 1, most);
}

/// With sleepers, a group may only be left out whole: a part alone could never be reached again.
bool is_order(std::span<const Candidate> order, std::size_t groups, bool sleep) {
    std::vector<unsigned> parts(groups);
    for (const auto& candidate : order) {
        if (candidate.group < 0 || static_cast<std::size_t>(candidate.group) >= groups) return false;
        parts[static_cast<std::size_t>(candidate.group)] |= 1U << static_cast<unsigned>(candidate.part);
    }
    return std::all_of(parts.begin(), parts.end(), [sleep](unsigned have) {
        const bool whole = have & 1U;
        return have == 0 || whole || (sleep ? (have & 6U) == 6U : (have & 2U) != 0);
    });
}

}  // namespace

void bind_placement(nb::module_& m) {
    m.def(
        "place",
        [](In<std::int32_t> servers, In<std::int32_t> room, In<double> speed, In<std::int32_t> order,
           In<std::uint8_t> parts, In<std::int64_t> release, In<std::int32_t> slots,
           In<std::int64_t> work, bool empty_servers_sleep) {
            require(servers.size() == room.size() && servers.size() == speed.size() &&
                        all_within(view(servers), 1, 1 << 24) && all_within(view(room), 1, 1 << 20) &&
                        std::all_of(speed.data(), speed.data() + speed.size(),
                                    [](double s) { return s > 1e-6 && s < 1e6; }),
                    "every group needs servers, slots and a speed above zero");
            require(order.size() == parts.size() && all_within(view(parts), 0, 2),
                    "every candidate needs a group and a part");
            std::vector<Candidate> candidates(order.size());
            for (std::size_t c = 0; c < candidates.size(); ++c) {
                candidates[c] = {order.data()[c], static_cast<Part>(parts.data()[c])};
            }
            require(is_order(candidates, servers.size(), empty_servers_sleep),
                    "candidates have to be groups that exist, whole or with both parts");
            require(release.size() == slots.size() && release.size() == work.size() &&
                        is_sorted_up(view(release)),
                    "every job needs a release, slots and work, in order of release");
            require(all_within(view(release), -kFarthest, kFarthest) &&
                        all_within(view(work), 0, std::int64_t{1} << 60),
                    "a time is more than 146 years off zero: are these nanoseconds?");
            require(all_fit(candidates, view(room), view(slots)),
                    "a job needs more slots than any server has");
            PlacedJobs placed;
            {
                nb::gil_scoped_release let_go;
                placed = place({view(servers), view(room), view(speed)}, candidates, view(release),
                               view(slots), view(work), empty_servers_sleep);
            }
            return std::make_tuple(
                to_numpy(std::move(placed.start)), to_numpy(std::move(placed.end)),
                to_numpy(std::move(placed.group)), to_numpy(std::move(placed.server)),
                to_numpy(std::move(placed.awake_group)), to_numpy(std::move(placed.awake_from)),
                to_numpy(std::move(placed.awake_until)));
        },
        nb::arg("servers").noconvert(), nb::arg("room").noconvert(), nb::arg("speed").noconvert(),
        nb::arg("order").noconvert(), nb::arg("parts").noconvert(), nb::arg("release").noconvert(),
        nb::arg("slots").noconvert(), nb::arg("work").noconvert(), nb::arg("empty_servers_sleep"),
        "Start, end, group and server of each job; group, begin and end of each time awake.");
    m.def(
        "cleanest_starts",
        [](In<std::int64_t> time, In<double> area, In<std::int64_t> earliest,
           In<std::int64_t> latest, In<std::int64_t> length) {
            require(time.size() >= 2 && time.size() == area.size() && is_sorted_up(view(time)) &&
                        std::adjacent_find(time.data(), time.data() + time.size()) ==
                            time.data() + time.size(),
                    "areas need increasing times");
            require(earliest.size() == latest.size() && earliest.size() == length.size(),
                    "every job needs an earliest and a latest start and a length");
            const auto first = time.data()[0];
            const auto last = time.data()[time.size() - 1];
            for (std::size_t job = 0; job < earliest.size(); ++job) {
                const auto length_of = length.data()[job];
                require(earliest.data()[job] >= first && earliest.data()[job] <= latest.data()[job] &&
                            length_of >= 0 && length_of <= last - first &&
                            latest.data()[job] <= last - length_of,
                        "a job does not lie within the times of the areas");
            }
            std::vector<std::int64_t> starts;
            {
                nb::gil_scoped_release let_go;
                starts = cleanest_starts(view(time), view(area), view(earliest), view(latest), view(length));
            }
            return to_numpy(std::move(starts));
        },
        nb::arg("time").noconvert(), nb::arg("area").noconvert(), nb::arg("earliest").noconvert(),
        nb::arg("latest").noconvert(), nb::arg("length").noconvert(),
        "For each job the start with the least area under it.");
}

}  // namespace gnomon::bindings
