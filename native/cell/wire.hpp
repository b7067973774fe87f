// The binary protocol between cells: a frame is a magic byte, its kind, the length of its body and
// the body. No text protocol begins with the magic byte, so one port serves both.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>

namespace gnomon::cell {

static_assert(std::endian::native == std::endian::little, "frames are little-endian");

enum class Parse : std::uint8_t { more, bad, done };

/// What a parser made of the bytes so far: `used` of them belong to the message that is `done`.
struct Parsed {
    Parse state = Parse::more;
    std::size_t used = 0;
    bool ok = false;              // the answer was no error
    bool keep_alive = true;       // the connection may carry another message
    std::int64_t planned_ns = 0;  // of a recorded answer
};

inline constexpr char frame_magic = static_cast<char>(0xC5);
inline constexpr std::size_t frame_head = 4;

enum class Frame : std::uint8_t { call = 1, enqueue = 2, answer = 3 };

/// Where a request comes from. A trace id of 0 leaves the ids and the sampling to the receiver.
struct Trace {
    std::uint64_t high = 0, low = 0, parent = 0;
    bool sampled = false;

    [[nodiscard]] bool is_set() const { return high != 0 || low != 0; }
};

/// What recorded calls and their answers carry besides: when the message would have been sent if
/// the cells themselves took no time, and how many bytes follow.
struct Recorded {
    std::int64_t planned_ns = 0;
    std::uint32_t payload_bytes = 0;
};

struct CallFrame {
    std::uint32_t node = 0;
    std::int32_t priority = 0;
    Trace trace;
    std::int64_t sent_ns = 0;
    bool is_queued = false;
    std::optional<Recorded> recorded{};
};

inline constexpr std::uint32_t most_payload_bytes = 1 << 20;

namespace wire {

template <typename T>
void put(std::string& out, T value) {
    char bytes[sizeof value];
    std::memcpy(bytes, &value, sizeof value);
    out.append(bytes, sizeof value);
}

template <typename T>
T take(std::string_view& in) {
    T value;
    std::memcpy(&value, in.data(), sizeof value);
    in.remove_prefix(sizeof value);
    return value;
}

inline constexpr std::size_t call_body = 4 + 4 + 8 + 8 + 8 + 8 + 1;
inline constexpr std::size_t answer_body = 1;
inline constexpr std::size_t recorded_body = 8 + 4;  // at the end of either

inline void put_head(std::string& out, Frame kind, std::size_t body) {
    out.push_back(frame_magic);
    put(out, kind);
    put(out, static_cast<std::uint16_t>(body));
}

/// Checks a head against the kinds that may come; the lengths are exact.
inline Parsed parse_head(std::string_view in, bool is_answer) {
    if (in.empty()) return {};
    if (in[0] != frame_magic) return {Parse::bad};
    if (in.size() < frame_head) return {};
    std::string_view rest = in.substr(1);
    const auto kind = take<Frame>(rest);
    const std::size_t length = take<std::uint16_t>(rest);
    const std::size_t plain = is_answer ? answer_body : call_body;
    const bool fits = is_answer ? kind == Frame::answer : kind == Frame::call || kind == Frame::enqueue;
    if (!fits || (length != plain && length != plain + recorded_body)) return {Parse::bad};
    if (in.size() < frame_head + length) return {};
    return {Parse::done, frame_head + length};
}

inline std::size_t extra(const std::optional<Recorded>& recorded) { return recorded ? recorded_body : 0; }

inline void put_recorded(std::string& out, const std::optional<Recorded>& recorded) {
    if (!recorded) return;
    put(out, recorded->planned_ns);
    put(out, recorded->payload_bytes);
    out.append(recorded->payload_bytes, '.');
}

/// The end of a body of which `rest` is left, and the payload after it.
inline Parsed take_recorded(std::string_view in, Parsed found, std::size_t rest, std::optional<Recorded>& recorded) {
    recorded.reset();
    if (rest == 0) return found;
    std::string_view body = in.substr(found.used - rest);
    const auto planned_ns = take<std::int64_t>(body);
    const auto payload_bytes = take<std::uint32_t>(body);
    if (payload_bytes > most_payload_bytes) return {Parse::bad};
    if (body.size() < payload_bytes) return {};
    recorded = Recorded{planned_ns, payload_bytes};
    found.used += payload_bytes;
    return found;
}

}  // namespace wire

inline std::string encode_call(const CallFrame& call) {
    std::string out;
    const std::size_t body = wire::call_body + wire::extra(call.recorded);
    out.reserve(frame_head + body + (call.recorded ? call.recorded->payload_bytes : 0));
    wire::put_head(out, call.is_queued ? Frame::enqueue : Frame::call, body);
    wire::put(out, call.node);
    wire::put(out, call.priority);
    wire::put(out, call.trace.high);
    wire::put(out, call.trace.low);
    wire::put(out, call.trace.parent);
    wire::put(out, call.sent_ns);
    wire::put(out, static_cast<std::uint8_t>(call.trace.sampled));
    wire::put_recorded(out, call.recorded);
    return out;
}

inline Parsed parse_call(std::string_view in, CallFrame& call) {
    const Parsed found = wire::parse_head(in, false);
    if (found.state != Parse::done) return found;
    call.is_queued = static_cast<Frame>(in[1]) == Frame::enqueue;
    const Parsed whole = wire::take_recorded(in, found, found.used - frame_head - wire::call_body, call.recorded);
    in.remove_prefix(frame_head);
    call.node = wire::take<std::uint32_t>(in);
    call.priority = wire::take<std::int32_t>(in);
    call.trace.high = wire::take<std::uint64_t>(in);
    call.trace.low = wire::take<std::uint64_t>(in);
    call.trace.parent = wire::take<std::uint64_t>(in);
    call.sent_ns = wire::take<std::int64_t>(in);
    call.trace.sampled = wire::take<std::uint8_t>(in) != 0;
    return whole;
}

inline std::string encode_answer(bool ok, const std::optional<Recorded>& recorded = {}) {
    std::string out;
    wire::put_head(out, Frame::answer, wire::answer_body + wire::extra(recorded));
    out.push_back(ok ? 1 : 0);
    wire::put_recorded(out, recorded);
    return out;
}

inline Parsed parse_answer(std::string_view in) {
    Parsed found = wire::parse_head(in, true);
    if (found.state != Parse::done) return found;
    found.ok = in[frame_head] == 1;
    std::optional<Recorded> recorded;
    found = wire::take_recorded(in, found, found.used - frame_head - wire::answer_body, recorded);
    if (recorded) found.planned_ns = recorded->planned_ns;
    return found;
}

}  // namespace gnomon::cell
