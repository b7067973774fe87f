// Three tasks on one worker allocate, print and lock while a signal preempts them every 50 us. Is anything of libc's,
// or of theirs, ever left half done?
//
//     torture MODE SOURCE SECONDS PREEMPTIONS     at least so long, and so many
//
// Modes: `allow-list`, as the library works unless told otherwise, with a guard around the lock; `guard-library`, where
// code may be cut anywhere and the guard library, preloaded, has all the guards; `unguarded`, without any: it ends in a
// crash or a deadlock.
#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <random>
#include <string>
#include <vector>

#include "gnomon/threads.hpp"

namespace {

constexpr std::size_t most_blocks = 64, most_bytes = 4096;

struct Shared {
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    std::uint64_t counter = 0, copy = 0;  // equal whenever the mutex is free
    bool guards_lock = false;
    std::FILE* nowhere = nullptr;
    std::atomic<bool> is_ending{false};
    std::atomic<std::uint64_t> rounds{0}, counted{0};
    std::atomic<const char*> wrong{nullptr};
};

struct Block {
    unsigned char* bytes = nullptr;
    std::size_t size = 0;
    unsigned char content = 0;
};

struct Tortured {
    Shared* shared;
    unsigned seed;
};

bool is_intact(const Block& block) {
    for (std::size_t i = 0; i < block.size; ++i) {
        if (block.bytes[i] != block.content) return false;
    }
    return true;
}

/// Replaces one block of many by another of random size.
bool reallocate(std::vector<Block>& blocks, std::minstd_rand& random) {
    Block& block = blocks[random() % blocks.size()];
    if (!is_intact(block)) return false;
    if (random() % 4 == 0) {  // kept, in another size
        const std::size_t wanted = random() % most_bytes + 1, kept = std::min(block.size, wanted);
        block.size = wanted;
        block.bytes = static_cast<unsigned char*>(std::realloc(block.bytes, block.size));
        for (std::size_t i = 0; i < kept; ++i) {
            if (block.bytes[i] != block.content) return false;
        }
    } else {
        std::free(block.bytes);
        block.size = random() % most_bytes + 1;
        block.bytes = static_cast<unsigned char*>(std::malloc(block.size));
    }
    block.content = static_cast<unsigned char>(random());
    for (std::size_t i = 0; i < block.size; ++i) block.bytes[i] = block.content;
    return true;
}

bool print(std::FILE* nowhere, std::uint64_t number) {
    char text[64], expected[24];
    const int length = std::snprintf(text, sizeof text, "%llu %s", static_cast<unsigned long long>(number), "and on");
    std::fprintf(nowhere, "%d %s %g\n", length, text, static_cast<double>(number) / 3.0);
    // The same by hand.
    char* at = expected + sizeof expected;
    *--at = '\0';
    for (std::uint64_t left = number; left > 0 || *at == '\0'; left /= 10) *--at = static_cast<char>('0' + left % 10);
    return std::strncmp(text, at, std::strlen(at)) == 0 && std::strcmp(text + std::strlen(at), " and on") == 0;
}

bool count(Shared& shared) {
    if (shared.guards_lock) gnt_guard_enter();
    pthread_mutex_lock(&shared.mutex);
    const bool is_right = shared.counter == shared.copy;
    ++shared.counter;
    for (int i = 0; i < 50; ++i) asm volatile("" ::: "memory");  // long enough to be cut in
    ++shared.copy;
    pthread_mutex_unlock(&shared.mutex);
    if (shared.guards_lock) gnt_guard_leave();
    shared.counted.fetch_add(1, std::memory_order_relaxed);
    return is_right;
}

std::intptr_t torture(void* given) {
    auto& [shared, seed] = *static_cast<Tortured*>(given);
    std::minstd_rand random(seed);
    std::vector<Block> blocks(most_blocks);
    while (!shared->is_ending && shared->wrong == nullptr) {
        if (!reallocate(blocks, random)) shared->wrong = "memory was overwritten";
        if (!print(shared->nowhere, random())) shared->wrong = "snprintf printed something else";
        if (!count(*shared)) shared->wrong = "the lock did not keep others out";
        shared->rounds.fetch_add(1, std::memory_order_relaxed);
    }
    for (auto& block : blocks) {
        if (!is_intact(block)) shared->wrong = "memory was overwritten";
        std::free(block.bytes);
    }
    return 0;
}

int fail(const char* what) {
    std::fprintf(stderr, "torture: %s\n", what);
    return 1;
}

}  // namespace

int main(int words, char** word) {
    const std::string mode = words == 5 ? word[1] : "";
    if (mode != "allow-list" && mode != "guard-library" && mode != "unguarded") {
        fail("MODE SOURCE SECONDS PREEMPTIONS, with MODE allow-list, guard-library or unguarded");
        return 2;
    }
    const std::int64_t least_ns = static_cast<std::int64_t>(std::atof(word[3]) * 1e9);
    const std::uint64_t least_preemptions = std::strtoull(word[4], nullptr, 10);
    if (mode == "guard-library" && std::getenv("LD_PRELOAD") == nullptr) return fail("preload the guard library");
    Shared shared;
    shared.guards_lock = mode == "allow-list";
    shared.nowhere = std::fopen("/dev/null", "w");
    gnt_allow_everything(mode != "allow-list");

    gnt_pool_options options = GNT_POOL_OPTIONS;
    options.policy = GNT_ROUND_ROBIN;
    options.quantum_ns = 50'000;
    options.source = word[2];
    char error[200] = "";
    gnt_pool* pool = gnt_pool_start(&options, error, sizeof error);
    if (pool == nullptr) return fail(error);
    Tortured tortured[3] = {{&shared, 1}, {&shared, 2}, {&shared, 3}};
    for (auto& one : tortured) {
        gnt_job job{};
        job.function = &torture;
        job.argument = &one;
        if (gnt_submit(pool, &job, nullptr) != 0) return fail("a task was refused");
    }
    gnt_pool_stats stats{};
    const std::int64_t began = gnt_now();
    std::int64_t told = began;
    while ((stats.preemptions < least_preemptions || gnt_now() - began < least_ns) && shared.wrong == nullptr) {
        const timespec moment{0, 20'000'000};
        nanosleep(&moment, nullptr);
        gnt_pool_read_stats(pool, &stats);
        // So that a crash leaves behind how far it came.
        if (mode == "unguarded" || gnt_now() - told > 10'000'000'000) {
            told = gnt_now();
            std::fprintf(stderr, "%llu preemptions\n", static_cast<unsigned long long>(stats.preemptions));
        }
    }
    shared.is_ending = true;
    gnt_pool_stop(pool, 1);
    std::fclose(shared.nowhere);
    if (shared.wrong != nullptr) return fail(shared.wrong);
    if (shared.counter != shared.counted || shared.copy != shared.counted) return fail("a count was lost");
    std::printf("%s %s: %llu preemptions, %llu ticks in guards, %llu in libc, %llu rounds, %.1f s\n", mode.c_str(),
                word[2], static_cast<unsigned long long>(stats.preemptions),
                static_cast<unsigned long long>(stats.guarded), static_cast<unsigned long long>(stats.outside),
                static_cast<unsigned long long>(shared.rounds.load()), static_cast<double>(gnt_now() - began) / 1e9);
    return 0;
}
