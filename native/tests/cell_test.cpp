#include <cstdint>
#include <string>
#include <string_view>

#include "cell/http.hpp"
#include "cell/stats.hpp"
#include "cell/store.hpp"
#include "cell/wire.hpp"
#include "cell/work.hpp"
#include "engine/rng.hpp"
#include "tests/test.hpp"

namespace gnomon::tests {
namespace {

using namespace cell;

void frames_survive_the_wire() {
    const CallFrame sent{7, -3, {1, 2, 3, true}, 123'456'789, true};
    const std::string bytes = encode_call(sent);
    CallFrame got;
    bool waits = true;
    for (std::size_t i = 0; i < bytes.size(); ++i)
        waits = waits && parse_call(std::string_view(bytes).substr(0, i), got).state == Parse::more;
    expect(waits, "a frame cut short waits for more");
    const Parsed found = parse_call(bytes + "next", got);
    expect(found.state == Parse::done && found.used == bytes.size(), "a frame ends where it ends");
    expect(got.node == 7 && got.priority == -3 && got.trace.low == 2 && got.trace.sampled && got.is_queued &&
               got.sent_ns == 123'456'789,
           "a call arrives as it was sent");
    expect(parse_answer(encode_answer(true)).ok && !parse_answer(encode_answer(false)).ok, "answers say how it went");
    std::string oversized = bytes;
    oversized[2] = oversized[3] = '\xff';
    expect(parse_call(oversized, got).state == Parse::bad, "a frame of another length is refused");
    expect(parse_answer(bytes).state == Parse::bad, "a call is no answer");
}

void recorded_frames_survive_the_wire() {
    CallFrame sent{7, 0, {1, 2, 3, true}, 1000, false, Recorded{-5, 300}};
    const std::string bytes = encode_call(sent);
    CallFrame got;
    bool waits = true;
    for (std::size_t i = 0; i < bytes.size(); ++i)
        waits = waits && parse_call(std::string_view(bytes).substr(0, i), got).state == Parse::more;
    expect(waits, "a payload cut short waits for more");
    const Parsed found = parse_call(bytes + "next", got);
    expect(found.state == Parse::done && found.used == bytes.size(), "a payload is part of its frame");
    expect(got.node == 7 && got.recorded && got.recorded->planned_ns == -5 && got.recorded->payload_bytes == 300,
           "a recorded call arrives as it was sent");
    parse_call(encode_call({7, 0, {}, 0, false}), got);
    expect(!got.recorded, "a plain call after it is plain");
    const Parsed answer = parse_answer(encode_answer(true, Recorded{42, 10}));
    expect(answer.ok && answer.planned_ns == 42 && answer.used == frame_head + 13 + 10, "a recorded answer");
    sent.recorded->payload_bytes = most_payload_bytes + 1;
    expect(parse_call(encode_call(sent), got).state == Parse::bad, "an endless payload is refused");
}

void http_is_read_in_pieces() {
    const std::string text =
        "POST /peers HTTP/1.1\r\nHost: x\r\nContent-LENGTH:  4 \r\n"
        "traceparent: 00-0123456789abcdef0123456789abcdef-00000000000000aa-01\r\n\r\nbodyGET ";
    HttpRequest request;
    bool waits = true;
    for (std::size_t i = 0; i < text.size() - 4; ++i)
        waits = waits && parse_http_request(std::string_view(text).substr(0, i), request).state == Parse::more;
    expect(waits, "a request cut short waits for more");
    const Parsed found = parse_http_request(text, request);
    expect(found.state == Parse::done && found.used == text.size() - 4 && found.keep_alive, "a request ends");
    expect(request.method == "POST" && request.path == "/peers" && request.body == "body", "parts of a request");
    expect(request.trace.parent == 0xaa && request.trace.sampled, "traceparent is read");
    expect(http::format_traceparent(request.trace) == "00-0123456789abcdef0123456789abcdef-00000000000000aa-01",
           "traceparent is written");
}

void bad_http_is_refused() {
    HttpRequest request;
    for (const std::string_view bad :
         {"\r\n\r\n", "GET\r\n\r\n", "GET /\r\n\r\n", "GET / FTP/1.1\r\n\r\n", "GET / HTTP/1.1\r\nnothing\r\n\r\n",
          "GET / HTTP/1.1\r\nContent-Length: -1\r\n\r\n", "GET / HTTP/1.1\r\nContent-Length: 9999999999\r\n\r\n",
          "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"})
        expect(parse_http_request(bad, request).state == Parse::bad, "bad HTTP is refused");
    expect(parse_http_request(std::string(1 << 20, 'x'), request).state == Parse::bad, "a head without end is refused");
    expect(!http::parse_traceparent("00-zz").is_set(), "a bad traceparent is ignored");
    expect(!parse_http_answer("HTTP/1.1 500 E\r\nContent-Length: 0\r\n\r\n").ok, "500 is an error");
    expect(parse_http_answer(encode_http_answer(200, "ok", false)).keep_alive == false, "close is close");
    expect(parse_http_answer("HTTP/1.1 2\r\n\r\n").state == Parse::bad, "a status cut short is refused");
}

void stores_answer() {
    expect(parse_redis_answer("$3\r\nabc\r").state == Parse::more && parse_redis_answer("$3\r\nabc\r\n").used == 9,
           "a bulk string of Redis");
    expect(parse_redis_answer("$-1\r\n").ok && !parse_redis_answer("-ERR no\r\n").ok, "misses and errors of Redis");
    expect(parse_redis_answer("$99999999999\r\n").state == Parse::bad, "an endless string is refused");
    expect(parse_memcached_answer("VALUE k 0 3\r\nabc\r\nEND\r\n").used == 23 && parse_memcached_answer("END\r\n").ok,
           "values of memcached");
    expect(parse_memcached_answer("VALUE k 0 3\r\nabc\r\nENDxx").state == Parse::bad &&
               parse_memcached_answer("VALUE \r\n").state == Parse::bad,
           "bad values of memcached");
}

void garbage_is_harmless() {
    Rng rng(5);
    const std::string_view alphabet = "\xC5\x01\x02\x03\r\n: $-+*/GETPOSTHTTP/1.1VALUEND0123456789";
    for (int round = 0; round < 20'000; ++round) {
        std::string text(rng.below(64), ' ');
        for (auto& c : text)
            c = rng.below(4) == 0 ? static_cast<char>(rng.below(256)) : alphabet[rng.below(alphabet.size())];
        if (round % 2) text += "\r\n\r\n";
        HttpRequest request;
        CallFrame frame;
        for (const Parsed& found : {parse_http_request(text, request), parse_http_answer(text), parse_call(text, frame),
                                    parse_answer(text), parse_redis_answer(text), parse_memcached_answer(text)})
            if (found.state == Parse::done && (found.used == 0 || found.used > text.size()))
                expect(false, "a message lies within its bytes");
    }
}

void draws_have_their_means() {
    Rng rng(3);
    const Work lognormal{3.0, 0.5, false, {}}, exponential{2.0, 0.0, true, {}},
        measured{0.0, 0.0, false, {0.0, 0.5, 1.0}, {1, 2, 5}};
    double sums[3] = {};
    constexpr int draws = 100'000;
    for (int i = 0; i < draws; ++i) {
        sums[0] += static_cast<double>(lognormal.draw_ns(rng));
        sums[1] += static_cast<double>(exponential.draw_ns(rng));
        sums[2] += static_cast<double>(measured.draw_ns(rng));
    }
    const double means_ms[3] = {3.0, 2.0, 2.5};
    for (int i = 0; i < 3; ++i)
        expect(std::abs(sums[i] / draws / 1e6 / means_ms[i] - 1) < 0.02, "times have their means");
}

void buckets_are_narrow() {
    Rng rng(4);
    bool ordered = bucket_of(0) == 0 && bucket_of(INT64_MAX) == bucket_count - 1;
    for (int i = 0; i < 10'000; ++i) {
        const auto time_ns = static_cast<std::int64_t>(1024 + rng.below(1ULL << rng.below(40)));
        const auto bucket = bucket_of(time_ns);
        ordered = ordered && bucket_of(time_ns + time_ns / 15) > bucket && bucket_of(time_ns - 1) <= bucket;
    }
    expect(ordered, "buckets ascend and are 7 % wide at most");
}

}  // namespace

void cell_tests() {
    frames_survive_the_wire();
    recorded_frames_survive_the_wire();
    http_is_read_in_pieces();
    bad_http_is_refused();
    stores_answer();
    garbage_is_harmless();
    draws_have_their_means();
    buckets_are_narrow();
}

}  // namespace gnomon::tests
