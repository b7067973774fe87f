// How processes end, and what becomes of a pool after a fork inside a task. One case a call: processes CASE SOURCE.
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "gnomon/threads.hpp"

namespace {

gnt_pool* pool = nullptr;
std::atomic<int> runs{0}, is_running{0};

int child_status(pid_t child) {
    int status = 0;
    if (child < 0 || waitpid(child, &status, 0) != child) return -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

std::intptr_t spin_for_ever(void*) {
    is_running = 1;
    for (;;) gnt_poll();
    return 0;
}

std::intptr_t count_a_run(void*) { return ++runs; }

/// The child keeps its stack, polls and ends by itself.
std::intptr_t fork_and_exit(void*) {
    const pid_t child = fork();
    if (child != 0) return child_status(child);
    alarm(60);
    gnt_job job{};
    job.function = &count_a_run;
    const bool is_told = gnt_submit(pool, &job, nullptr) == GNT_EFORKED && gnt_yield() == GNT_EFORKED;
    for (const std::int64_t end = gnt_now() + 5'000'000; gnt_now() < end;) gnt_poll();
    _exit(is_told && runs == 0 ? 7 : 8);
}

/// The child ends with the task: it has no pool to go back to, and what waits there is the parent's.
std::intptr_t fork_and_return(void*) {
    const pid_t child = fork();
    if (child == 0) alarm(60);
    return child == 0 ? 0 : child_status(child);
}

std::intptr_t exit_inside(void*) { std::exit(5); }

std::intptr_t stop_inside(void*) { return gnt_pool_stop(pool, 0) == GNT_ESTATE ? 6 : 0; }

std::intptr_t result = -1;
std::atomic<bool> is_done{false};

/// The task's result, with another task waiting behind it.
int run(gnt_function function) {
    gnt_job job{};
    job.function = function;
    job.on_done = [](const gnt_report* report, void*) {
        result = report->result;
        is_done = true;
    };
    gnt_submit(pool, &job, nullptr);
    gnt_job behind{};
    behind.function = &count_a_run;
    gnt_submit(pool, &behind, nullptr);
    while (!is_done) usleep(1000);
    gnt_pool_stop(pool, 1);
    return runs == 1 ? static_cast<int>(result) : 99;
}

}  // namespace

int main(int words, char** word) {
    alarm(100);
    if (words != 3) return 2;
    const std::string name = word[1];
    gnt_pool_options options = GNT_POOL_OPTIONS;
    options.policy = GNT_ROUND_ROBIN;
    options.source = word[2];
    char error[200] = "";
    pool = gnt_pool_start(&options, error, sizeof error);
    if (pool == nullptr) {
        std::fprintf(stderr, "%s\n", error);
        return 1;
    }
    if (name == "fork-and-exit") return run(&fork_and_exit);
    if (name == "fork-and-return") return run(&fork_and_return);
    if (name == "exit-inside") return run(&exit_inside);
    if (name == "stop-inside") return run(&stop_inside);
    if (name == "never-stopped") {  // main returns with two tasks that take turns
        gnt_job job{};
        job.function = &spin_for_ever;
        for (int i = 0; i < 2; ++i) gnt_submit(pool, &job, nullptr);
        while (is_running == 0) usleep(1000);
        return 4;
    }
    return 2;
}
