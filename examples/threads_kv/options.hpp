// What the command line says.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <gnomon/threads.hpp>
#include <string>
#include <vector>

[[noreturn]] inline void fail(int code, const std::string& what) {
    std::fprintf(stderr, "kv: %s\n", what.c_str());
    std::exit(code);
}

struct Policy {
    const char* name;
    unsigned number;
};
constexpr Policy policies[] = {{"fcfs", GNT_FCFS},
                               {"round-robin", GNT_ROUND_ROBIN},
                               {"two-queue", GNT_TWO_QUEUE},
                               {"least-attained", GNT_LEAST_ATTAINED},
                               {"kind-priority", GNT_KIND_PRIORITY},
                               {"best-effort", GNT_BEST_EFFORT}};

struct Options {
    double load = NAN, rounds = 21, requests = 3'000, scan_share = 0.01, scan_us = 700, quantum_us = NAN, seed = 1;
    bool best_effort = false, realtime = false, json = false;
    std::string source = "clock";
    std::vector<Policy> chosen;
};

struct Number {
    const char* name;
    double Options::* value;
    double least, most;
    bool is_whole;
};
constexpr Number numbers[] = {
    {"--load", &Options::load, 0.05, 0.95, false},     {"--rounds", &Options::rounds, 1, 1000, true},
    {"--requests", &Options::requests, 10, 1e6, true}, {"--scan-share", &Options::scan_share, 0, 0.5, false},
    {"--scan-us", &Options::scan_us, 10, 1e4, false},  {"--quantum-us", &Options::quantum_us, 1, 1e6, false},
    {"--seed", &Options::seed, 0, 1e9, true}};

inline double parse_number(const Number& option, const std::string& text) {
    char* end = nullptr;
    const double value = std::strtod(text.c_str(), &end);
    const bool is_number = end != text.c_str() && *end == '\0' && (!option.is_whole || value == std::floor(value));
    if (is_number && value >= option.least && value <= option.most) return value;
    char range[80];
    std::snprintf(range, sizeof range, " takes %snumbers from %g to %g", option.is_whole ? "whole " : "", option.least,
                  option.most);
    fail(2, option.name + std::string(range) + ", not '" + text + "'");
}

inline std::vector<Policy> parse_policies(const std::string& names) {
    std::vector<Policy> found;
    for (std::size_t at = 0, end = 0; end != std::string::npos; at = end + 1) {
        end = names.find(',', at);
        const std::string name = names.substr(at, end == std::string::npos ? end : end - at);
        const auto is_it = [&](const Policy& one) { return name == one.name; };
        const auto* policy = std::find_if(std::begin(policies), std::end(policies), is_it);
        if (policy == std::end(policies)) {
            std::string all;
            for (const auto& one : policies) all += std::string(all.empty() ? "" : ", ") + one.name;
            fail(2, "no policy '" + name + "'; there are " + all);
        }
        found.push_back(*policy);
    }
    return found;
}

inline Options parse(int count, char** words) {
    Options options;
    for (int i = 1; i < count; ++i) {
        const std::string name = words[i];
        if (name == "--help") {
            std::puts(
                "kv [--load 0.7 (0.3 with --best-effort)] [--policy fcfs,two-queue] [--source clock] [--quantum-us 20 "
                "(50, 200 with signals)] "
                "[--rounds 21]\n"
                "   [--requests 3000] [--scan-share 0.01] [--scan-us 700] [--seed 1]\n"
                "   [--best-effort] [--realtime] [--json]");
            std::exit(0);
        }
        if (name == "--best-effort" || name == "--realtime" || name == "--json") {
            (name == "--json" ? options.json : name == "--realtime" ? options.realtime : options.best_effort) = true;
            continue;
        }
        const auto* number =
            std::find_if(std::begin(numbers), std::end(numbers), [&](auto& one) { return name == one.name; });
        if (number == std::end(numbers) && name != "--policy" && name != "--source")
            fail(2, "no option '" + name + "'; --help lists them");
        if (++i == count) fail(2, name + " wants a value");
        if (number != std::end(numbers)) options.*number->value = parse_number(*number, words[i]);
        else if (name == "--policy") options.chosen = parse_policies(words[i]);
        else options.source = words[i];
    }
    if (options.best_effort) options.scan_share = 0;  // to that policy a SCAN is best effort, too
    if (std::isnan(options.load))
        options.load = options.best_effort ? 0.3 : 0.7;  // more GETs alone are too many to send
    if (options.chosen.empty())
        options.chosen = parse_policies(options.best_effort ? "fcfs,best-effort" : "fcfs,two-queue");
    char why[200] = "";
    gnt_source* source = gnt_source_open(options.source.c_str(), why, sizeof why);
    if (source == nullptr) fail(2, why);
    options.source = gnt_source_name(source);  // `auto` is measured once
    gnt_source_close(source);
    // A signal costs some 10 us of the worker's time, a timer of the kernel twice that.
    const bool is_signal = options.source == "signal" || options.source == "sleeper";
    if (std::isnan(options.quantum_us))
        options.quantum_us = options.source == "posix_timer" ? 200 : is_signal ? 50 : 20;
    return options;
}
