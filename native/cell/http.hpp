// HTTP/1.1 as far as a cell needs it: requests and answers with a Content-Length, keep-alive, and
// the `traceparent` header of W3C Trace Context.
#pragma once

#include <charconv>
#include <cstdio>
#include <string>
#include <string_view>

#include "cell/wire.hpp"

namespace gnomon::cell {

inline constexpr std::size_t most_head_bytes = 16 << 10, most_body_bytes = 1 << 20;

struct HttpRequest {
    std::string_view method, path, body;  // parts of the parsed bytes
    Trace trace;
};

namespace http {

inline bool equal_ignoring_case(std::string_view a, std::string_view b) {
    if (a.size() != b.size()) return false;
    for (std::size_t i = 0; i < a.size(); ++i) {
        const char c = a[i] >= 'A' && a[i] <= 'Z' ? static_cast<char>(a[i] - 'A' + 'a') : a[i];
        if (c != b[i]) return false;  // `b` is lower case
    }
    return true;
}

/// The whole text as a number; `base` only for whole numbers.
template <typename T, typename... Base>
bool parse_number(std::string_view text, T& value, Base... base) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base...);
    return !text.empty() && error == std::errc{} && end == text.data() + text.size();
}

/// `00-<32 hex>-<16 hex>-<2 hex>`; anything else is ignored, as the standard asks for.
inline Trace parse_traceparent(std::string_view text) {
    Trace found;
    unsigned flags = 0;
    if (text.size() != 55 || text[2] != '-' || text[35] != '-' || text[52] != '-') return {};
    const bool ok = parse_number(text.substr(3, 16), found.high, 16) &&
                    parse_number(text.substr(19, 16), found.low, 16) &&
                    parse_number(text.substr(36, 16), found.parent, 16) && parse_number(text.substr(53), flags, 16);
    found.sampled = (flags & 1) != 0;
    return ok ? found : Trace{};
}

inline std::string format_traceparent(const Trace& trace) {
    char text[56];
    std::snprintf(text, sizeof text, "00-%016llx%016llx-%016llx-%02x", static_cast<unsigned long long>(trace.high),
                  static_cast<unsigned long long>(trace.low), static_cast<unsigned long long>(trace.parent),
                  trace.sampled ? 1U : 0U);
    return text;
}

struct Head {
    std::string_view first_line;
    std::size_t length = 0, body_length = 0;
    bool has_length = false, keep_alive = true;
    Trace trace;
};

inline bool parse_field(std::string_view line, Head& head) {
    const auto colon = line.find(':');
    if (colon == std::string_view::npos || colon == 0) return false;
    const auto name = line.substr(0, colon);
    auto value = line.substr(colon + 1);
    while (!value.empty() && (value.front() == ' ' || value.front() == '\t')) value.remove_prefix(1);
    while (!value.empty() && (value.back() == ' ' || value.back() == '\t')) value.remove_suffix(1);
    if (equal_ignoring_case(name, "content-length")) {
        head.has_length = true;
        return parse_number(value, head.body_length) && head.body_length <= most_body_bytes;
    }
    if (equal_ignoring_case(name, "transfer-encoding")) return false;
    if (equal_ignoring_case(name, "connection")) {
        if (equal_ignoring_case(value, "close")) head.keep_alive = false;
        if (equal_ignoring_case(value, "keep-alive")) head.keep_alive = true;
    } else if (equal_ignoring_case(name, "traceparent")) {
        head.trace = parse_traceparent(value);
    }
    return true;
}

inline Parse parse_head(std::string_view in, Head& head) {
    const auto end = in.find("\r\n\r\n");
    if (end == std::string_view::npos) return in.size() > most_head_bytes ? Parse::bad : Parse::more;
    if (end > most_head_bytes) return Parse::bad;
    head.length = end + 4;
    std::string_view rest = in.substr(0, end);
    const auto next_line = [&rest] {
        const auto stop = rest.find("\r\n");
        const auto line = rest.substr(0, stop);
        rest.remove_prefix(stop == std::string_view::npos ? rest.size() : stop + 2);
        return line;
    };
    head.first_line = next_line();
    head.keep_alive = head.first_line.find("HTTP/1.0") == std::string_view::npos;
    while (!rest.empty())
        if (!parse_field(next_line(), head)) return Parse::bad;
    return in.size() < head.length + head.body_length ? Parse::more : Parse::done;
}

}  // namespace http

inline Parsed parse_http_request(std::string_view in, HttpRequest& request) {
    http::Head head;
    const Parse state = http::parse_head(in, head);
    if (state != Parse::done) return {state};
    const auto line = head.first_line;
    const auto first = line.find(' '), last = line.rfind(' ');
    if (first == std::string_view::npos || first == last || !line.substr(last + 1).starts_with("HTTP/1."))
        return {Parse::bad};
    request.method = line.substr(0, first);
    request.path = line.substr(first + 1, last - first - 1);
    request.body = in.substr(head.length, head.body_length);
    request.trace = head.trace;
    return {Parse::done, head.length + head.body_length, true, head.keep_alive};
}

/// An answer; `ok` from 200 to 299.
inline Parsed parse_http_answer(std::string_view in) {
    http::Head head;
    const Parse state = http::parse_head(in, head);
    if (state != Parse::done) return {state};
    const auto line = head.first_line;
    int status = 0;
    if (!line.starts_with("HTTP/1.") || line.size() < 12 || !http::parse_number(line.substr(9, 3), status) ||
        !head.has_length)
        return {Parse::bad};
    return {Parse::done, head.length + head.body_length, status / 100 == 2, head.keep_alive};
}

inline std::string encode_http_call(std::uint32_t node, const Trace& trace) {
    std::string out = "GET /call/" + std::to_string(node) + " HTTP/1.1\r\nHost: cell\r\n";
    if (trace.is_set()) out += "traceparent: " + http::format_traceparent(trace) + "\r\n";
    return out + "\r\n";
}

inline std::string encode_http_answer(int status, std::string_view body, bool keep_alive) {
    const char* reason = status == 200 ? "OK" : status == 404 ? "Not Found" : status == 400 ? "Bad Request" : "Error";
    std::string out = "HTTP/1.1 " + std::to_string(status) + " " + reason +
                      "\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: " + std::to_string(body.size());
    out += keep_alive ? "\r\n\r\n" : "\r\nConnection: close\r\n\r\n";
    return out.append(body);
}

}  // namespace gnomon::cell
