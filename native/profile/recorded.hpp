// What is recorded of a process, and how it is written: named arrays.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "profile/reuse.hpp"

namespace gnomon::profile {

constexpr std::size_t head_bytes = 64;

// An entry of a log is a block, or an access: the address in words of eight bytes, the bucket of its distance, which
// instruction of the block it is of, and whether it stores.
constexpr std::uint64_t block_bit = std::uint64_t{1} << 63, store_bit = std::uint64_t{1} << 62;
constexpr unsigned bucket_shift = 45, instruction_shift = 52;
constexpr std::uint64_t word_mask = (std::uint64_t{1} << bucket_shift) - 1, instruction_mask = 0x3ff;
constexpr std::uint64_t words_a_line = line_bytes / 8;

/// Straight code that ends with a branch, or where QEMU cut it.
struct Block {
    std::uint64_t address = 0;
    std::uint32_t bytes = 0, instructions = 0, code_at = 0;
    bool is_repeat = false;  // one instruction with a repeat prefix: QEMU executes it once an iteration
};

struct Edge {
    std::uint64_t count = 0, instructions = 0, loads = 0, stores = 0, repeats = 0, clocks = 0;
    std::uint64_t code_misses = 0, data_misses = 0;             // of the first level
    std::unordered_map<std::uint32_t, std::uint64_t> executed;  // by block
    ReuseCounts code{}, load{}, store{};
};

/// An execution of an edge, entry by entry.
struct Sample {
    std::int32_t thread = 0;
    std::int64_t read = -1;        // the call that read the request before it
    std::int64_t connection = -1;  // of the last call on one
    std::int64_t next = -1;        // that of the call after it, if it is on one
    std::int64_t result = 0;       // of the call before it
    std::vector<std::uint64_t> entries;
};

/// Executions of an edge that are alike, and some of them, drawn at random.
struct Stratum {
    std::uint64_t count = 0;
    std::vector<Sample> kept;
};

/// How a request begins. Only the protocol and its verbs are taken from it.
struct Head {
    std::int64_t call;
    unsigned char bytes[head_bytes];
};

/// A system call. Its key is the number with what its descriptor is; of one that has ended also whether in vain.
struct Call {
    std::int64_t thread, key, first, second, third, result;
};

/// Of a conditional branch at the end of a block.
struct Outcomes {
    std::uint64_t fell_through = 0, changed = 0, followed = 0, turned = 0;  // turned: to another block than before
    std::uint32_t last_block = UINT32_MAX;
    std::uint8_t last = 2;
};

struct Recorded {
    std::vector<Block> blocks;
    std::string code;
    std::map<std::pair<std::int64_t, std::int64_t>, Edge> edges;  // by the keys of both calls
    std::vector<Outcomes> outcomes;
    std::vector<Call> calls;
    std::vector<Head> heads;
    std::map<std::pair<std::int64_t, std::int64_t>, std::map<int, Stratum>> samples;
    std::uint64_t calls_left_out = 0;
    std::vector<std::uint64_t> repeats;  // of a block that is one repeated instruction
};

/// A name of 16 bytes, the size of an element, how many, and the elements.
template <typename T>
void write_array(std::FILE* file, std::string_view name, const T* values, std::uint64_t count) {
    char header[16] = {};
    std::memcpy(header, name.data(), std::min<std::size_t>(name.size(), 15));
    const std::uint64_t sizes[2] = {sizeof(T), count};
    std::fwrite(header, 1, sizeof header, file);
    std::fwrite(sizes, 1, sizeof sizes, file);
    std::fwrite(values, sizeof(T), count, file);
}

inline void write_edges(std::FILE* file, const Recorded& all) {
    std::vector<std::int64_t> keys, totals, code, load, store, executed;
    std::int64_t number = 0;
    for (const auto& [key, edge] : all.edges) {
        keys.insert(keys.end(), {key.first, key.second});
        for (const auto one : {edge.count, edge.instructions, edge.loads, edge.stores, edge.repeats, edge.clocks,
                               edge.code_misses, edge.data_misses})
            totals.push_back(static_cast<std::int64_t>(one));
        code.insert(code.end(), edge.code.begin(), edge.code.end());
        load.insert(load.end(), edge.load.begin(), edge.load.end());
        store.insert(store.end(), edge.store.begin(), edge.store.end());
        for (const auto& [id, times] : edge.executed)
            executed.insert(executed.end(), {number, id, static_cast<std::int64_t>(times)});
        ++number;
    }
    write_array(file, "edge_key", keys.data(), keys.size());
    write_array(file, "edge_total", totals.data(), totals.size());
    write_array(file, "edge_code", code.data(), code.size());
    write_array(file, "edge_load", load.data(), load.size());
    write_array(file, "edge_store", store.data(), store.size());
    write_array(file, "edge_executed", executed.data(), executed.size());
}

inline void write_samples(std::FILE* file, const Recorded& all) {
    // Edge, thread, read, connection, next, result, entries, stratum, and executions of that.
    std::vector<std::int64_t> of;
    std::vector<std::uint64_t> entries;
    std::int64_t number = 0;
    for (const auto& [key, edge] : all.edges) {
        if (const auto found = all.samples.find(key); found != all.samples.end())
            for (const auto& [which, stratum] : found->second)
                for (const auto& one : stratum.kept) {
                    of.insert(of.end(), {number, one.thread, one.read, one.connection, one.next, one.result,
                                         static_cast<std::int64_t>(one.entries.size()), which,
                                         static_cast<std::int64_t>(stratum.count)});
                    entries.insert(entries.end(), one.entries.begin(), one.entries.end());
                }
        ++number;
    }
    write_array(file, "sample_of", of.data(), of.size());
    write_array(file, "sample", entries.data(), entries.size());
}

inline void write_recording(std::FILE* file, Recorded& all) {
    std::vector<std::int64_t> blocks, outcomes;
    all.outcomes.resize(all.blocks.size());
    all.repeats.resize(all.blocks.size());
    for (std::size_t i = 0; i < all.blocks.size(); ++i) {
        const Block& one = all.blocks[i];
        blocks.insert(blocks.end(), {static_cast<std::int64_t>(one.address), one.bytes, one.instructions, one.code_at});
        const Outcomes& seen = all.outcomes[i];
        for (const auto value : {seen.followed, seen.fell_through, seen.changed, all.repeats[i], seen.turned})
            outcomes.push_back(static_cast<std::int64_t>(value));
    }
    std::fwrite("GNPROF01", 1, 8, file);
    write_array(file, "block", blocks.data(), blocks.size());
    write_array(file, "outcome", outcomes.data(), outcomes.size());
    write_array(file, "code", all.code.data(), all.code.size());
    write_edges(file, all);
    write_array(file, "call", reinterpret_cast<const std::int64_t*>(all.calls.data()), 6 * all.calls.size());
    write_array(file, "head", reinterpret_cast<const unsigned char*>(all.heads.data()),
                sizeof(Head) * all.heads.size());
    write_samples(file, all);
    const std::int64_t left_out = static_cast<std::int64_t>(all.calls_left_out);
    write_array(file, "left_out", &left_out, 1);
}

}  // namespace gnomon::profile
