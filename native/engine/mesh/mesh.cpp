#include "engine/mesh/mesh.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>

#include "engine/event_queue.hpp"
#include "engine/index.hpp"
#include "engine/indexed_queue.hpp"
#include "engine/mesh/parts.hpp"
#include "engine/mesh/tables.hpp"
#include "engine/rng.hpp"

namespace gnomon::mesh {
namespace {

enum class Kind : std::uint8_t { arrive, answer, waited, retry, time_out, client_time_out, replica_ready, noise };

constexpr std::uint64_t cpu_stream = 1, wait_stream = 2, choice_stream = 3, network_stream = 4, phase_stream = 5,
                        noise_stream = 6, mood_stream = 7;
constexpr std::int64_t first_pause = 1'000'000;  // ns before a first retry
constexpr double nothing = std::numeric_limits<double>::quiet_NaN();

struct Delay {
    Kind kind;
    std::int32_t number;
    std::uint32_t generation;
};

/// Delays of one time end in the order in which they were set: the key is that order, and below it
/// the slot of the delay.
constexpr int slot_bits = 26;

class Play {
public:
    explicit Play(const Input& input);

    void advance(std::int64_t until);
    Observation observe();
    void set_limit(std::int32_t service, double cores);
    void set_request(std::int32_t service, double weight);
    void set_replicas(std::int32_t service, std::int32_t count);
    [[nodiscard]] Spent spent() const;

    Requests kept_;
    std::int64_t events_ = 0, pending_ = 0;

private:
    // Slots.
    std::int32_t new_frame(std::int32_t call, std::int32_t request, std::int32_t parent);
    void free_frame(std::int32_t f);
    void end_request_if_done(std::int32_t r);

    // A call, from its caller to its end.
    void arrive_request(std::int64_t number);
    void issue(std::int32_t f);
    void send(std::int32_t f);
    void arrive(std::int32_t f);
    void give_to_replica(std::int32_t f);
    void wait_for_worker(std::int32_t f);
    void start_stretch(std::int32_t f);
    void stretch_done(std::int32_t f);
    void proceed(std::int32_t f);
    void stage_done(std::int32_t f);
    void finish(std::int32_t f);
    void answer(std::int32_t f);
    void leave_caller(std::int32_t f);
    void child_answered(std::int32_t parent, std::int32_t call, std::int32_t attempt, bool is_failed);
    void give_up(std::int32_t f);
    void record(std::int32_t r, Status status);

    // CPUs, hosts and replicas.
    void cpu_event(std::int32_t replica);
    void touch(std::int32_t replica);
    void share_host(Host& host);
    void dispatch(std::int32_t replica);
    void add_replica(std::int32_t service, std::int64_t startup);
    void become_ready(std::int32_t replica);
    void remove_replica(std::int32_t replica);
    void leave_replica(std::int32_t f);
    void release_if_empty(std::int32_t replica);
    void switch_noise(std::int32_t host);
    void count_waiting(Service& service, std::int64_t change);

    void delay(std::int64_t ns, Kind kind, std::int32_t number, std::uint32_t generation = 0);
    /// A call or its answer on its way; it is there at once if that takes no time.
    void cross_network(Kind kind, std::int32_t f);
    /// The same through the queue of events, where a chain of answers would nest too deep.
    void answer_later(std::int32_t f) {
        delay(static_cast<std::int64_t>(tables_.draws[index(in_.network)](network_)), Kind::answer, f);
    }
    bool chance(double share) { return share >= 1.0 || (share > 0.0 && choice_.uniform() < share); }
    double draw_time(std::int32_t draw, std::int32_t r, Rng& rng) {
        const auto& request = requests_[index(r)];
        return tables_.draws[index(draw)](rng, in_.class_correlation[index(request.request_class)], request.mood);
    }
    [[nodiscard]] bool has_free_worker(const Replica& replica) const {
        const auto s = index(replica.service);
        return (in_.service_is_blocking[s] ? replica.held : replica.cpu.running()) < in_.service_workers[s];
    }
    [[nodiscard]] const CallAbout& about(std::int32_t f) const { return tables_.calls[index(frames_[index(f)].call)]; }
    [[nodiscard]] std::int32_t rank_of(std::int32_t f) const {
        return tables_.rank[index(requests_[index(frames_[index(f)].request)].request_class)];
    }
    void handle(Delay delay);

    Input in_;
    Tables tables_;
    std::vector<Frame> frames_;
    std::vector<std::int32_t> free_frames_;
    std::vector<Request> requests_;
    std::vector<std::int32_t> free_requests_;
    std::vector<Replica> replicas_;
    std::vector<Service> services_;
    std::vector<Host> hosts_;
    std::vector<Pair> pairs_;
    std::vector<ClassWindow> windows_;
    Fifo<std::int32_t> instant_;      // stretches without work: done before time goes on
    std::int32_t touched_ = none;     // a replica whose event is under way: it is looked at in the end
    std::vector<std::int32_t> made_;  // calls of the stage that is being issued
    IndexedQueue cpu_events_;         // by replica
    EventQueue delays_;
    std::vector<Delay> slots_;
    std::vector<std::int32_t> free_slots_;
    std::int64_t delays_set_ = 0;
    std::size_t next_arrival_ = 0;
    std::int64_t now_ = 0, observed_ = 0;
    Rng cpu_, wait_, choice_, network_, phase_, noise_, mood_;
};

Play::Play(const Input& input)
    : in_(input),
      tables_(input),
      cpu_(input.seed, cpu_stream),
      wait_(input.seed, wait_stream),
      choice_(input.seed, choice_stream),
      network_(input.seed, network_stream),
      phase_(input.seed, phase_stream),
      noise_(input.seed, noise_stream),
      mood_(input.seed, mood_stream) {
    for (const auto& [request_class, service] : tables_.pairs)
        pairs_.push_back({request_class, service, 0, 0.0, 0.0, 0.0, {}, {}});
    for (std::size_t h = 0; h < in_.host_cores.size(); ++h) {
        hosts_.push_back({in_.host_cores[h],
                          in_.host_noise_cores[h],
                          in_.host_noise_on[h],
                          in_.host_noise_off[h],
                          false,
                          false,
                          0.0,
                          {}});
        if (hosts_.back().noise_cores > 0.0) switch_noise(static_cast<std::int32_t>(h));
    }
    for (std::size_t s = 0; s < in_.service_replicas.size(); ++s) {
        services_.push_back({in_.service_limit[s],
                             in_.service_request[s],
                             {},
                             {},
                             0,
                             Waiting<std::int32_t>(tables_.ranks),
                             {},
                             0,
                             0,
                             0,
                             0.0,
                             0.0,
                             0.0});
        services_.back().cpu.slice_length = in_.period;
    }
    for (std::size_t s = 0; s < services_.size(); ++s)
        for (std::int32_t i = 0; i < in_.service_replicas[s]; ++i) add_replica(static_cast<std::int32_t>(s), 0);
    windows_.resize(in_.class_call.size());
    if (in_.keeps_requests) {
        kept_.latency.assign(in_.arrival_time.size(), -1);
        kept_.status.assign(in_.arrival_time.size(), Status::pending);
    }
}

// --- slots ---------------------------------------------------------------------------------------

std::int32_t Play::new_frame(std::int32_t call, std::int32_t request, std::int32_t parent) {
    std::int32_t f = static_cast<std::int32_t>(frames_.size());
    if (free_frames_.empty()) {
        frames_.emplace_back();
    } else {
        f = free_frames_.back();
        free_frames_.pop_back();
    }
    auto& frame = frames_[index(f)];
    const auto generation = frame.generation;
    frame = Frame{};
    frame.generation = generation;
    frame.call = call;
    frame.request = request;
    frame.parent = parent;
    frame.issued = now_;
    ++requests_[index(request)].frames;
    return f;
}

void Play::free_frame(std::int32_t f) {
    auto& frame = frames_[index(f)];
    ++frame.generation;
    free_frames_.push_back(f);
    --requests_[index(frame.request)].frames;
    end_request_if_done(frame.request);
}

void Play::end_request_if_done(std::int32_t r) {
    auto& request = requests_[index(r)];
    if (request.frames > 0 || !request.is_answered) return;
    if (!request.is_recorded) record(r, Status::answered);
    ++request.generation;
    free_requests_.push_back(r);
}

// --- a call --------------------------------------------------------------------------------------

void Play::arrive_request(std::int64_t number) {
    std::int32_t r = static_cast<std::int32_t>(requests_.size());
    if (free_requests_.empty()) {
        requests_.emplace_back();
    } else {
        r = free_requests_.back();
        free_requests_.pop_back();
    }
    auto& request = requests_[index(r)];
    const auto generation = request.generation;
    request = Request{};
    request.generation = generation;
    request.request_class = in_.arrival_class[index(number)];
    request.arrived = now_;
    request.number = number;
    ++pending_;
    ++windows_[index(request.request_class)].arrived;
    const auto c = index(request.request_class);
    if (in_.class_correlation[c] > 0.0) request.mood = mood_.normal();
    if (in_.class_timeout[c] >= 0) delay(in_.class_timeout[c], Kind::client_time_out, r, generation);
    issue(new_frame(in_.class_call[c], r, client));
}

void Play::issue(std::int32_t f) {
    auto& frame = frames_[index(f)];
    const auto& call = about(f);
    if (call.timeout >= 0 && frame.parent != client) delay(call.timeout, Kind::time_out, f, frame.generation);
    const auto pool = call.pool;
    if (pool != none) {
        auto& connections = replicas_[index(frames_[index(frame.parent)].replica)].pools[index(pool)];
        if (connections.free == 0) {
            connections.waiting.push({f, frame.generation}, rank_of(f));
            return;
        }
        --connections.free;
        frame.has_connection = true;
    }
    send(f);
}

void Play::send(std::int32_t f) {
    auto& frame = frames_[index(f)];
    frame.is_sent = true;
    if (frame.parent >= 0) {
        auto& parent = frames_[index(frame.parent)];
        services_[index(about(frame.parent).service)].pool_wait += static_cast<double>(now_ - frame.issued);
        if (parent.outstanding++ == 0) parent.awaited_since = now_;
    }
    cross_network(Kind::arrive, f);
}

void Play::cross_network(Kind kind, std::int32_t f) {
    const auto& draw = tables_.draws[index(in_.network)];
    if (!draw.is_zero()) delay(static_cast<std::int64_t>(draw(network_)), kind, f);
    else if (kind == Kind::arrive) arrive(f);
    else answer(f);
}

void Play::arrive(std::int32_t f) {
    if (!about(f).is_queued) return give_to_replica(f);
    // The message is in the queue: its work has a frame of its own, which nobody waits for.
    const auto work = new_frame(frames_[index(f)].call, frames_[index(f)].request, given_up);
    give_to_replica(work);
    answer_later(f);
}

void Play::give_to_replica(std::int32_t f) {
    auto& frame = frames_[index(f)];
    const auto& call = about(f);
    const auto s = call.service;
    auto& service = services_[index(s)];
    frame.arrived = frame.queued_since = now_;
    if (service.ready.empty()) {
        service.homeless.push(f, rank_of(f));
        count_waiting(service, 1);
        return;
    }
    if (service.turn >= service.ready.size()) service.turn = 0;
    frame.replica = service.ready[service.turn++];
    auto& replica = replicas_[index(frame.replica)];
    const auto most = in_.service_queue_limit[index(s)];
    if (most >= 0 && replica.waiting.size() >= most && (most > 0 || !has_free_worker(replica))) {
        frame.is_failed = true;
        frame.replica = none;
        return answer_later(f);
    }
    ++replica.inside;
    const auto parts = 1 + call.end_stage - call.first_stage;
    const double work =
        draw_time(call.cpu, frame.request, cpu_) + tables_.draws[index(in_.service_overhead[index(s)])](cpu_);
    frame.stretch = work / parts;
    wait_for_worker(f);
}

void Play::wait_for_worker(std::int32_t f) {
    auto& frame = frames_[index(f)];
    frame.queued_since = now_;
    auto& replica = replicas_[index(frame.replica)];
    const auto s = index(replica.service);
    if (replica.waiting.empty() && has_free_worker(replica)) {
        if (in_.service_is_blocking[s]) ++replica.held;
        return start_stretch(f);
    }
    replica.waiting.push(f, rank_of(f));
    count_waiting(services_[s], 1);
}

void Play::dispatch(std::int32_t number) {
    auto& replica = replicas_[index(number)];
    const auto s = index(replica.service);
    const bool is_blocking = in_.service_is_blocking[s];
    while (!replica.waiting.empty() && has_free_worker(replica)) {
        const auto f = replica.waiting.pop();
        count_waiting(services_[s], -1);
        frames_[index(f)].queued += static_cast<double>(now_ - frames_[index(f)].queued_since);
        if (is_blocking) ++replica.held;
        start_stretch(f);
    }
}

void Play::start_stretch(std::int32_t f) {
    const auto& frame = frames_[index(f)];
    if (frame.stretch <= 0.0) return instant_.push(f);
    auto& replica = replicas_[index(frame.replica)];
    replica.cpu.advance(now_, services_[index(replica.service)].cpu);
    replica.cpu.start(frame.stretch, f);
    pairs_[index(about(f).pair)].cpu += frame.stretch;
    touch(frame.replica);
}

void Play::stretch_done(std::int32_t f) {
    auto& frame = frames_[index(f)];
    const auto wait = about(f).wait;
    if (!frame.has_waited && !tables_.draws[index(wait)].is_zero()) {
        frame.has_waited = true;
        const auto ns = draw_time(wait, frame.request, wait_);
        return delay(static_cast<std::int64_t>(ns), Kind::waited, f);
    }
    proceed(f);
}

void Play::proceed(std::int32_t f) {
    const auto& call = about(f);
    const auto stage = call.first_stage + frames_[index(f)].stage;
    if (stage == call.end_stage) {
        if (chance(call.error_share)) frames_[index(f)].is_failed = true;
        return finish(f);
    }
    // All are chosen before the first is issued: its answer may come at once.
    const auto first = in_.stage_call[index(stage)], last = in_.stage_call[index(stage) + 1];
    made_.clear();
    for (auto below = first; below < last; ++below)
        if (chance(tables_.calls[index(below)].probability)) made_.push_back(below);
    if (made_.empty()) return stage_done(f);
    frames_[index(f)].pending = static_cast<std::int32_t>(made_.size());
    const auto request = frames_[index(f)].request;
    for (const auto below : made_) issue(new_frame(below, request, f));
}

void Play::stage_done(std::int32_t f) {
    auto& frame = frames_[index(f)];
    ++frame.stage;
    if (frame.is_failed) return finish(f);
    if (in_.service_is_blocking[index(replicas_[index(frame.replica)].service)]) start_stretch(f);
    else wait_for_worker(f);
}

void Play::finish(std::int32_t f) {
    const auto& frame = frames_[index(f)];
    auto& pair = pairs_[index(about(f).pair)];
    const auto exclusive = now_ - frame.arrived - static_cast<std::int64_t>(frame.awaited);
    ++pair.calls;
    pair.exclusive += static_cast<double>(exclusive);
    pair.queued += frame.queued;
    pair.window.add(exclusive);
    pair.total.add(exclusive);
    ++services_[index(pair.service)].calls;
    leave_replica(f);
    if (frames_[index(f)].parent == given_up) free_frame(f);
    else cross_network(Kind::answer, f);
}

void Play::leave_replica(std::int32_t f) {
    const auto number = frames_[index(f)].replica;
    auto& replica = replicas_[index(number)];
    --replica.inside;
    if (in_.service_is_blocking[index(replica.service)]) {
        --replica.held;
        dispatch(number);
    }
    release_if_empty(number);
}

void Play::answer(std::int32_t f) {
    const auto frame = frames_[index(f)];
    if (frame.parent == client) {
        auto& request = requests_[index(frame.request)];
        request.is_answered = true;
        if (frame.is_failed) record(frame.request, Status::failed);
        else if (!in_.class_until_all[index(request.request_class)]) record(frame.request, Status::answered);
        return free_frame(f);
    }
    if (frame.parent == given_up) return free_frame(f);
    leave_caller(f);
    free_frame(f);
    child_answered(frame.parent, frame.call, frame.attempt, frame.is_failed);
}

void Play::leave_caller(std::int32_t f) {
    auto& frame = frames_[index(f)];
    auto& parent = frames_[index(frame.parent)];
    if (frame.is_sent && --parent.outstanding == 0) parent.awaited += static_cast<double>(now_ - parent.awaited_since);
    if (!frame.has_connection) return;
    frame.has_connection = false;
    auto& pool = replicas_[index(parent.replica)].pools[index(about(f).pool)];
    ++pool.free;
    while (pool.free > 0 && !pool.waiting.empty()) {
        const auto ticket = pool.waiting.pop();
        if (frames_[index(ticket.frame)].generation != ticket.generation) continue;
        --pool.free;
        frames_[index(ticket.frame)].has_connection = true;
        send(ticket.frame);
    }
}

void Play::child_answered(std::int32_t parent, std::int32_t call, std::int32_t attempt, bool is_failed) {
    if (is_failed && attempt < tables_.calls[index(call)].retries) {
        const auto again = new_frame(call, frames_[index(parent)].request, parent);
        frames_[index(again)].attempt = attempt + 1;
        return delay(first_pause << std::min(attempt, 20), Kind::retry, again);
    }
    auto& frame = frames_[index(parent)];
    frame.is_failed = frame.is_failed || is_failed;
    if (--frame.pending == 0) stage_done(parent);
}

void Play::give_up(std::int32_t f) {
    const auto frame = frames_[index(f)];
    if (frame.parent < 0) return;
    leave_caller(f);
    if (frame.is_sent) frames_[index(f)].parent = given_up;
    else free_frame(f);  // it waits for a connection, where its ticket is now void
    child_answered(frame.parent, frame.call, frame.attempt, true);
}

void Play::record(std::int32_t r, Status status) {
    auto& request = requests_[index(r)];
    if (request.is_recorded) return;
    request.is_recorded = true;
    --pending_;
    const auto latency = now_ - request.arrived;
    auto& window = windows_[index(request.request_class)];
    const auto bound = in_.class_bound[index(request.request_class)];
    if (status == Status::answered) window.latency.push_back(latency);
    else ++window.failed;
    if (bound >= 0 && (status != Status::answered || latency > bound)) ++window.violated;
    if (in_.keeps_requests) {
        kept_.latency[index(request.number)] = latency;
        kept_.status[index(request.number)] = status;
    }
}

// --- CPUs, hosts and replicas --------------------------------------------------------------------

void Play::cpu_event(std::int32_t number) {
    auto& account = services_[index(replicas_[index(number)].service)].cpu;
    replicas_[index(number)].cpu.advance(now_, account);
    touched_ = number;
    for (;;) {
        const auto f = replicas_[index(number)].cpu.take_done();
        if (f < 0) break;
        if (!in_.service_is_blocking[index(replicas_[index(number)].service)]) dispatch(number);
        stretch_done(f);
    }
    replicas_[index(number)].cpu.enforce_quota(account);
    touched_ = none;
    touch(number);
}

void Play::touch(std::int32_t number) {
    if (number == touched_) return;
    auto& replica = replicas_[index(number)];
    if (replica.host >= 0) {
        auto& host = hosts_[index(replica.host)];
        const auto wanted = replica.cpu.wanted();
        if (wanted != replica.wanted) {
            host.wanted += wanted - replica.wanted;
            replica.wanted = wanted;
            const double noise = host.is_noisy ? host.noise_cores : 0.0;
            const bool is_contended = host.wanted + noise > host.cores;
            if (is_contended || host.is_contended) share_host(host);
            else replica.cpu.set_rate(1.0);
            host.is_contended = is_contended;
        }
    }
    cpu_events_.set(number, replica.cpu.next_event());
}

/// Max-min by weight: nobody gets more cores than its threads want, the rest is shared.
void Play::share_host(Host& host) {
    struct Claim {
        double wanted, weight;
        std::int32_t replica;
    };
    std::vector<Claim> claims;
    double weights = 0.0, cores = host.cores;
    const auto claim = [&](double wanted, double weight, std::int32_t replica) {
        claims.push_back({wanted, weight, replica});
        weights += weight;
    };
    for (const auto r : host.replicas)
        if (replicas_[index(r)].wanted > 0)
            claim(replicas_[index(r)].wanted, services_[index(replicas_[index(r)].service)].request, r);
    if (host.is_noisy) claim(host.noise_cores, host.noise_cores, none);
    std::sort(claims.begin(), claims.end(), [](const Claim& a, const Claim& b) {
        const double left = a.wanted * b.weight, right = b.wanted * a.weight;
        return left != right ? left < right : a.replica < b.replica;
    });
    for (const auto& [wanted, weight, r] : claims) {
        const double given = std::min(wanted, cores * weight / weights);
        cores -= given;
        weights -= weight;
        if (r == none) continue;
        auto& replica = replicas_[index(r)];
        replica.cpu.advance(now_, services_[index(replica.service)].cpu);
        replica.cpu.set_rate(given / wanted);
        cpu_events_.set(r, replica.cpu.next_event());
    }
}

void Play::switch_noise(std::int32_t number) {
    auto& host = hosts_[index(number)];
    if (now_ > 0) host.is_noisy = !host.is_noisy;
    share_host(host);
    host.is_contended = host.wanted + (host.is_noisy ? host.noise_cores : 0.0) > host.cores;
    const double length = noise_.exponential(host.is_noisy ? host.noise_on : host.noise_off);
    delay(1 + static_cast<std::int64_t>(length), Kind::noise, number);
}

void Play::add_replica(std::int32_t s, std::int64_t startup) {
    auto& service = services_[index(s)];
    const auto number = static_cast<std::int32_t>(replicas_.size());
    const auto host = in_.service_host[index(s)];
    const auto phase = static_cast<std::int64_t>(phase_.below(static_cast<std::uint64_t>(in_.period)));
    replicas_.push_back(
        {s, host, Phase::starting, Processor(in_.period, in_.tick, phase), Waiting<std::int32_t>(tables_.ranks), {}});
    auto& replica = replicas_.back();
    replica.cpu.advance(now_, service.cpu);
    replica.cpu.set_limit(service.limit, now_);
    for (const auto& [callee, connections] : tables_.pools[index(s)])
        replica.pools.push_back({connections, Waiting<Ticket>(tables_.ranks)});
    cpu_events_.add_owner();
    service.replicas.push_back(number);
    if (host >= 0) hosts_[index(host)].replicas.push_back(number);
    if (startup > 0) delay(startup, Kind::replica_ready, number);
    else become_ready(number);
}

void Play::become_ready(std::int32_t number) {
    auto& replica = replicas_[index(number)];
    if (replica.phase != Phase::starting) return;
    replica.phase = Phase::ready;
    auto& service = services_[index(replica.service)];
    service.ready.push_back(number);
    while (!service.homeless.empty()) {
        const auto f = service.homeless.pop();
        count_waiting(service, -1);
        const auto since = frames_[index(f)].arrived;
        give_to_replica(f);
        frames_[index(f)].arrived = since;
    }
}

void Play::remove_replica(std::int32_t number) {
    auto& replica = replicas_[index(number)];
    auto& ready = services_[index(replica.service)].ready;
    ready.erase(std::remove(ready.begin(), ready.end(), number), ready.end());
    replica.phase = Phase::draining;
    release_if_empty(number);
}

void Play::release_if_empty(std::int32_t number) {
    auto& replica = replicas_[index(number)];
    if (replica.phase != Phase::draining || replica.inside > 0) return;
    replica.phase = Phase::gone;
    auto& service = services_[index(replica.service)];
    count_waiting(service, 0);
    const auto drop = [number](std::vector<std::int32_t>& from) {
        from.erase(std::remove(from.begin(), from.end(), number), from.end());
    };
    drop(service.replicas);
    if (replica.host >= 0) drop(hosts_[index(replica.host)].replicas);
}

/// Brings what is integrated over time up to now, then changes how many wait.
void Play::count_waiting(Service& service, std::int64_t change) {
    const auto passed = static_cast<double>(now_ - service.changed);
    service.queue_time += static_cast<double>(service.waiting) * passed;
    service.replica_time += static_cast<double>(service.replicas.size()) * passed;
    service.changed = now_;
    service.waiting += change;
}

// --- from outside --------------------------------------------------------------------------------

void Play::delay(std::int64_t ns, Kind kind, std::int32_t number, std::uint32_t generation) {
    auto slot = static_cast<std::int64_t>(slots_.size());
    if (free_slots_.empty()) {
        slots_.push_back({kind, number, generation});
        if (slot >> slot_bits != 0) throw std::length_error("too many calls wait at once");
    } else {
        slot = free_slots_.back();
        free_slots_.pop_back();
        slots_[index(slot)] = {kind, number, generation};
    }
    delays_.push(ns < never - now_ ? now_ + ns : never, delays_set_++ << slot_bits | slot);
}

void Play::handle(Delay delay) {
    const auto [kind, number, generation] = delay;
    switch (kind) {
        case Kind::arrive: return arrive(number);
        case Kind::answer: return answer(number);
        case Kind::waited: return proceed(number);
        case Kind::retry: return issue(number);
        case Kind::time_out:
            if (frames_[index(number)].generation == generation) give_up(number);
            return;
        case Kind::client_time_out: {
            auto& request = requests_[index(number)];
            if (request.generation != generation || request.is_answered) return;
            record(number, Status::timed_out);
            return;
        }
        case Kind::replica_ready: return become_ready(number);
        case Kind::noise: return switch_noise(number);
    }
}

void Play::advance(std::int64_t until) {
    for (;;) {
        while (!instant_.empty()) {
            if (++events_ > in_.most_events) throw std::length_error("too many events");
            stretch_done(instant_.pop());
        }
        const auto cpu = cpu_events_.next_time();
        const auto delayed = delays_.empty() ? never : delays_.top().time;
        const auto arrival = next_arrival_ < in_.arrival_time.size() ? in_.arrival_time[next_arrival_] : never;
        const auto next = std::min({cpu, delayed, arrival});
        if (next > until || next == never) break;
        now_ = next;
        if (++events_ > in_.most_events) throw std::length_error("too many events");
        if (cpu == next) cpu_event(cpu_events_.next_owner());
        else if (delayed == next) {
            const auto slot = delays_.pop().key & ((std::int64_t{1} << slot_bits) - 1);
            free_slots_.push_back(static_cast<std::int32_t>(slot));
            handle(slots_[index(slot)]);
        } else arrive_request(static_cast<std::int64_t>(next_arrival_++));
    }
    now_ = std::max(now_, until);
}

Observation Play::observe() {
    Observation seen;
    const auto services = services_.size(), classes = windows_.size();
    for (auto& replica : replicas_)
        if (replica.phase != Phase::gone) replica.cpu.advance(now_, services_[index(replica.service)].cpu);
    const auto slices = index((now_ - observed_ + in_.period - 1) / in_.period);
    seen.used_slices.assign(slices * services, 0.0);
    seen.throttled_slices.assign(slices * services, 0.0);
    seen.service_latency.assign(percentiles.size() * services, nothing);
    seen.class_latency.assign(percentiles.size() * classes, nothing);
    std::vector<Histogram> latency(services);
    for (auto& pair : pairs_) {
        if (pair.window.count() == 0) continue;
        latency[index(pair.service)].add(pair.window);
        pair.window.clear();
    }
    for (std::size_t s = 0; s < services; ++s) {
        auto& service = services_[s];
        count_waiting(service, 0);
        seen.used.push_back(service.cpu.used);
        seen.allocated.push_back(service.replica_time);
        seen.periods.push_back(service.cpu.periods);
        seen.throttled.push_back(service.cpu.throttled);
        seen.queue.push_back(service.queue_time);
        seen.pool_wait.push_back(service.pool_wait);
        seen.calls.push_back(service.calls);
        seen.replicas.push_back(static_cast<std::int64_t>(service.ready.size()));
        for (std::size_t i = 0; i < std::min(slices, service.cpu.used_slices.size()); ++i)
            seen.used_slices[i * services + s] = service.cpu.used_slices[i];
        for (std::size_t i = 0; i < std::min(slices, service.cpu.throttled_slices.size()); ++i)
            seen.throttled_slices[i * services + s] = service.cpu.throttled_slices[i];
        if (latency[s].count() > 0)
            for (std::size_t p = 0; p < percentiles.size(); ++p)
                seen.service_latency[p * services + s] = latency[s].quantile(percentiles[p]);
        service.cpu.clear(now_);
        service.queue_time = service.replica_time = service.pool_wait = 0.0;
        service.calls = 0;
    }
    for (std::size_t c = 0; c < classes; ++c) {
        auto& window = windows_[c];
        seen.arrived.push_back(window.arrived);
        seen.answered.push_back(static_cast<std::int64_t>(window.latency.size()));
        seen.failed.push_back(window.failed);
        seen.violated.push_back(window.violated);
        std::sort(window.latency.begin(), window.latency.end());
        const auto count = static_cast<double>(window.latency.size());
        for (std::size_t p = 0; p < percentiles.size() && count > 0; ++p)
            seen.class_latency[p * classes + c] = static_cast<double>(
                window.latency[index(static_cast<std::int64_t>(std::ceil(percentiles[p] * count))) - 1]);
        window = ClassWindow{};
    }
    observed_ = now_;
    return seen;
}

void Play::set_limit(std::int32_t s, double cores) {
    auto& service = services_[index(s)];
    service.limit = cores;
    for (const auto r : service.replicas) {
        auto& replica = replicas_[index(r)];
        replica.cpu.advance(now_, service.cpu);
        replica.cpu.set_limit(cores, now_);
        touch(r);
    }
}

void Play::set_request(std::int32_t s, double weight) {
    services_[index(s)].request = weight;
    const auto host = in_.service_host[index(s)];
    if (host >= 0) share_host(hosts_[index(host)]);
}

void Play::set_replicas(std::int32_t s, std::int32_t count) {
    auto& service = services_[index(s)];
    count_waiting(service, 0);
    std::vector<std::int32_t> staying;
    for (const auto r : service.replicas)
        if (replicas_[index(r)].phase != Phase::draining) staying.push_back(r);
    for (auto have = static_cast<std::int32_t>(staying.size()); have > count; --have) {
        remove_replica(staying.back());  // those that still start are the youngest
        staying.pop_back();
    }
    for (auto have = static_cast<std::int32_t>(staying.size()); have < count; ++have)
        add_replica(s, in_.service_startup[index(s)]);
}

Spent Play::spent() const {
    Spent out;
    for (const auto& pair : pairs_) {
        out.request_class.push_back(pair.request_class);
        out.service.push_back(pair.service);
        out.calls.push_back(pair.calls);
        out.exclusive.push_back(pair.exclusive);
        out.cpu.push_back(pair.cpu);
        out.queued.push_back(pair.queued);
        for (const auto count : pair.total.counts()) out.counts.push_back(static_cast<std::int32_t>(count));
    }
    return out;
}

}  // namespace

class Mesh::Run : public Play {
public:
    using Play::Play;
};

Mesh::Mesh(const Input& input) : run_(std::make_unique<Run>(input)) {}
Mesh::~Mesh() = default;

void Mesh::advance(std::int64_t until) { run_->advance(until); }
Observation Mesh::observe() { return run_->observe(); }
void Mesh::set_limit(std::int32_t service, double cores) { run_->set_limit(service, cores); }
void Mesh::set_request(std::int32_t service, double weight) { run_->set_request(service, weight); }
void Mesh::set_replicas(std::int32_t service, std::int32_t count) { run_->set_replicas(service, count); }
Spent Mesh::spent() const { return run_->spent(); }
const Requests& Mesh::requests() const { return run_->kept_; }
std::int64_t Mesh::events() const { return run_->events_; }
std::int64_t Mesh::pending() const { return run_->pending_; }

}  // namespace gnomon::mesh
