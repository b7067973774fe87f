// What Redis (RESP) and memcached (text protocol) answer to one get or set.
#pragma once

#include <string_view>

#include "cell/http.hpp"
#include "cell/wire.hpp"

namespace gnomon::cell {

inline constexpr std::string_view store_key = "gnomon", store_value = "0123456789abcdef0123456789abcdef";
inline constexpr std::size_t most_store_bytes = 1 << 20;

namespace store {

/// The first line of an answer, without its end; `more` until it is there.
inline Parse first_line(std::string_view in, std::string_view& line) {
    const auto end = in.find("\r\n");
    if (end == std::string_view::npos) return in.size() > most_head_bytes ? Parse::bad : Parse::more;
    line = in.substr(0, end);
    return Parse::done;
}

}  // namespace store

inline Parsed parse_redis_answer(std::string_view in) {
    std::string_view line;
    const Parse state = store::first_line(in, line);
    if (state != Parse::done) return {state};
    const std::size_t head = line.size() + 2;
    if (line.starts_with('+') || line.starts_with(':')) return {Parse::done, head, true};
    if (line.starts_with('-')) return {Parse::done, head, false};
    if (line == "$-1") return {Parse::done, head, true};  // a miss is an answer
    std::size_t length = 0;
    if (!line.starts_with('$') || !http::parse_number(line.substr(1), length) || length > most_store_bytes)
        return {Parse::bad};
    if (in.size() < head + length + 2) return {};
    return {Parse::done, head + length + 2, true};
}

inline Parsed parse_memcached_answer(std::string_view in) {
    std::string_view line;
    const Parse state = store::first_line(in, line);
    if (state != Parse::done) return {state};
    const std::size_t head = line.size() + 2;
    if (line == "END" || line == "STORED") return {Parse::done, head, true};
    if (line == "ERROR" || line.starts_with("SERVER_ERROR") || line.starts_with("CLIENT_ERROR"))
        return {Parse::done, head, false};
    std::size_t length = 0;
    const auto last = line.rfind(' ');
    if (!line.starts_with("VALUE ") || !http::parse_number(line.substr(last + 1), length) || length > most_store_bytes)
        return {Parse::bad};
    const std::size_t whole = head + length + 2 + 5;  // the value, then END
    if (in.size() < whole) return {};
    return {in.substr(whole - 5, 5) == "END\r\n" ? Parse::done : Parse::bad, whole, true};
}

inline std::string encode_redis(bool is_write) {
    const auto part = [](std::string_view text) {
        return "$" + std::to_string(text.size()) + "\r\n" + std::string(text) + "\r\n";
    };
    return is_write ? "*3\r\n" + part("SET") + part(store_key) + part(store_value)
                    : "*2\r\n" + part("GET") + part(store_key);
}

inline std::string encode_memcached(bool is_write) {
    const std::string key(store_key);
    return is_write ? "set " + key + " 0 0 " + std::to_string(store_value.size()) + "\r\n" + std::string(store_value) +
                          "\r\n"
                    : "get " + key + "\r\n";
}

}  // namespace gnomon::cell
