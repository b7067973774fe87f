#include "cell/pool.hpp"

#include <algorithm>

#include "cell/http.hpp"
#include "cell/store.hpp"
#include "clock.hpp"

namespace gnomon::cell {
namespace {

constexpr int most_resends = 3;

std::string encode(Protocol protocol, const Call& call) {
    switch (protocol) {
        case Protocol::rpc: {
            CallFrame frame{call.spec->node, call.priority, call.trace, call.sent_ns, call.spec->is_queued};
            if (call.spec->is_recorded)
                frame.recorded = {call.planned_ns != 0 ? call.planned_ns : call.sent_ns, call.spec->payload_bytes};
            return encode_call(frame);
        }
        case Protocol::http: return encode_http_call(call.spec->node, call.trace);
        case Protocol::redis: return encode_redis(call.spec->is_write());
        case Protocol::memcached: return encode_memcached(call.spec->is_write());
    }
    return {};
}

Parsed parse(Protocol protocol, std::string_view in) {
    switch (protocol) {
        case Protocol::rpc: return parse_answer(in);
        case Protocol::http: return parse_http_answer(in);
        case Protocol::redis: return parse_redis_answer(in);
        case Protocol::memcached: return parse_memcached_answer(in);
    }
    return {Parse::bad};
}

}  // namespace

class PoolConn final : public Conn {
public:
    PoolConn(Loop& loop, int fd, Pool& owner, std::uint16_t to_port)
        : Conn(loop, fd, true), port(to_port), pool_(owner) {}

    using Conn::close;
    [[nodiscard]] bool has_input() const { return !in.empty(); }

    const std::uint16_t port;
    Call* call = nullptr;  // none: idle

private:
    void on_input() override {
        const Parsed found = parse(pool_.callee_.protocol, in);
        if (found.state == Parse::more && call) return;
        // An answer that nobody waits for, or none that we know.
        if (found.state != Parse::done || !call || found.used != in.size()) return pool_.on_lost(*this);
        in.clear();
        call->answered_ns = found.planned_ns;
        pool_.on_answer(*this, found.ok, found.keep_alive);
    }
    void on_close() override { pool_.on_lost(*this); }

    Pool& pool_;
};

Pool::Pool(Loop& loop, Stats& stats, const Callee& callee, Listener listener)
    : loop_(loop), stats_(stats), callee_(callee), listener_(std::move(listener)) {}

Pool::~Pool() = default;

bool Pool::is_peer(std::uint16_t port) const { return std::find(peers_.begin(), peers_.end(), port) != peers_.end(); }

void Pool::set_peers(std::vector<std::uint16_t> ports) {
    peers_ = std::move(ports);
    for (auto& [port, conns] : idle_) {
        if (is_peer(port)) continue;
        for (PoolConn* conn : std::exchange(conns, {})) discard(*conn);
    }
    serve_waiting();
}

void Pool::call(Call& call) {
    ++call.attempts;
    call.resent = 0;
    call.began_ns = now_ns();
    if (call.spec->timeout_ns > 0)
        call.timeout = loop_.at(call.began_ns + call.spec->timeout_ns, [this, &call] { time_out(call); });
    if (callee_.pool == 0 || in_use_ < callee_.pool) return send(call);
    call.is_waiting = true;
    call.place = {-std::int64_t{call.priority}, ++queued_};
    waiting_.emplace(call.place, &call);
    ++stats_.head().pool_waiting;
}

PoolConn* Pool::take_connection(std::uint16_t port) {
    auto& idle = idle_[port];
    if (!idle.empty()) {
        PoolConn* conn = idle.back();
        idle.pop_back();
        return conn;
    }
    // The pool counts idle connections to other replicas too: one of them makes room.
    if (callee_.pool > 0 && conns_.size() >= callee_.pool)
        for (auto& [other, conns] : idle_)
            if (!conns.empty()) {
                discard(*conns.back());
                conns.pop_back();
                break;
            }
    const int fd = connect_loopback(port);
    if (fd < 0) return nullptr;
    auto made = std::make_unique<PoolConn>(loop_, fd, *this, port);
    PoolConn* conn = made.get();
    conns_.emplace(conn, std::move(made));
    return conn;
}

void Pool::send(Call& call) {
    ++in_use_;
    auto& head = stats_.head();
    call.sent_ns = now_ns();
    const std::int64_t waited_ns = call.is_waiting ? call.sent_ns - call.began_ns : 0;
    call.is_waiting = false;
    ++head.pool_waits;
    head.pool_wait_ns += waited_ns;
    ++stats_.pool_buckets()[bucket_of(waited_ns)];
    listener_.sent(call);
    transmit(call);
}

void Pool::transmit(Call& call) {
    call.conn = peers_.empty() ? nullptr : take_connection(peers_[next_peer_++ % peers_.size()]);
    if (!call.conn) return loop_.post([this, &call] { end(call, false); });
    call.conn->call = &call;
    call.conn->write(encode(callee_.protocol, call));
}

void Pool::time_out(Call& call) {
    call.timeout = no_timer;
    if (call.is_waiting) {
        waiting_.erase(call.place);
        --stats_.head().pool_waiting;
        call.is_waiting = false;
        return listener_.ended(call, false);
    }
    if (!call.conn) return;  // it failed in this very turn
    discard(*call.conn);
    end(call, false);
}

void Pool::on_answer(PoolConn& conn, bool ok, bool keep_alive) {
    Call& call = *conn.call;
    conn.call = nullptr;
    if (keep_alive && is_peer(conn.port)) idle_[conn.port].push_back(&conn);
    else discard(conn);
    end(call, ok);
}

void Pool::on_lost(PoolConn& conn) {
    Call* call = conn.call;
    if (!call) std::erase(idle_[conn.port], &conn);
    // HTTP servers close connections without a request when they like, and ours may cross that: it
    // gets another connection. Cells never do.
    const bool is_crossed =
        call && callee_.protocol == Protocol::http && !conn.has_input() && call->resent < most_resends;
    discard(conn);
    if (is_crossed) {
        ++call->resent;
        transmit(*call);
    } else if (call) {
        end(*call, false);
    }
}

void Pool::discard(PoolConn& conn) {
    conn.close();
    conn.call = nullptr;
    auto node = conns_.extract(&conn);
    if (node) loop_.bury(std::move(node.mapped()));
}

/// An attempt that held a connection is over.
void Pool::end(Call& call, bool ok) {
    --in_use_;
    call.conn = nullptr;
    loop_.cancel(call.timeout);
    listener_.ended(call, ok);
    serve_waiting();
}

void Pool::serve_waiting() {
    while (!waiting_.empty() && in_use_ < callee_.pool) {
        Call& next = *waiting_.extract(waiting_.begin()).mapped();
        --stats_.head().pool_waiting;
        send(next);
    }
}

}  // namespace gnomon::cell
