// An open-loop client: every request is sent when it is due, whatever became of those before.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "cell/config.hpp"
#include "cell/loop.hpp"
#include "cell/pool.hpp"
#include "cell/stats.hpp"
#include "engine/rng.hpp"

namespace gnomon::cell {

/// The schedule is a file of int64 due times (ns from the start, ascending), then as many uint16
/// classes. The results are a mapped file: int64 latency from the due time, int64 lateness of the
/// client itself, uint8 outcome; a column each.
class Client final : public Source {
public:
    enum Outcome : std::uint8_t { pending, ok, error, timeout };

    Client(Loop& loop, const ClientConfig& config);
    ~Client() override;

    /// Lines on the standard input are commands, each answered by a line:
    ///     targets 0 127.0.0.1:4711 127.0.0.1:4712    the replicas of an entry service from now on
    ///     start 123456789                            the monotonic time that due times count from
    /// The end of the input stops the client.
    void on_event(std::uint32_t events) override;

private:
    struct Sent : Call {
        std::size_t index = 0;
    };

    void send_due();
    void on_ended(Sent& sent, bool is_ok);
    void obey(std::string_view line);
    void stop_if_done();
    [[nodiscard]] std::int64_t due_ns(std::size_t i) const { return start_ns_ + due_[i]; }

    Loop& loop_;
    const ClientConfig& config_;
    Stats stats_;
    Rng rng_;
    std::vector<std::unique_ptr<Pool>> pools_;
    std::vector<std::int64_t> due_;
    std::vector<std::uint16_t> class_;
    std::size_t next_ = 0, results_size_ = 0;
    std::int64_t start_ns_ = 0;
    void* results_ = nullptr;
    std::int64_t *latency_ns_ = nullptr, *lateness_ns_ = nullptr;
    std::uint8_t* outcome_ = nullptr;
    std::unordered_map<Sent*, std::unique_ptr<Sent>> sent_;
    std::string input_;
};

}  // namespace gnomon::cell
