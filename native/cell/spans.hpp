// Spans of sampled requests, as lines of OTLP/JSON: the format of OpenTelemetry's file exporter.
#pragma once

#include <cstdint>
#include <string>

#include "cell/loop.hpp"
#include "cell/wire.hpp"

namespace gnomon::cell {

enum class SpanKind : std::uint8_t { server = 2, client = 3, producer = 4, consumer = 5 };

struct Span {
    SpanKind kind = SpanKind::server;
    Trace trace;  // `parent` is the span above, 0 at the root
    std::uint64_t id = 0;
    std::string_view name, peer;  // the service called, for clients and producers
    std::int64_t begin_ns = 0, end_ns = 0;
    bool ok = true;
    std::uint32_t request_bytes = 0, answer_bytes = 0;  // 0: not known
};

class Spans {
public:
    /// Nothing is written where the path is empty.
    Spans(Loop& loop, const std::string& path, std::string service);
    ~Spans();
    Spans(const Spans&) = delete;
    Spans& operator=(const Spans&) = delete;

    void add(const Span& span);
    void flush();

private:
    Loop& loop_;
    std::string service_, spans_;
    int file_ = -1;
    std::int64_t unix_offset_ns_;
    TimerKey flush_timer_ = no_timer;
};

}  // namespace gnomon::cell
