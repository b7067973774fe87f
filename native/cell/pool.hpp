// The connections of a cell to the replicas of one service that it calls.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "cell/config.hpp"
#include "cell/loop.hpp"
#include "cell/stats.hpp"
#include "cell/wire.hpp"

namespace gnomon::cell {

class PoolConn;
struct Request;

/// One call under way: an attempt waits for a connection, is sent, and is answered or given up.
struct Call {
    Request* request = nullptr;
    const CallSpec* spec = nullptr;
    std::int32_t priority = 0;
    Trace trace;  // its parent is the span of this attempt
    int attempts = 0, resent = 0;
    std::int64_t began_ns = 0, sent_ns = 0;
    std::uint32_t step = 0;        // of a recorded visit
    std::int64_t planned_ns = 0;   // recorded: when it would have been sent; 0: when it is
    std::int64_t answered_ns = 0;  // recorded: when it would have been answered; 0: it was not
    PoolConn* conn = nullptr;
    std::pair<std::int64_t, std::uint64_t> place{};  // in the queue for a connection
    bool is_waiting = false;
    TimerKey timeout = no_timer;
};

class Pool {
public:
    /// Callbacks of its user: `sent` in the middle of call(), `ended` always from the loop.
    struct Listener {
        std::function<void(Call&)> sent;
        std::function<void(Call&, bool ok)> ended;
    };

    Pool(Loop& loop, Stats& stats, const Callee& callee, Listener listener);
    ~Pool();

    /// Starts an attempt. The time-out runs from here, so waiting for a connection counts.
    void call(Call& call);
    /// From now on these replicas are called, in turns. Calls under way end where they are.
    void set_peers(std::vector<std::uint16_t> ports);

private:
    friend class PoolConn;

    void send(Call& call);
    void transmit(Call& call);
    void time_out(Call& call);
    void on_answer(PoolConn& conn, bool ok, bool keep_alive);
    void on_lost(PoolConn& conn);
    void end(Call& call, bool ok);
    void discard(PoolConn& conn);
    void serve_waiting();
    PoolConn* take_connection(std::uint16_t port);
    [[nodiscard]] bool is_peer(std::uint16_t port) const;

    Loop& loop_;
    Stats& stats_;
    const Callee& callee_;
    Listener listener_;
    std::vector<std::uint16_t> peers_;
    std::size_t next_peer_ = 0, in_use_ = 0;
    std::uint64_t queued_ = 0;
    std::map<std::pair<std::int64_t, std::uint64_t>, Call*> waiting_;  // by (-priority, order)
    std::unordered_map<std::uint16_t, std::vector<PoolConn*>> idle_;
    std::unordered_map<PoolConn*, std::unique_ptr<PoolConn>> conns_;
};

}  // namespace gnomon::cell
