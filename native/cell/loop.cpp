#include "cell/loop.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <stdexcept>

#include "cell/http.hpp"
#include "clock.hpp"

namespace gnomon::cell {

Loop::Loop()
    : epoll_(epoll_create1(EPOLL_CLOEXEC)), timer_(timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC)) {
    if (epoll_ < 0 || timer_ < 0) throw std::runtime_error("no epoll or timer descriptor is left");
    watch(timer_, EPOLLIN, nullptr, true);
}

Loop::~Loop() {
    ::close(epoll_);
    ::close(timer_);
}

void Loop::watch(int fd, std::uint32_t events, Source* source, bool is_new) {
    epoll_event event{};
    event.events = events;
    event.data.ptr = source;
    if (epoll_ctl(epoll_, is_new ? EPOLL_CTL_ADD : EPOLL_CTL_MOD, fd, &event) < 0)
        throw std::runtime_error(std::string("epoll_ctl: ") + std::strerror(errno));
}

TimerKey Loop::at(std::int64_t due_ns, std::function<void()> act) {
    const TimerKey key{due_ns, ++timers_made_};
    timers_.emplace(key, std::move(act));
    return key;
}

void Loop::cancel(TimerKey& key) {
    timers_.erase(key);
    key = no_timer;
}

void Loop::arm() {
    const std::int64_t next = timers_.empty() ? no_timer.first : timers_.begin()->first.first;
    if (next == armed_ns_) return;
    armed_ns_ = next;
    itimerspec when{};
    if (next != no_timer.first) {
        // A time of 0 would disarm the timer.
        const std::int64_t due = next > 0 ? next : 1;
        when.it_value = {static_cast<time_t>(due / 1'000'000'000), static_cast<long>(due % 1'000'000'000)};
    }
    timerfd_settime(timer_, TFD_TIMER_ABSTIME, &when, nullptr);
}

void Loop::run_due() {
    const std::int64_t now = now_ns();
    while (!timers_.empty() && timers_.begin()->first.first <= now) {
        auto node = timers_.extract(timers_.begin());
        node.mapped()();
    }
}

void Loop::run() {
    std::array<epoll_event, 256> events{};
    while (!is_stopped_) {
        arm();
        const int count = epoll_wait(epoll_, events.data(), static_cast<int>(events.size()), -1);
        if (count < 0 && errno != EINTR) throw std::runtime_error("epoll_wait failed");
        for (int i = 0; i < count; ++i) {
            const auto& event = events[static_cast<std::size_t>(i)];
            if (event.data.ptr) {
                static_cast<Source*>(event.data.ptr)->on_event(event.events);
            } else {
                std::uint64_t expirations = 0;
                if (read(timer_, &expirations, sizeof expirations) > 0) armed_ns_ = no_timer.first;
            }
        }
        run_due();
        while (!posted_.empty()) {
            const auto acts = std::exchange(posted_, {});
            for (const auto& act : acts) act();
        }
        graveyard_.clear();
    }
}

Conn::Conn(Loop& loop, int fd, bool is_connecting)
    : loop_(loop), fd_(fd), is_connecting_(is_connecting), wants_out_(is_connecting) {
    const int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    loop_.watch(fd_, EPOLLIN | (is_connecting ? static_cast<std::uint32_t>(EPOLLOUT) : 0U), this, true);
}

Conn::~Conn() { close(); }

void Conn::close() {
    if (!is_closed_) ::close(fd_);
    is_closed_ = true;
}

void Conn::lose() {
    close();
    on_close();
}

void Conn::write(std::string_view bytes) {
    if (is_closed_) return;
    out_.append(bytes);
    if (!is_connecting_) flush();
}

void Conn::flush() {
    while (!out_.empty()) {
        const ssize_t sent = send(fd_, out_.data(), out_.size(), MSG_NOSIGNAL);
        if (sent < 0) {
            // A broken pipe shows as an event as well: it is handled there, not under our caller.
            if (errno != EAGAIN && errno != EINTR) out_.clear();
            if (errno != EINTR) break;
        } else {
            out_.erase(0, static_cast<std::size_t>(sent));
        }
    }
    if (wants_out_ != !out_.empty()) {
        wants_out_ = !out_.empty();
        loop_.watch(fd_, EPOLLIN | (wants_out_ ? static_cast<std::uint32_t>(EPOLLOUT) : 0U), this, false);
    }
}

bool Conn::read_all() {
    std::array<char, 16384> bytes;
    for (;;) {
        const ssize_t count = recv(fd_, bytes.data(), bytes.size(), 0);
        if (count > 0) {
            in.append(bytes.data(), static_cast<std::size_t>(count));
            // Level-triggered: what is left shows again, and nobody fills our memory in one go.
            if (static_cast<std::size_t>(count) < bytes.size() || in.size() > 2 * most_body_bytes) return true;
        } else if (count == 0) {
            return false;
        } else if (errno != EINTR) {
            return errno == EAGAIN;
        }
    }
}

void Conn::on_event(std::uint32_t events) {
    if (is_closed_) return;
    if (is_connecting_ && (events & (EPOLLOUT | EPOLLERR | EPOLLHUP))) {
        int error = 0;
        socklen_t size = sizeof error;
        getsockopt(fd_, SOL_SOCKET, SO_ERROR, &error, &size);
        if (error != 0) return lose();
        is_connecting_ = false;
    }
    if ((events & EPOLLOUT) && !is_connecting_) flush();
    if (!(events & (EPOLLIN | EPOLLERR | EPOLLHUP))) return;
    const std::size_t before = in.size();
    const bool is_open = read_all();
    if (in.size() > before) on_input();
    if (!is_open && !is_closed_) lose();
}

namespace {

sockaddr_in loopback(std::uint16_t port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
}

}  // namespace

int connect_loopback(std::uint16_t port) {
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) return -1;
    const sockaddr_in address = loopback(port);
    if (connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) < 0 && errno != EINPROGRESS) {
        ::close(fd);
        return -1;
    }
    return fd;
}

int listen_loopback(std::uint16_t& port) {
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    const int on = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    sockaddr_in address = loopback(port);
    socklen_t size = sizeof address;
    if (fd < 0 || bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) < 0 || listen(fd, 4096) < 0 ||
        getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) < 0)
        throw std::runtime_error("cannot listen on port " + std::to_string(port) + ": " + std::strerror(errno));
    port = ntohs(address.sin_port);
    return fd;
}

std::uint16_t parse_address(std::string_view address) {
    const auto colon = address.rfind(':');
    const auto host = colon == std::string_view::npos ? "127.0.0.1" : address.substr(0, colon);
    const auto digits = colon == std::string_view::npos ? address : address.substr(colon + 1);
    std::uint16_t port = 0;
    if (host != "127.0.0.1" || !http::parse_number(digits, port) || port == 0)
        throw std::invalid_argument("'" + std::string(address) + "' is no 127.0.0.1:port");
    return port;
}

}  // namespace gnomon::cell
