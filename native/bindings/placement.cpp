#include "engine/placement/placement.hpp"

#include "bindings/structs.hpp"
#include "engine/index.hpp"

namespace gnomon::bindings {
namespace {

void check_groups(const ServerGroups& groups) {
    require(groups.servers.size() == groups.slots.size() && groups.servers.size() == groups.speed.size() &&
                all_within(groups.servers, 1, 1 << 24) && all_within(groups.slots, 1, 1 << 20) &&
                std::all_of(groups.speed.begin(), groups.speed.end(), [](double s) { return s > 1e-6 && s < 1e6; }),
            "every group needs servers, slots and a speed above zero");
}

void check_preference(const Preference& order) {
    require(order.group.size() == order.part.size() && all_within(order.part, 0, 2),
            "every candidate needs a group and a part");
}

void check_jobs(const PlacementJobs& jobs) {
    require(
        jobs.release.size() == jobs.slots.size() && jobs.release.size() == jobs.work.size() && is_rising(jobs.release),
        "every job needs a release, slots and work, in order of release");
    require(all_within(jobs.release, -farthest, farthest) && all_within(jobs.work, 0, std::int64_t{1} << 60),
            "a time is more than 146 years off zero: are these nanoseconds?");
}

/// With sleepers, a group may only be left out whole: a part alone could never be reached again.
bool is_order(const Preference& order, std::size_t groups, bool sleep) {
    if (!all_within(order.group, 0, static_cast<std::int64_t>(groups) - 1)) return false;
    std::vector<unsigned> parts(groups);
    for (std::size_t c = 0; c < order.group.size(); ++c) {
        parts[index(order.group[c])] |= 1U << order.part[c];
    }
    return std::all_of(parts.begin(), parts.end(), [sleep](unsigned have) {
        const bool whole = have & 1U;
        return have == 0 || whole || (sleep ? (have & 6U) == 6U : (have & 2U) != 0);
    });
}

/// Every job fits on an empty server of some candidate that may be used for it.
bool all_fit(const ServerGroups& groups, const Preference& order, const PlacementJobs& jobs) {
    std::int32_t most = 0;
    for (const auto group : order.group) most = std::max(most, groups.slots[index(group)]);
    return all_within(jobs.slots, 1, most);
}

}  // namespace

void bind_placement(nb::module_& m) {
    bind_input(m, "ServerGroups", "Equal servers, group by group.", &check_groups,
               required("servers", &ServerGroups::servers), required("slots", &ServerGroups::slots),
               required("speed", &ServerGroups::speed));
    bind_input(m, "Preference", "Groups of servers, or parts of them, the best first.", &check_preference,
               required("group", &Preference::group), required("part", &Preference::part));
    bind_input(m, "PlacementJobs", "Jobs in order of release.", &check_jobs,
               required("release", &PlacementJobs::release), required("slots", &PlacementJobs::slots),
               required("work", &PlacementJobs::work));
    bind_result<PlacedJobs>(
        m, "PlacedJobs", "Where and when each job ran, and when servers were awake.",
        Column{"start", &PlacedJobs::start}, Column{"end", &PlacedJobs::end}, Column{"group", &PlacedJobs::group},
        Column{"server", &PlacedJobs::server}, Column{"awake_group", &PlacedJobs::awake_group},
        Column{"awake_from", &PlacedJobs::awake_from}, Column{"awake_until", &PlacedJobs::awake_until});
    m.def(
        "place",
        [](const Passed<ServerGroups>& groups, const Passed<Preference>& order, const Passed<PlacementJobs>& jobs,
           bool empty_servers_sleep) {
            require(is_order(order, groups.servers.size(), empty_servers_sleep),
                    "candidates have to be groups that exist, whole or with both parts");
            require(all_fit(groups, order, jobs), "a job needs more slots than any server has");
            nb::gil_scoped_release release;
            return place(groups, order, jobs, empty_servers_sleep);
        },
        nb::kw_only(), nb::arg("groups"), nb::arg("order"), nb::arg("jobs"), nb::arg("empty_servers_sleep"),
        "Places jobs on servers.");
    m.def(
        "cleanest_starts",
        [](In<std::int64_t> time, In<double> area, In<std::int64_t> earliest, In<std::int64_t> latest,
           In<std::int64_t> length) {
            require(time.size() >= 2 && time.size() == area.size() && is_rising(view(time)) &&
                        std::adjacent_find(time.data(), time.data() + time.size()) == time.data() + time.size(),
                    "areas need increasing times");
            require(earliest.size() == latest.size() && earliest.size() == length.size(),
                    "every job needs an earliest and a latest start and a length");
            const auto first = time.data()[0];
            const auto last = time.data()[time.size() - 1];
            for (std::size_t job = 0; job < earliest.size(); ++job) {
                const auto length_of = length.data()[job];
                require(earliest.data()[job] >= first && earliest.data()[job] <= latest.data()[job] && length_of >= 0 &&
                            length_of <= last - first && latest.data()[job] <= last - length_of,
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
