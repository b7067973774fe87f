#include "cell/spans.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <stdexcept>

#include "clock.hpp"

namespace gnomon::cell {
namespace {

std::string quote(std::string_view text) {
    std::string out = "\"";
    for (const char c : text) {
        if (c == '"' || c == '\\') out.push_back('\\');
        if (static_cast<unsigned char>(c) < 0x20) {
            char code[8];
            std::snprintf(code, sizeof code, "\\u%04x", static_cast<unsigned>(c));
            out += code;
        } else {
            out.push_back(c);
        }
    }
    return out + '"';
}

std::string hex(std::uint64_t value) {
    char text[17];
    std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(value));
    return text;
}

std::string attribute(std::string_view key, std::string_view value) {
    return R"({"key":)" + quote(key) + R"(,"value":{"stringValue":)" + quote(value) + "}}";
}

void add_size(std::string& out, std::string_view key, std::uint32_t bytes) {
    if (bytes == 0) return;
    if (out.back() == '}') out.push_back(',');
    out += R"({"key":)" + quote(key) + R"(,"value":{"intValue":")" + std::to_string(bytes) + "\"}}";
}

}  // namespace

Spans::Spans(Loop& loop, const std::string& path, std::string service)
    : loop_(loop), service_(std::move(service)), unix_offset_ns_(read_clock_ns(CLOCK_REALTIME) - now_ns()) {
    if (path.empty()) return;
    file_ = open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (file_ < 0) throw std::runtime_error(path + " cannot be written");
}

Spans::~Spans() {
    flush();
    if (file_ >= 0) close(file_);
}

void Spans::add(const Span& span) {
    if (file_ < 0) return;
    if (!spans_.empty()) spans_.push_back(',');
    spans_ += R"({"traceId":")" + hex(span.trace.high) + hex(span.trace.low) + R"(","spanId":")" + hex(span.id) + '"';
    if (span.trace.parent != 0) spans_ += R"(,"parentSpanId":")" + hex(span.trace.parent) + '"';
    spans_ += R"(,"name":)" + quote(span.name) + R"(,"kind":)" + std::to_string(static_cast<int>(span.kind));
    spans_ += R"(,"startTimeUnixNano":")" + std::to_string(span.begin_ns + unix_offset_ns_);
    spans_ += R"(","endTimeUnixNano":")" + std::to_string(span.end_ns + unix_offset_ns_) + R"(","attributes":[)";
    if (!span.peer.empty()) spans_ += attribute("peer.service", span.peer);
    add_size(spans_, "http.request.body.size", span.request_bytes);
    add_size(spans_, "http.response.body.size", span.answer_bytes);
    spans_ += R"(],"status":{"code":)" + std::string(span.ok ? "1" : "2") + "}}";
    if (spans_.size() > (1U << 20)) flush();
    else if (flush_timer_ == no_timer) flush_timer_ = loop_.at(now_ns() + 1'000'000'000, [this] { flush(); });
}

void Spans::flush() {
    loop_.cancel(flush_timer_);
    if (spans_.empty()) return;
    const std::string line = R"({"resourceSpans":[{"resource":{"attributes":[)" + attribute("service.name", service_) +
                             R"(]},"scopeSpans":[{"scope":{"name":"gnomon"},"spans":[)" + spans_ + "]}]}]}\n";
    spans_.clear();
    std::string_view rest = line;
    while (!rest.empty()) {
        const ssize_t written = ::write(file_, rest.data(), rest.size());
        if (written < 0) {
            std::fprintf(stderr, "gnomon-cell: spans cannot be written\n");
            return;
        }
        rest.remove_prefix(static_cast<std::size_t>(written));
    }
}

}  // namespace gnomon::cell
