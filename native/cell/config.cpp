#include "cell/config.hpp"

#include <algorithm>
#include <fstream>
#include <sstream>
#include <stdexcept>

#include "cell/http.hpp"

namespace gnomon::cell {

namespace json {

double number(JsonCursor& cursor) {
    double value = 0;
    if (!http::parse_number(cursor.scalar(), value)) cursor.fail("has something else than a number");
    return value;
}

std::string text(JsonCursor& cursor) {
    std::string scratch;
    return std::string(cursor.string(scratch));
}

bool truth(JsonCursor& cursor) { return cursor.scalar() == "true"; }

}  // namespace json

namespace {

[[noreturn]] void fail_unknown(std::string_view key) {
    throw std::invalid_argument("has an unknown key '" + std::string(key) + "'");
}

template <typename T>
T whole(JsonCursor& cursor) {
    T value{};
    if (!http::parse_number(cursor.scalar(), value)) cursor.fail("has something else than a whole number");
    return value;
}

std::int64_t milliseconds(JsonCursor& cursor) { return static_cast<std::int64_t>(json::number(cursor) * 1e6); }

std::int64_t microseconds(JsonCursor& cursor) { return static_cast<std::int64_t>(json::number(cursor) * 1e3); }

std::uint32_t payload(JsonCursor& cursor) {
    const auto bytes = whole<std::uint32_t>(cursor);
    if (bytes > most_payload_bytes) throw std::invalid_argument("has a payload of over a megabyte");
    return bytes;
}

Work parse_work(JsonCursor& cursor) {
    Work work;
    std::string scratch;
    cursor.object(scratch, [&](std::string_view key) {
        if (key == "mean") work.mean = json::number(cursor);
        else if (key == "cv") work.cv = json::number(cursor);
        else if (key == "shape") work.is_exponential = json::text(cursor) == "exponential";
        else if (key == "quantiles")
            json::list(cursor, [&] {
                cursor.expect('[');
                work.share.push_back(json::number(cursor) / 100.0);
                cursor.expect(',');
                work.value.push_back(json::number(cursor));
                cursor.expect(']');
            });
        else fail_unknown(key);
    });
    return work;
}

Protocol parse_protocol(const std::string& name) {
    if (name == "cell") return Protocol::rpc;
    if (name == "nginx") return Protocol::http;
    if (name == "redis") return Protocol::redis;
    if (name == "memcached") return Protocol::memcached;
    throw std::invalid_argument("has an unknown server '" + name + "'");
}

CallSpec parse_call_spec(JsonCursor& cursor) {
    CallSpec call;
    std::string scratch;
    cursor.object(scratch, [&](std::string_view key) {
        if (key == "node") call.node = whole<std::uint32_t>(cursor);
        else if (key == "callee") call.callee = whole<std::size_t>(cursor);
        else if (key == "queued") call.is_queued = json::truth(cursor);
        else if (key == "probability") call.probability = json::number(cursor);
        else if (key == "timeout_ms") call.timeout_ns = milliseconds(cursor);
        else if (key == "retries") call.retries = whole<int>(cursor);
        else if (key == "operation") call.operation = json::text(cursor);
        else if (key == "recorded") call.is_recorded = json::truth(cursor);
        else if (key == "payload_bytes") call.payload_bytes = payload(cursor);
        else fail_unknown(key);
    });
    return call;
}

Step parse_step(JsonCursor& cursor) {
    Step step;
    std::string scratch;
    cursor.object(scratch, [&](std::string_view key) {
        if (key == "call") step.call = parse_call_spec(cursor);
        else if (key == "after") json::list(cursor, [&] { step.after.push_back(whole<std::uint32_t>(cursor)); });
        else if (key == "delay_us") step.delay_ns = microseconds(cursor);
        else if (key == "cpu_us") step.cpu_ns = microseconds(cursor);
        else if (key == "tail_us") step.tail_ns = microseconds(cursor);
        else if (key == "waited") step.is_waited = json::truth(cursor);
        else fail_unknown(key);
    });
    return step;
}

Script parse_script(JsonCursor& cursor) {
    Script script;
    std::string scratch;
    cursor.object(scratch, [&](std::string_view key) {
        if (key == "lead_us") script.lead_ns = microseconds(cursor);
        else if (key == "rest_us") script.rest_ns = microseconds(cursor);
        else if (key == "rest_cpu_us") script.rest_cpu_ns = microseconds(cursor);
        else if (key == "fails") script.fails = json::truth(cursor);
        else if (key == "answer_bytes") script.answer_bytes = payload(cursor);
        else if (key == "steps") json::list(cursor, [&] { script.steps.push_back(parse_step(cursor)); });
        else fail_unknown(key);
    });
    for (std::uint32_t i = 0; i < script.steps.size(); ++i)
        for (const auto earlier : script.steps[i].after) {
            if (earlier >= i) throw std::invalid_argument("has a step that waits for a later one");
            script.steps[earlier].before.push_back(i);
        }
    return script;
}

Node parse_node(JsonCursor& cursor) {
    Node node;
    std::string scratch;
    cursor.object(scratch, [&](std::string_view key) {
        if (key == "id") node.id = whole<std::uint32_t>(cursor);
        else if (key == "class") node.class_index = whole<std::size_t>(cursor);
        else if (key == "priority") node.priority = whole<std::int32_t>(cursor);
        else if (key == "operation") node.operation = json::text(cursor);
        else if (key == "cpu_ms") node.cpu = parse_work(cursor);
        else if (key == "wait_ms") node.wait = parse_work(cursor);
        else if (key == "error_share") node.error_share = json::number(cursor);
        else if (key == "stages")
            json::list(cursor, [&] {
                auto& stage = node.stages.emplace_back();
                json::list(cursor, [&] { stage.push_back(parse_call_spec(cursor)); });
            });
        else if (key == "script") node.script = parse_script(cursor);
        else if (key == "weight") node.weight = json::number(cursor);
        else fail_unknown(key);
    });
    return node;
}

Callee parse_callee(JsonCursor& cursor) {
    Callee callee;
    std::string scratch;
    cursor.object(scratch, [&](std::string_view key) {
        if (key == "service") callee.service = json::text(cursor);
        else if (key == "server") callee.protocol = parse_protocol(json::text(cursor));
        else if (key == "pool") callee.pool = whole<std::size_t>(cursor);
        else fail_unknown(key);
    });
    return callee;
}

void check(const Config& config) {
    if (config.workers == 0) throw std::invalid_argument("needs at least one worker");
    const auto check_call = [&](const CallSpec& call) {
        if (call.callee >= config.callees.size()) throw std::invalid_argument("has a call to nobody");
    };
    for (const auto& [id, node] : config.nodes) {
        if (node.class_index >= config.classes.size()) throw std::invalid_argument("has a node of no class");
        for (const auto& stage : node.stages)
            for (const auto& call : stage) check_call(call);
        if (node.script)
            for (const auto& step : node.script->steps) check_call(step.call);
    }
}

/// First calls by class, in the order of their numbers.
void list_entries(Config& config) {
    config.entries.resize(config.classes.size());
    std::vector<std::uint32_t> drawn;
    for (const auto& [id, node] : config.nodes)
        if (node.weight > 0.0) drawn.push_back(id);
    std::sort(drawn.begin(), drawn.end());
    for (const auto id : drawn) {
        const Node& node = config.nodes.at(id);
        auto& entry = config.entries[node.class_index];
        entry.nodes.push_back(id);
        entry.reached.push_back(node.weight + (entry.reached.empty() ? 0.0 : entry.reached.back()));
    }
}

}  // namespace

Config parse_config(std::string_view text) {
    Config config;
    JsonCursor cursor(text);
    std::string scratch;
    cursor.object(scratch, [&](std::string_view key) {
        if (key == "service") config.service = json::text(cursor);
        else if (key == "stats") config.stats_path = json::text(cursor);
        else if (key == "spans") config.spans_path = json::text(cursor);
        else if (key == "completions") config.completions_path = json::text(cursor);
        else if (key == "seed") config.seed = whole<std::uint64_t>(cursor);
        else if (key == "port") config.port = whole<std::uint16_t>(cursor);
        else if (key == "workers") config.workers = whole<std::size_t>(cursor);
        else if (key == "blocking") config.is_blocking = json::truth(cursor);
        else if (key == "queue_limit") config.queue_limit = whole<std::int64_t>(cursor);
        else if (key == "sample_share") config.sample_share = json::number(cursor);
        else if (key == "catch_up_us") config.catch_up_ns = microseconds(cursor);
        else if (key == "classes") json::list(cursor, [&] { config.classes.push_back(json::text(cursor)); });
        else if (key == "callees") json::list(cursor, [&] { config.callees.push_back(parse_callee(cursor)); });
        else if (key == "nodes")
            json::list(cursor, [&] {
                Node node = parse_node(cursor);
                const auto id = node.id;
                config.nodes.insert_or_assign(id, std::move(node));
            });
        else fail_unknown(key);
    });
    check(config);
    list_entries(config);
    return config;
}

ClientConfig parse_client_config(std::string_view text) {
    ClientConfig config;
    JsonCursor cursor(text);
    std::string scratch;
    cursor.object(scratch, [&](std::string_view key) {
        if (key == "schedule") config.schedule_path = json::text(cursor);
        else if (key == "results") config.results_path = json::text(cursor);
        else if (key == "tag") config.tag = whole<std::uint64_t>(cursor);
        else if (key == "sample_share") config.sample_share = json::number(cursor);
        else if (key == "grace_ms") config.grace_ns = milliseconds(cursor);
        else if (key == "callees") json::list(cursor, [&] { config.callees.push_back(parse_callee(cursor)); });
        else if (key == "calls") json::list(cursor, [&] { config.calls.push_back(parse_call_spec(cursor)); });
        else if (key == "priorities")
            json::list(cursor, [&] { config.priorities.push_back(whole<std::int32_t>(cursor)); });
        else fail_unknown(key);
    });
    if (config.calls.size() != config.priorities.size())
        throw std::invalid_argument("needs one priority for each call");
    for (const auto& call : config.calls)
        if (call.callee >= config.callees.size()) throw std::invalid_argument("has a call to nobody");
    return config;
}

std::string read_file(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    if (!file) throw std::runtime_error("cannot be read");
    std::ostringstream content;
    content << file.rdbuf();
    return content.str();
}

}  // namespace gnomon::cell
