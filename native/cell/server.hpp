// A cell: one replica of a service. All requests live in the loop's thread; workers only burn time.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "cell/completions.hpp"
#include "cell/config.hpp"
#include "cell/loop.hpp"
#include "cell/pool.hpp"
#include "cell/script.hpp"
#include "cell/spans.hpp"
#include "cell/stats.hpp"
#include "cell/workers.hpp"
#include "engine/rng.hpp"

namespace gnomon::cell {

class ServerConn;

/// A request at this cell: stretches of CPU time with stages of calls between them.
struct Request {
    const Node* node = nullptr;
    std::uint64_t conn = 0;  // who gets the answer; 0: nobody (a queued message)
    Trace trace;             // its parent is the caller's span
    std::uint64_t span = 0;
    std::int32_t priority = 0;
    bool is_queued = false, holds_slot = false, has_failed = false;
    std::int64_t arrived_ns = 0, stretch_ns = 0, wait_ns = 0;
    std::size_t stretches_done = 0;
    std::vector<std::unique_ptr<Call>> calls;  // of the stage under way
    std::size_t unanswered = 0, on_the_wire = 0;
    std::int64_t on_the_wire_since_ns = 0, calls_ns = 0;
    std::optional<Recorded> recorded;  // what came with a recorded call
    std::unique_ptr<Playing> playing;  // of a recorded visit
};

class Server final : public Source {
public:
    Server(Loop& loop, const Config& config);
    ~Server() override;

    [[nodiscard]] std::uint16_t port() const { return port_; }
    void flush() {
        spans_.flush();
        completions_.flush();
    }
    void on_event(std::uint32_t events) override;  // of the listening socket

private:
    friend class ServerConn;

    struct Arrival {
        std::uint32_t node = 0;
        std::optional<std::int32_t> priority;
        Trace trace;
        std::int64_t sent_ns = 0;
        bool is_queued = false;
        std::uint64_t conn = 0;
        std::optional<Recorded> recorded{};
    };
    enum class Admission : std::uint8_t { taken, refused, unknown };

    void pause_accepting();
    Admission admit(const Arrival& arrival);
    void start_stretch(Request& request);
    void on_stretch_done(Request& request);
    void go_on(Request& request);
    void start_stage(Request& request);
    void make_call(Request& request, const Step& step, std::uint32_t number, std::int64_t planned_ns);
    void on_call_sent(Call& call);
    void on_call_ended(Call& call, bool ok);
    void on_recorded_ended(Call& call, bool ok);
    void add_call_span(const Call& call, bool ok, std::int64_t end_ns);
    void finish(Request& request, bool ok);
    void forget(Request& request);
    [[nodiscard]] std::optional<std::uint32_t> draw_entry(std::string_view path);
    void set_peers(std::string_view json);
    void drain();
    void leave_if_idle();
    void watch_silence(std::int64_t arrived_before);

    Loop& loop_;
    const Config& config_;
    Stats stats_;
    Spans spans_;
    Completions completions_;
    Rng rng_;
    int listener_ = -1;
    std::uint16_t port_;
    bool is_draining_ = false;
    std::uint64_t conns_made_ = 0;
    std::unordered_map<std::uint64_t, std::unique_ptr<ServerConn>> conns_;
    std::unordered_map<Request*, std::unique_ptr<Request>> requests_;
    std::vector<std::size_t> store_of_callee_;  // its place among the stores, from 1 on; 0: no store
    std::vector<std::unique_ptr<Pool>> pools_;
    Workers workers_;
    Player player_;
};

}  // namespace gnomon::cell
