// One thread's event loop: descriptors, timers, and things put off to the end of a turn.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace gnomon::cell {

class Source {
public:
    virtual ~Source() = default;
    virtual void on_event(std::uint32_t events) = 0;
};

using TimerKey = std::pair<std::int64_t, std::uint64_t>;
inline constexpr TimerKey no_timer{std::numeric_limits<std::int64_t>::max(), 0};

class Loop {
public:
    Loop();
    ~Loop();
    Loop(const Loop&) = delete;
    Loop& operator=(const Loop&) = delete;

    void run();
    void stop() { is_stopped_ = true; }

    void watch(int fd, std::uint32_t events, Source* source, bool is_new);
    TimerKey at(std::int64_t due_ns, std::function<void()> act);
    void cancel(TimerKey& key);
    /// Runs `act` at the end of this turn: for what would pull the ground from under its caller.
    void post(std::function<void()> act) { posted_.push_back(std::move(act)); }
    /// Events of this turn may still point at a source: it is destroyed when the turn is over.
    void bury(std::unique_ptr<Source> source) { graveyard_.push_back(std::move(source)); }

private:
    void arm();
    void run_due();

    int epoll_ = -1, timer_ = -1;
    bool is_stopped_ = false;
    std::int64_t armed_ns_ = no_timer.first;
    std::uint64_t timers_made_ = 0;
    std::map<TimerKey, std::function<void()>> timers_;
    std::vector<std::function<void()>> posted_;
    std::vector<std::unique_ptr<Source>> graveyard_;
};

/// A TCP connection with its buffers.
class Conn : public Source {
public:
    Conn(Loop& loop, int fd, bool is_connecting);
    ~Conn() override;

    void write(std::string_view bytes);
    void on_event(std::uint32_t events) final;
    [[nodiscard]] bool is_closed() const { return is_closed_; }

protected:
    /// More bytes are in `in`.
    virtual void on_input() = 0;
    /// The other side closed, or the connection broke. Called once, and not after close().
    virtual void on_close() = 0;
    void close();
    /// Takes in what has come so far; false when the connection is at its end.
    bool read_all();

    std::string in;

private:
    void flush();
    void lose();

    Loop& loop_;
    int fd_;
    bool is_connecting_, is_closed_ = false, wants_out_;
    std::string out_;
};

/// A socket on its way to 127.0.0.1:port; -1 where the machine has none left.
int connect_loopback(std::uint16_t port);
/// Listens on 127.0.0.1; `port` 0 is any free one, and is set. Throws std::runtime_error.
int listen_loopback(std::uint16_t& port);
/// `host:port` or `port`; hosts other than the loopback are refused. Throws std::invalid_argument.
std::uint16_t parse_address(std::string_view address);

}  // namespace gnomon::cell
