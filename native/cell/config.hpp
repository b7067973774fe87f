// The configuration of a cell: its service, the call nodes that it handles, whom it calls.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "cell/work.hpp"
#include "engine/json_cursor.hpp"

namespace gnomon::cell {

enum class Protocol : std::uint8_t { rpc, http, redis, memcached };

struct Callee {
    std::string service;
    Protocol protocol = Protocol::rpc;
    std::size_t pool = 0;  // connections at most; 0: as many as needed
};

/// One call that a node makes.
struct CallSpec {
    std::uint32_t node = 0;
    std::size_t callee = 0;  // index into Config::callees
    bool is_queued = false;
    double probability = 1.0;
    std::int64_t timeout_ns = 0;  // 0: never
    int retries = 0;
    std::string operation;
    bool is_recorded = false;         // says when it was planned, and has a payload
    std::uint32_t payload_bytes = 0;  // of a recorded call

    /// What a store is asked to do.
    [[nodiscard]] bool is_write() const { return operation.starts_with("set") || operation.starts_with("SET"); }
};

/// One call of a recorded visit. It is made some time after others were answered.
struct Step {
    CallSpec call;
    std::vector<std::uint32_t> after, before;  // steps that it waits for, and that wait for it
    std::int64_t delay_ns = 0;                 // since the last of those was answered
    std::int64_t cpu_ns = 0;                   // of the delay
    std::int64_t tail_ns = 0;                  // from the callee's end to the answer; below 0 where clocks disagree
    bool is_waited = true;                     // the visit does not end before it is answered
};

/// A visit as it was recorded once: times to the microsecond instead of distributions.
struct Script {
    std::int64_t lead_ns = 0;                   // from the call to its begin here
    std::int64_t rest_ns = 0, rest_cpu_ns = 0;  // since the last answer that is waited for
    bool fails = false;
    std::uint32_t answer_bytes = 0;
    std::vector<Step> steps;  // in the order in which they were made
};

/// One place in a call tree: what this service does there.
struct Node {
    std::uint32_t id = 0;
    std::size_t class_index = 0;
    std::int32_t priority = 0;
    std::string operation;
    Work cpu, wait;
    double error_share = 0.0;
    std::vector<std::vector<CallSpec>> stages;
    std::optional<Script> script;  // instead of all that
    double weight = 0.0;           // of being drawn among the first calls of its class
};

/// First calls of a class, for clients that name the class only.
struct Entry {
    std::vector<std::uint32_t> nodes;
    std::vector<double> reached;  // sums of weights
};

struct Config {
    std::string service, stats_path, spans_path, completions_path;
    std::uint64_t seed = 0;
    std::uint16_t port = 0;
    std::size_t workers = 1;
    bool is_blocking = false;
    std::int64_t queue_limit = -1;  // below 0: none
    double sample_share = 0.0;
    std::int64_t catch_up_ns = 0;  // so much of our own delay is made up for in recorded waits
    std::vector<std::string> classes;
    std::vector<Entry> entries;  // one a class
    std::vector<Callee> callees;
    std::unordered_map<std::uint32_t, Node> nodes;
};

/// What a load generator sends.
struct ClientConfig {
    std::string schedule_path, results_path;
    std::int64_t grace_ns = 0;
    std::uint64_t tag = 0;  // first half of every trace id; the other is the request's number from 1 on
    double sample_share = 0.0;
    std::vector<Callee> callees;           // the services that requests enter by
    std::vector<CallSpec> calls;           // one a class
    std::vector<std::int32_t> priorities;  // one a class
};

/// Throws std::invalid_argument.
ClientConfig parse_client_config(std::string_view text);
/// Throws std::invalid_argument.
Config parse_config(std::string_view text);
/// Throws std::runtime_error.
std::string read_file(const std::string& path);

/// Reads of single values and lists, for this configuration, the client's and what is posted.
namespace json {

double number(JsonCursor& cursor);
std::string text(JsonCursor& cursor);
bool truth(JsonCursor& cursor);

template <typename Each>
void list(JsonCursor& cursor, Each&& each) {
    cursor.expect('[');
    if (cursor.accept(']')) return;
    do {
        each();
    } while (cursor.accept(','));
    cursor.expect(']');
}

}  // namespace json

}  // namespace gnomon::cell
