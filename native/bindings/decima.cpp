#include <nanobind/stl/tuple.h>

#include "bindings/structs.hpp"
#include "engine/decima/gradient.hpp"
#include "engine/decima/network.hpp"
#include "engine/index.hpp"

namespace gnomon::bindings {
namespace {

bool heights_rise(const DecimaView& view) {
    for (std::size_t node = 0; node < view.height.size(); ++node) {
        for (auto e = view.child_first[node]; e < view.child_first[node + 1]; ++e) {
            const auto child = index(view.child[index(e)]);
            if (view.height[child] >= view.height[node]) return false;
        }
    }
    return true;
}

void check_view(const DecimaView& view) {
    const std::size_t nodes = view.work_ms.size(), jobs = view.job_executors.size();
    const auto last_node = static_cast<std::int64_t>(nodes) - 1, last_job = static_cast<std::int64_t>(jobs) - 1;
    require(starts_ranges(view.job_first, jobs, nodes), "job_first must rise from 0 to the number of nodes");
    require(view.tasks.size() == nodes && view.height.size() == nodes, "every node needs work, tasks and a height");
    require(starts_ranges(view.child_first, nodes, view.child.size()), "child_first must rise from 0 to the edges");
    require(all_within(view.child, 0, last_node), "a child is no node");
    require(all_within(view.height, 0, last_node) && heights_rise(view), "a node stands higher than its children");
    require(all_within(view.ready, 0, last_node), "a ready node is no node");
    require(view.source_job >= -1 && view.source_job <= last_job, "the source job is no job");
}

/// Decisions as `DecimaRecord` holds them, and views of one after the other.
class Decisions {
public:
    explicit Decisions(const nb::dict& record)
        : first_job(record, "first_job"),
          first_node(record, "first_node"),
          first_edge(record, "first_edge"),
          first_ready(record, "first_ready"),
          job_nodes(record, "job_nodes"),
          height(record, "height"),
          edge_parent(record, "edge_parent"),
          edge_child(record, "edge_child"),
          ready(record, "ready"),
          source_job(record, "source_job"),
          chosen(record, "chosen"),
          job(record, "job"),
          limit(record, "limit"),
          lowest(record, "lowest"),
          highest(record, "highest"),
          job_executors(record, "job_executors"),
          work_ms(record, "work_ms"),
          tasks(record, "tasks"),
          free_executors(record, "free_executors") {
        const std::size_t count = size();
        for (const auto* column : {&source_job, &chosen, &job, &limit, &lowest, &highest}) {
            require(column->values.size() == count, "every decision needs a source, a choice and limits");
        }
        require(free_executors.values.size() == count, "every decision needs free executors");
        require(rises(first_job, count, job_nodes) && rises(first_job, count, job_executors) &&
                    rises(first_node, count, work_ms) && rises(first_node, count, tasks) &&
                    rises(first_node, count, height) && rises(first_edge, count, edge_parent) &&
                    rises(first_edge, count, edge_child) && rises(first_ready, count, ready),
                "the firsts of a record must rise from 0 to the length of their columns");
    }

    [[nodiscard]] std::size_t size() const { return chosen.values.size(); }

    /// The view of a decision; what it spans is valid until the next call.
    DecimaView look(std::size_t decision) {
        const auto nodes = part(work_ms, first_node, decision);
        const auto parents = part(edge_parent, first_edge, decision);
        job_first_.assign(1, 0);
        for (const auto count : part(job_nodes, first_job, decision)) {
            require(count >= 0, "a job has fewer than no nodes");
            job_first_.push_back(job_first_.back() + count);
        }
        require(std::is_sorted(parents.begin(), parents.end()) &&
                    all_within(parents, 0, static_cast<std::int64_t>(nodes.size()) - 1),
                "edges must be in the order of their parents");
        child_first_.assign(nodes.size() + 1, 0);
        for (const auto parent : parents) ++child_first_[index(parent) + 1];
        for (std::size_t i = 0; i < nodes.size(); ++i) child_first_[i + 1] += child_first_[i];
        const DecimaView view{job_first_,
                              part(job_executors, first_job, decision),
                              source_job.values[decision],
                              free_executors.values[decision],
                              nodes,
                              part(tasks, first_node, decision),
                              child_first_,
                              part(edge_child, first_edge, decision),
                              part(height, first_node, decision),
                              part(ready, first_ready, decision)};
        check_view(view);
        return view;
    }

    [[nodiscard]] DecimaChoice choice(std::size_t decision, const DecimaView& view) const {
        const DecimaChoice made{chosen.values[decision], job.values[decision], limit.values[decision],
                                lowest.values[decision], highest.values[decision]};
        require(made.chosen >= 0 && index(made.chosen) < view.ready.size(), "nothing was chosen");
        require(made.job >= 0 && index(made.job) < view.job_executors.size(), "job is no job");
        require(
            made.lowest >= 0 && made.lowest <= made.limit && made.limit <= made.highest && made.highest <= 1'000'000,
            "a limit is not between its lowest and highest");
        return made;
    }

private:
    template <typename T>
    struct Column {
        In<T> array;
        std::span<const T> values;
        Column(const nb::dict& record, const char* name)
            : array(nb::cast<In<T>>(record[name], false)), values(view(array)) {}
    };
    using Firsts = Column<std::int64_t>;
    using Ints = Column<std::int32_t>;
    using Floats = Column<float>;

    template <typename T>
    static bool rises(const Firsts& first, std::size_t count, const Column<T>& column) {
        return first.values.size() == count + 1 && first.values.front() == 0 &&
               std::is_sorted(first.values.begin(), first.values.end()) &&
               index(first.values.back()) == column.values.size();
    }

    template <typename T>
    static std::span<const T> part(const Column<T>& column, const Firsts& first, std::size_t decision) {
        const auto from = index(first.values[decision]);
        return column.values.subspan(from, index(first.values[decision + 1]) - from);
    }

    Firsts first_job, first_node, first_edge, first_ready;
    Ints job_nodes, height, edge_parent, edge_child, ready, source_job, chosen, job, limit, lowest, highest;
    Floats job_executors, work_ms, tasks, free_executors;
    std::vector<std::int32_t> job_first_, child_first_;
};

}  // namespace

void bind_decima(nb::module_& m) {
    m.attr("DECIMA_PARAMETERS") = Decima::parameter_count;
    using View = DecimaView;
    bind_input(m, "DecimaView", "What a decision sees.", &check_view, required("job_first", &View::job_first),
               required("job_executors", &View::job_executors), required("source_job", &View::source_job),
               required("free_executors", &View::free_executors), required("work_ms", &View::work_ms),
               required("tasks", &View::tasks), required("child_first", &View::child_first),
               required("child", &View::child), required("height", &View::height), required("ready", &View::ready));
    m.def(
        "decima_probabilities",
        [](In<float> parameters, const Passed<DecimaView>& seen, std::int32_t job, std::int32_t lowest,
           std::int32_t highest, std::int64_t repeat) {
            require(job >= 0 && index(job) < seen.job_executors.size(), "job is no job");
            require(lowest >= 0 && highest >= lowest && highest <= 1'000'000, "limits go from lowest to highest");
            std::vector<float> stages, limits;
            {
                nb::gil_scoped_release release;
                Decima decima(view(parameters));
                for (std::int64_t i = 0; i < std::max<std::int64_t>(repeat, 1); ++i) {
                    const auto p = decima.stage_probabilities(seen);
                    const auto q = decima.limit_probabilities(job, lowest, highest);
                    stages.assign(p.begin(), p.end());
                    limits.assign(q.begin(), q.end());
                }
            }
            return std::make_tuple(to_numpy(std::move(stages)), to_numpy(std::move(limits)));
        },
        nb::arg("parameters").noconvert(), nb::arg("view"), nb::kw_only(), nb::arg("job"), nb::arg("lowest"),
        nb::arg("highest"), nb::arg("repeat") = 1,
        "Probability of each ready stage, and of each limit of a job; computed `repeat` times.");
    m.def(
        "decima_gradient",
        [](In<float> parameters, nb::dict record, In<std::int64_t> decisions, In<float> advantage,
           float entropy_weight) {
            Decisions made(record);
            require(all_within(view(decisions), 0, static_cast<std::int64_t>(made.size()) - 1) &&
                        advantage.size() == decisions.size(),
                    "every decision needs an advantage");
            DecimaGradient gradient(view(parameters));
            {
                nb::gil_scoped_release release;
                for (std::size_t i = 0; i < decisions.size(); ++i) {
                    const auto decision = index(view(decisions)[i]);
                    const DecimaView seen = made.look(decision);
                    gradient.add(seen, made.choice(decision, seen), view(advantage)[i], entropy_weight);
                }
            }
            return std::make_tuple(to_numpy(gradient.sum()), gradient.log_probability(), gradient.entropy());
        },
        nb::arg("parameters").noconvert(), nb::arg("record"), nb::arg("decisions").noconvert(),
        nb::arg("advantage").noconvert(), nb::arg("entropy_weight"),
        "Gradient of -advantage x log p - entropy_weight x entropy over some decisions of a record; "
        "also the sums of log p and of entropies.");
}

}  // namespace gnomon::bindings
