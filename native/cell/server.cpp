#include "cell/server.hpp"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <stdexcept>

#include "cell/http.hpp"
#include "clock.hpp"

namespace gnomon::cell {
namespace {

constexpr std::int64_t second_ns = 1'000'000'000;
/// A draining cell leaves connections that nobody uses for so long.
constexpr std::int64_t drain_grace_ns = second_ns / 2;

bool is_store(Protocol protocol) { return protocol == Protocol::redis || protocol == Protocol::memcached; }

std::size_t count_blocks(const Config& config) {
    std::size_t parties = 1;
    for (const auto& callee : config.callees) parties += is_store(callee.protocol);
    return parties * config.classes.size();
}

}  // namespace

/// A caller's connection. It has one request at a time; what comes early waits in the buffer.
class ServerConn final : public Conn {
public:
    ServerConn(Loop& loop, int fd, Server& server, std::uint64_t id)
        : Conn(loop, fd, false), server_(server), id_(id) {}

    void answer(bool ok, const std::optional<Recorded>& recorded) {
        if (is_rpc_) write(encode_answer(ok, recorded));
        else answer_http(ok ? 200 : 500, ok ? "ok\n" : "error\n");
        is_busy_ = false;
        if (!is_closed() && !in.empty()) on_input();
    }

private:
    void on_input() override {
        while (!is_busy_ && !is_closed() && !in.empty()) {
            is_rpc_ = in[0] == frame_magic;
            const Parsed found = is_rpc_ ? take_rpc() : take_http();
            if (found.state == Parse::more) return;
            if (found.state == Parse::bad) return give_up();
            in.erase(0, found.used);
        }
        if (in.size() > most_head_bytes + most_body_bytes) give_up();
    }

    void on_close() override {
        server_.loop_.post([&server = server_, id = id_] { forget(server, id); });
    }

    static void forget(Server& server, std::uint64_t id) {
        if (auto node = server.conns_.extract(id)) server.loop_.bury(std::move(node.mapped()));
        server.leave_if_idle();
    }

    void give_up() {
        if (!is_rpc_) write(encode_http_answer(400, "bad request\n", false));
        close();
        on_close();
    }

    Parsed take_rpc() {
        CallFrame frame;
        const Parsed found = parse_call(in, frame);
        if (found.state != Parse::done) return found;
        // Before it is admitted: a request without work may be answered at once.
        is_busy_ = !frame.is_queued;
        const auto admitted = server_.admit({frame.node, frame.priority, frame.trace, frame.sent_ns, frame.is_queued,
                                             frame.is_queued ? 0 : id_, frame.recorded});
        if (admitted != Server::Admission::taken || frame.is_queued) {
            is_busy_ = false;
            write(encode_answer(admitted == Server::Admission::taken));
        }
        return found;
    }

    Parsed take_http() {
        HttpRequest request;
        const Parsed found = parse_http_request(in, request);
        if (found.state != Parse::done) return found;
        keep_alive_ = found.keep_alive && !server_.is_draining_;
        if (request.method == "GET") get(request);
        else if (request.method == "POST") post(request);
        else answer_http(405, "GET or POST\n");
        return found;
    }

    void get(const HttpRequest& request) {
        constexpr std::string_view call = "/call/";
        std::uint32_t node = 0;
        if (request.path == "/healthz") return answer_http(200, "ok\n");
        if (request.path == "/metrics")
            return answer_http(200, format_metrics(server_.stats_, server_.config_.classes));
        if (const auto drawn = server_.draw_entry(request.path)) node = *drawn;
        else if (!request.path.starts_with(call) || !http::parse_number(request.path.substr(call.size()), node))
            return answer_http(404, "there are: /call/NODE, /healthz, /metrics\n");
        is_busy_ = true;
        const auto admitted = server_.admit({node, {}, request.trace, 0, false, id_});
        if (admitted == Server::Admission::taken) return;
        is_busy_ = false;
        if (admitted == Server::Admission::refused) answer_http(503, "the queue is full\n");
        else answer_http(404, "there is no such call here\n");
    }

    void post(const HttpRequest& request) {
        if (request.path == "/drain") {
            answer_http(200, "ok\n");
            return server_.drain();
        }
        if (request.path == "/flush") {
            server_.flush();
            return answer_http(200, "ok\n");
        }
        if (request.path != "/peers") return answer_http(404, "there are: /peers, /drain, /flush\n");
        try {
            server_.set_peers(request.body);
            answer_http(200, "ok\n");
        } catch (const std::invalid_argument& error) {
            answer_http(400, std::string("the list ") + error.what() + "\n");
        }
    }

    void answer_http(int status, std::string_view body) {
        write(encode_http_answer(status, body, keep_alive_));
        if (keep_alive_) return;
        close();
        on_close();
    }

    Server& server_;
    const std::uint64_t id_;
    bool is_busy_ = false, is_rpc_ = false, keep_alive_ = true;
};

Server::Server(Loop& loop, const Config& config)
    : loop_(loop),
      config_(config),
      stats_(config.stats_path, count_blocks(config)),
      spans_(loop, config.spans_path, config.service),
      completions_(loop, config.completions_path),
      rng_(config.seed),
      port_(config.port),
      workers_(loop, stats_, config.workers, [this](Request* request) { on_stretch_done(*request); }),
      player_(loop, workers_, config.catch_up_ns,
              {[this](Request& request, const Step& step, std::uint32_t number, std::int64_t planned_ns) {
                   make_call(request, step, number, planned_ns);
               },
               [this](Request& request) { finish(request, !request.has_failed && !request.node->script->fails); }}) {
    const Pool::Listener listener{[this](Call& call) { on_call_sent(call); },
                                  [this](Call& call, bool ok) { on_call_ended(call, ok); }};
    std::size_t stores = 0;
    for (const auto& callee : config.callees) {
        store_of_callee_.push_back(is_store(callee.protocol) ? ++stores : 0);
        pools_.push_back(std::make_unique<Pool>(loop, stats_, callee, listener));
    }
    listener_ = listen_loopback(port_);
    loop_.watch(listener_, EPOLLIN, this, true);
}

Server::~Server() {
    if (listener_ >= 0) close(listener_);
}

void Server::on_event(std::uint32_t) {
    for (;;) {
        const int fd = accept4(listener_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0 && (errno == EMFILE || errno == ENFILE)) return pause_accepting();
        if (fd < 0) return;
        const auto id = ++conns_made_;
        conns_.emplace(id, std::make_unique<ServerConn>(loop_, fd, *this, id));
    }
}

/// Without descriptors the socket stays ready, and the loop would spin.
void Server::pause_accepting() {
    loop_.watch(listener_, 0, this, false);
    loop_.at(now_ns() + second_ns / 100, [this] {
        if (listener_ >= 0) loop_.watch(listener_, EPOLLIN, this, false);
    });
}

Server::Admission Server::admit(const Arrival& arrival) {
    const auto found = config_.nodes.find(arrival.node);
    if (found == config_.nodes.end()) return Admission::unknown;
    auto& head = stats_.head();
    ++head.arrived;
    if (config_.queue_limit >= 0 && workers_.backlog() >= config_.queue_limit) {
        ++head.refused;
        return Admission::refused;
    }
    auto made = std::make_unique<Request>();
    Request& request = *made;
    const Node& node = found->second;
    const std::int64_t now = now_ns();
    request.node = &node;
    request.conn = arrival.conn;
    request.priority = arrival.priority.value_or(node.priority);
    request.is_queued = arrival.is_queued;
    // A message carries when it was sent, so that waiting at our door counts as ours.
    const bool is_plausible =
        arrival.sent_ns > std::max<std::int64_t>(0, now - 3600 * second_ns) && arrival.sent_ns <= now;
    request.arrived_ns = is_plausible ? arrival.sent_ns : now;
    request.trace = arrival.trace;
    if (!request.trace.is_set()) request.trace = {rng_(), rng_() | 1, 0, rng_.uniform() < config_.sample_share};
    request.span = rng_() | 1;
    request.recorded = arrival.recorded;
    requests_.emplace(&request, std::move(made));
    head.in_flight = static_cast<std::int64_t>(requests_.size());
    if (node.script) {
        player_.begin(request, is_plausible && arrival.recorded ? arrival.recorded->planned_ns : request.arrived_ns);
        request.arrived_ns = std::max(request.arrived_ns, request.playing->begin_ns);
        return Admission::taken;
    }
    request.stretch_ns = node.cpu.draw_ns(rng_) / static_cast<std::int64_t>(node.stages.size() + 1);
    request.wait_ns = node.wait.draw_ns(rng_);
    start_stretch(request);
    return Admission::taken;
}

void Server::start_stretch(Request& request) {
    const bool is_last =
        request.stretches_done == request.node->stages.size() && (request.stretches_done > 0 || request.wait_ns == 0);
    const Stretch stretch{&request, request.stretch_ns, config_.is_blocking && !is_last};
    if (request.holds_slot) workers_.resume(stretch);
    else workers_.enqueue(request.priority, stretch);
    request.holds_slot = stretch.keeps_slot;
}

void Server::on_stretch_done(Request& request) {
    if (request.playing) return player_.on_spun(request);
    if (++request.stretches_done > 1 || request.wait_ns == 0) return go_on(request);
    loop_.at(now_ns() + request.wait_ns, [this, &request] { go_on(request); });
}

void Server::go_on(Request& request) {
    if (request.stretches_done <= request.node->stages.size()) return start_stage(request);
    const double error_share = request.node->error_share;
    finish(request, error_share <= 0.0 || rng_.uniform() >= error_share);
}

void Server::start_stage(Request& request) {
    request.calls.clear();
    for (const auto& spec : request.node->stages[request.stretches_done - 1]) {
        if (spec.probability < 1.0 && rng_.uniform() >= spec.probability) continue;
        auto& call = *request.calls.emplace_back(std::make_unique<Call>());
        call.request = &request;
        call.spec = &spec;
        call.priority = request.priority;
        call.trace = request.trace;
    }
    if (request.calls.empty()) return start_stretch(request);
    request.unanswered = request.calls.size();
    for (auto& call : request.calls) {
        call->trace.parent = rng_() | 1;
        pools_[call->spec->callee]->call(*call);
    }
}

void Server::on_call_sent(Call& call) {
    Request& request = *call.request;
    if (request.on_the_wire++ == 0) request.on_the_wire_since_ns = call.sent_ns;
}

void Server::on_call_ended(Call& call, bool ok) {
    Request& request = *call.request;
    const CallSpec& spec = *call.spec;
    const std::int64_t now = now_ns();
    if (call.sent_ns > 0) {  // else it timed out before it had a connection
        if (--request.on_the_wire == 0) request.calls_ns += now - request.on_the_wire_since_ns;
        if (const auto store = store_of_callee_[spec.callee])
            stats_.block(store * config_.classes.size() + request.node->class_index)
                .add(ok, now - call.sent_ns, now - call.sent_ns);
    }
    if (request.playing) return on_recorded_ended(call, ok);
    add_call_span(call, ok, now);
    if (!ok && call.attempts <= spec.retries) {
        call.sent_ns = 0;
        call.trace.parent = rng_() | 1;
        return loop_.post([this, &call] { pools_[call.spec->callee]->call(call); });
    }
    request.has_failed = request.has_failed || !ok;
    if (--request.unanswered > 0) return;
    // Posted: the pool that called us still holds the last call.
    loop_.post([this, &request] {
        if (request.has_failed) finish(request, false);
        else start_stretch(request);
    });
}

void Server::add_call_span(const Call& call, bool ok, std::int64_t end_ns) {
    const Request& request = *call.request;
    if (!request.trace.sampled) return;
    Trace trace = request.trace;
    trace.parent = request.span;
    spans_.add({call.spec->is_queued ? SpanKind::producer : SpanKind::client, trace, call.trace.parent,
                call.spec->operation, config_.callees[call.spec->callee].service, call.began_ns, end_ns, ok});
}

void Server::make_call(Request& request, const Step& step, std::uint32_t number, std::int64_t planned_ns) {
    auto& call = *request.calls.emplace_back(std::make_unique<Call>());
    call.request = &request;
    call.spec = &step.call;
    call.priority = request.priority;
    call.trace = request.trace;
    call.trace.parent = rng_() | 1;
    call.step = number;
    call.planned_ns = planned_ns;
    pools_[step.call.callee]->call(call);
}

void Server::on_recorded_ended(Call& call, bool ok) {
    Request& request = *call.request;
    const std::int64_t answered_ns = player_.answered_ns(call, request.node->script->steps[call.step]);
    // The answer is on a slow network until then.
    add_call_span(call, ok, call.spec->is_queued ? now_ns() : std::max(now_ns(), answered_ns));
    // A recorded failure is part of the plan; a call that broke is not.
    request.has_failed = request.has_failed || (!ok && call.answered_ns == 0);
    // Posted: the pool that called us still holds the call.
    loop_.post([this, &request, step = call.step, answered_ns] {
        player_.on_answered(request, step, answered_ns);
        if (request.playing->has_ended && request.playing->under_way == 0) forget(request);
    });
}

void Server::finish(Request& request, bool ok) {
    const std::int64_t now = std::max(now_ns(), request.arrived_ns), total_ns = now - request.arrived_ns;
    if (request.holds_slot) workers_.release();
    if (request.is_queued) completions_.add(request.trace, now);
    stats_.block(request.node->class_index).add(ok, total_ns - request.calls_ns, total_ns);
    if (request.trace.sampled)
        spans_.add({request.is_queued ? SpanKind::consumer : SpanKind::server,
                    request.trace,
                    request.span,
                    request.node->operation,
                    {},
                    request.arrived_ns,
                    now,
                    ok,
                    request.recorded ? request.recorded->payload_bytes : 0,
                    request.node->script ? request.node->script->answer_bytes : 0});
    const auto conn = request.conn;
    std::optional<Recorded> recorded;
    if (request.playing && request.recorded) recorded = {request.playing->end_ns, request.node->script->answer_bytes};
    // Who called and did not wait keeps the request until the answer is there.
    if (!request.playing || request.playing->under_way == 0) forget(request);
    if (const auto found = conns_.find(conn); found != conns_.end()) found->second->answer(ok, recorded);
}

void Server::forget(Request& request) {
    requests_.erase(&request);
    stats_.head().in_flight = static_cast<std::int64_t>(requests_.size());
    leave_if_idle();
}

/// One of the first calls of the class that a path names, by their weights; none where there is none.
std::optional<std::uint32_t> Server::draw_entry(std::string_view path) {
    if (!path.starts_with('/')) return std::nullopt;
    for (std::size_t i = 0; i < config_.classes.size(); ++i) {
        const Entry& entry = config_.entries[i];
        if (config_.classes[i] != path.substr(1) || entry.nodes.empty()) continue;
        const auto found =
            std::upper_bound(entry.reached.begin(), entry.reached.end(), rng_.uniform() * entry.reached.back());
        return entry.nodes[std::min<std::size_t>(static_cast<std::size_t>(found - entry.reached.begin()),
                                                 entry.nodes.size() - 1)];
    }
    return std::nullopt;
}

void Server::set_peers(std::string_view text) {
    JsonCursor cursor(text);
    std::string scratch;
    std::vector<std::pair<std::size_t, std::vector<std::uint16_t>>> changes;
    cursor.object(scratch, [&](std::string_view service) {
        std::size_t index = 0;
        while (index < pools_.size() && config_.callees[index].service != service) ++index;
        if (index == pools_.size()) throw std::invalid_argument("names '" + std::string(service) + "', never called");
        auto& ports = changes.emplace_back(index, std::vector<std::uint16_t>{}).second;
        json::list(cursor, [&] { ports.push_back(parse_address(json::text(cursor))); });
    });
    for (auto& [index, ports] : changes) pools_[index]->set_peers(std::move(ports));
}

void Server::drain() {
    if (is_draining_) return;
    on_event(0);  // who has connected already is served
    close(listener_);
    listener_ = -1;
    is_draining_ = true;
    loop_.post([this] { leave_if_idle(); });
    watch_silence(stats_.head().arrived);
}

void Server::leave_if_idle() {
    if (is_draining_ && requests_.empty() && conns_.empty()) loop_.stop();
}

/// Connections that stay open without requests do not keep a draining cell for ever.
void Server::watch_silence(std::int64_t arrived_before) {
    loop_.at(now_ns() + drain_grace_ns, [this, arrived_before] {
        const std::int64_t arrived = stats_.head().arrived;
        if (requests_.empty() && arrived == arrived_before) loop_.stop();
        else watch_silence(arrived);
    });
}

}  // namespace gnomon::cell
