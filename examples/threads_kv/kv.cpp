// A key-value server on preemptive threads, and a client that measures it: does a GET of a few microseconds wait for a
// SCAN that takes a hundred times as long?
//
// One worker serves tasks on one core. On another the dispatcher receives requests over UDP and submits tasks, and the
// client, a process of its own, sends at times drawn beforehand. Latency counts from the time at which a request was
// due, whenever it was sent, until the kernel had its reply for the client.
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <numeric>

#include "options.hpp"
#include "server.hpp"

namespace {

constexpr int realtime_priority = 10;

void require(bool holds, const char* what) {
    if (!holds) fail(1, std::string(what) + ": " + std::strerror(errno));
}

/// Sockets of server and client, connected, so that packets of others are not let in; and memory that both see.
class Wire {
public:
    explicit Wire(std::size_t requests) : bytes_((requests + 1) * sizeof(Heard)) {
        void* shared = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        require(shared != MAP_FAILED, "memory");
        began = new (shared) std::atomic<std::int64_t>(0);
        heard = new (static_cast<Heard*>(shared) + 1) Heard[requests];
        sockaddr_in server_address = open(server), client_address = open(client);
        for (const auto& [one, peer] : {std::pair{client, server_address}, {server, client_address}})
            require(connect(one, reinterpret_cast<const sockaddr*>(&peer), sizeof peer) == 0, "connect");
        const timeval moment{0, 20'000};
        setsockopt(server, SOL_SOCKET, SO_RCVTIMEO, &moment, sizeof moment);
    }
    ~Wire() {
        close(server);
        close(client);
        munmap(began, bytes_);
    }
    Wire(const Wire&) = delete;
    Wire& operator=(const Wire&) = delete;

    int server = -1, client = -1;
    std::atomic<std::int64_t>* began;  // 0: not yet
    Heard* heard;                      // by request

private:
    static sockaddr_in open(int& made) {
        made = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        require(made >= 0, "socket");
        sockaddr_in address{};
        address.sin_family = AF_INET;
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        socklen_t size = sizeof address;
        require(bind(made, reinterpret_cast<sockaddr*>(&address), size) == 0, "bind");
        require(getsockname(made, reinterpret_cast<sockaddr*>(&address), &size) == 0, "getsockname");
        const int bytes = 4 << 20;  // or as much of it as there is
        setsockopt(made, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes);
        return address;
    }

    std::size_t bytes_;
};

struct Metric {
    const char* name;
    bool is_total;  // over rounds; else their median counts
};
constexpr Metric metrics[] = {{"get_p50_us", false},  {"get_p99_us", false},       {"get_p999_us", false},
                              {"scan_p50_us", false}, {"scan_p99_us", false},      {"scan_p999_us", false},
                              {"utilisation", false}, {"late_send_p99_us", false}, {"compressed_mb_per_s", false},
                              {"preemptions", true},  {"answered", true},          {"lost", true}};
constexpr std::size_t get_p99 = 1;
using Figures = std::array<double, std::size(metrics)>;

double quantile(std::vector<double> values, double share) {
    if (values.empty()) return NAN;
    const auto place =
        values.begin() + static_cast<std::ptrdiff_t>(share * static_cast<double>(values.size() - 1) + 0.5);
    std::nth_element(values.begin(), place, values.end());
    return *place;
}

struct Round {
    const Policy& policy;
    const std::vector<Planned>& planned;
    std::size_t window = SIZE_MAX;  // of requests under way
    bool compresses = false;
};

Figures sum_up(const Round& round, const Heard* heard, const gnt_pool_stats& stats, double lasted_ns,
               double compressed) {
    std::vector<double> latency_us[2], late_us;
    std::int64_t last_ns = 1;  // reply
    for (std::size_t i = 0; i < round.planned.size(); ++i) {
        const auto& [due_ns, request] = round.planned[i];
        late_us.push_back(static_cast<double>(heard[i].late_ns) / 1e3);
        if (heard[i].latency_ns < 0) continue;
        latency_us[request.kind].push_back(static_cast<double>(heard[i].latency_ns) / 1e3);
        last_ns = std::max(last_ns, due_ns + heard[i].latency_ns);
    }
    const auto of = [&](Kind kind, double share) { return quantile(latency_us[kind], share); };
    const auto answered = static_cast<double>(latency_us[get].size() + latency_us[scan].size());
    const double served_ns = round.compresses ? lasted_ns : static_cast<double>(last_ns);
    const double compressed_mb_per_s = round.compresses ? compressed * 1e3 / lasted_ns : NAN;
    return {of(get, 0.5),
            of(get, 0.99),
            of(get, 0.999),
            of(scan, 0.5),
            of(scan, 0.99),
            of(scan, 0.999),
            static_cast<double>(stats.busy_ns) / served_ns,
            quantile(late_us, 0.99),
            compressed_mb_per_s,
            static_cast<double>(stats.preemptions),
            answered,
            static_cast<double>(late_us.size()) - answered};
}

class Bench {
public:
    explicit Bench(const Options& options) : options_(options) {
        cpu_set_t allowed;
        require(sched_getaffinity(0, sizeof allowed, &allowed) == 0, "cores");
        for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
            if (CPU_ISSET(cpu, &allowed)) cpus_.push_back(cpu);
        }
        const bool spins = options.source == "safepoint" || options.source == "signal" || options.source == "uintr";
        if (spins && options.realtime && cpus_.size() < 3)
            fail(2, options.source + " has a thread that spins: with --realtime it takes a third core");
        CPU_ZERO(&allowed);
        CPU_SET(cpus_[0], &allowed);  // the dispatcher and the client
        sched_setaffinity(0, sizeof allowed, &allowed);
        const sched_param priority{realtime_priority};
        if (options.realtime) is_realtime = sched_setscheduler(0, SCHED_FIFO, &priority) == 0;
    }

    /// A server and a client for the planned requests; the server's service times by kind go to `service_us`.
    Figures run(const Round& round, std::vector<double>* service_us = nullptr) {
        const Wire wire(round.planned.size());
        const pid_t parent = getpid(), client = fork();  // before there are threads
        require(client >= 0, "fork");
        if (client == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            while (getppid() == parent && *wire.began == 0) usleep(500);
            if (*wire.began != 0) run_client(wire.client, round.planned, *wire.began, round.window, wire.heard);
            _exit(0);
        }
        Server server(store_, wire.server, round.planned.size());
        gnt_pool* pool = start(round.policy);
        const std::int64_t opened = gnt_now();
        if (round.compresses) server.compress(pool);
        *wire.began = opened + 2'000'000;
        server.dispatch(pool, client);
        gnt_pool_stats stats;
        gnt_pool_read_stats(pool, &stats);
        const auto lasted_ns = static_cast<double>(gnt_now() - opened);
        const double compressed = server.compressed_bytes;
        gnt_pool_stop(pool, 1);
        if (service_us != nullptr) std::move(server.service_us, server.service_us + 2, service_us);
        return sum_up(round, wire.heard, stats, lasted_ns, compressed);
    }

    /// Service times of GET and SCAN, in a closed loop; medians, so that a stall does not count.
    std::array<double, 2> measure_service_us() {
        std::array<double, 2> found{};
        for (int pass = 0; pass < 3; ++pass) {
            const auto planned = plan(2'000, 0.05, 0, 1);
            std::vector<double> service_us[2];
            run({policies[0], planned, 4}, service_us);
            found = {quantile(service_us[get], 0.5), quantile(service_us[scan], 0.5)};
            if (!(found[get] > 0 && found[scan] > 0)) fail(1, "the server does not answer");
            if (pass < 2) store_.scanned = std::clamp(store_.scanned * options_.scan_us / found[scan], 1.0, 1e6);
        }
        return found;
    }

    bool is_realtime = false;

private:
    gnt_pool* start(const Policy& policy) {
        gnt_pool_options pool = GNT_POOL_OPTIONS;
        pool.policy = policy.number;
        pool.quantum_ns = static_cast<std::int64_t>(options_.quantum_us * 1e3);
        pool.source = options_.source.c_str();
        pool.cpus = &cpus_.back();
        pool.timer_cpu = cpus_.size() > 2 ? cpus_[1] : cpus_[0];
        pool.realtime = is_realtime ? realtime_priority : 0;
        pool.spin_ns = cpus_.size() > 1 ? 200'000 : 0;
        char error[200] = "";
        gnt_pool* made = gnt_pool_start(&pool, error, sizeof error);
        if (made == nullptr) fail(1, error);
        return made;
    }

    const Options& options_;
    std::vector<int> cpus_;
    Store store_;
};

// --- the answer --------------------------------------------------------------------------------------

Figures sum_up(const std::vector<Figures>& rounds) {
    Figures all{};
    for (std::size_t i = 0; i < all.size(); ++i) {
        std::vector<double> values;
        for (const auto& one : rounds) values.push_back(one[i]);
        all[i] = metrics[i].is_total ? std::accumulate(values.begin(), values.end(), 0.0) : quantile(values, 0.5);
    }
    return all;
}

std::string text(double value) {
    char made[40];
    std::snprintf(made, sizeof made, value >= 1e4 ? "%.0f" : "%.4g", value);
    return made;
}

/// GET p99 without preemption as a multiple of that with it.
double gain(const Options& options, const std::vector<Figures>& answers, std::size_t of) {
    for (std::size_t i = 0; i < answers.size(); ++i) {
        if (options.chosen[i].number == GNT_FCFS && i != of) return answers[i][get_p99] / answers[of][get_p99];
    }
    return NAN;
}

using Pairs = std::vector<std::pair<std::string, double>>;

std::string json(const Pairs& pairs) {
    std::string all;
    for (const auto& [name, value] : pairs) all += ", \"" + name + "\": " + (std::isnan(value) ? "null" : text(value));
    return all;
}

void print_json(const Options& options, const Pairs& setting, const std::vector<Figures>& answers) {
    std::printf("{\"source\": \"%s\"%s, \"policies\": [", options.source.c_str(), json(setting).c_str());
    for (std::size_t i = 0; i < answers.size(); ++i) {
        Pairs pairs;
        for (std::size_t k = 0; k < answers[i].size(); ++k) pairs.emplace_back(metrics[k].name, answers[i][k]);
        pairs.emplace_back("get_p99_gain", gain(options, answers, i));
        std::printf("%s{\"policy\": \"%s\"%s}", i == 0 ? "" : ", ", options.chosen[i].name, json(pairs).c_str());
    }
    std::puts("]}");
}

void print_table(const Options& options, const Pairs& setting, const std::vector<Figures>& answers) {
    std::printf("source %s", options.source.c_str());
    for (const auto& [name, value] : setting) std::printf(", %s %s", name.c_str(), text(value).c_str());
    std::printf("\n%-20s", "");
    for (const auto& policy : options.chosen) std::printf("%15s", policy.name);
    for (std::size_t k = 0; k < std::size(metrics); ++k) {
        if (std::isnan(answers[0][k])) continue;
        std::printf("\n%-20s", metrics[k].name);
        for (const auto& one : answers) std::printf("%15s", text(one[k]).c_str());
    }
    for (std::size_t i = 0; i < answers.size(); ++i) {
        const double times = gain(options, answers, i);
        if (!std::isnan(times))
            std::printf("\nGET p99 of fcfs: %s x that of %s", text(times).c_str(), options.chosen[i].name);
    }
    std::puts("");
}

}  // namespace

int main(int count, char** words) {
    const Options options = parse(count, words);
    Bench bench(options);
    if (!bench.is_realtime)
        std::fprintf(stderr, "kv: ordinary priority%s: expect worse timings\n",
                     options.realtime ? " (another was refused)" : "");
    const auto service_us = bench.measure_service_us();
    const double mean_us = service_us[get] * (1 - options.scan_share) + service_us[scan] * options.scan_share;
    std::vector<std::vector<Figures>> rounds(options.chosen.size());
    for (double round = 0; round < options.rounds; ++round) {
        const auto planned =
            plan(options.requests, options.scan_share, mean_us * 1e3 / options.load, options.seed + round);
        for (std::size_t i = 0; i < rounds.size(); ++i)
            rounds[i].push_back(bench.run({options.chosen[i], planned, SIZE_MAX, options.best_effort}));
    }
    std::vector<Figures> answers;
    for (const auto& one : rounds) answers.push_back(sum_up(one));
    const Pairs setting{{"load", options.load},
                        {"quantum_us", options.quantum_us},
                        {"get_service_us", service_us[get]},
                        {"scan_service_us", service_us[scan]},
                        {"scan_share", options.scan_share},
                        {"requests_per_s", 1e6 * options.load / mean_us},
                        {"rounds", options.rounds},
                        {"requests", options.requests},
                        {"realtime", bench.is_realtime ? 1 : 0}};
    (options.json ? print_json : print_table)(options, setting, answers);
}
