// Decima's network (Mao et al., SIGCOMM 2019): which stage gets the free executors, and how many
// its job may hold. A graph network of 4,770 parameters over all unfinished stages of all jobs.
//
// Every float is computed by the same operations in the same order whatever the width of the
// vectors: lanes are stages (or jobs, or limits), never terms of one sum. So probabilities are the
// same bytes on every machine whose std::exp is the same.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace gnomon {

/// What one decision sees: unfinished stages ("nodes") of the jobs in the system. Spans into the
/// caller's memory, read only during the call. Finished stages are left out: nothing waits for them
/// and no message comes from them, so they would change nothing.
struct DecimaView {
    std::span<const std::int32_t> job_first;    // jobs + 1: nodes of job j are [job_first[j], job_first[j + 1])
    std::span<const float> job_executors;       // executors that each job holds
    std::int32_t source_job = -1;               // job whose executor became free, -1 for none
    float free_executors = 0.0F;                // executors to be given out now
    std::span<const float> work_ms;             // node: tasks x the typical duration of one
    std::span<const float> tasks;               // node: tasks that have not started
    std::span<const std::int32_t> child_first;  // nodes + 1: children of node i are child[child_first[i]...]
    std::span<const std::int32_t> child;        // a child runs after its parent
    std::span<const std::int32_t> height;       // node: longest path to a leaf; 0 has no children
    std::span<const std::int32_t> ready;        // nodes to choose from
};

struct DecimaWork;

class Decima {
public:
    static constexpr std::size_t parameter_count = 4770;

    /// Parameters in the order of the authors' variables: the nets prepare 5-16-8-8, process
    /// 8-16-8-8, aggregate 8-16-8-8, job summary 13-16-8-8, global summary 8-16-8-8, stage head
    /// 29-32-16-8-1, limit head 20-32-16-8-1; of each layer the weights (input x output, rows are
    /// inputs), then the biases.
    explicit Decima(std::span<const float> parameters);
    ~Decima();
    Decima(Decima&&) noexcept;
    Decima& operator=(Decima&&) noexcept;

    /// One probability for each entry of `ready`. Valid until the next call.
    std::span<const float> stage_probabilities(const DecimaView& view);

    /// For the jobs of the last `stage_probabilities`: one probability for each limit of
    /// lowest...highest (both included) on the executors of `job`. Valid until the next call.
    std::span<const float> limit_probabilities(std::int32_t job, std::int32_t lowest, std::int32_t highest);

private:
    std::unique_ptr<DecimaWork> work_;
};

}  // namespace gnomon
