// Requests, and a client that sends them when they are due (open loop).
#pragma once

#include <arpa/inet.h>
#include <poll.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <ctime>
#include <gnomon/threads.hpp>
#include <random>
#include <vector>

enum Kind : std::uint32_t { get, scan, compression };
constexpr std::uint32_t keys = 200'000, refused = UINT32_MAX;

struct Request {
    std::uint32_t id, kind, key;
};

struct Reply {
    std::uint32_t id, found;  // how many values, or `refused`
    std::array<char, 64> value;
};

struct Planned {
    std::int64_t due_ns;  // after the start
    Request request;
};

/// What the client tells its parent of a request.
struct Heard {
    std::int64_t latency_ns = -1;  // below zero: no reply
    std::int64_t late_ns = 0;      // of the send
};

inline std::vector<Planned> plan(double requests, double scan_share, double gap_ns, double seed) {
    std::mt19937_64 random(static_cast<std::uint64_t>(seed));
    std::exponential_distribution<double> gap(1.0);
    std::uniform_real_distribution<double> share(0.0, 1.0);
    std::vector<Planned> planned(static_cast<std::size_t>(requests));
    double due = 0;
    for (std::uint32_t i = 0; i < planned.size(); ++i) {
        due += gap(random) * gap_ns;
        const Kind kind = share(random) < scan_share ? scan : get;
        planned[i] = {static_cast<std::int64_t>(due), {i, kind, static_cast<std::uint32_t>(random() % keys)}};
    }
    return planned;
}

/// Packets of one size, received many at a time.
template <typename Packet>
struct Inbox {
    static constexpr int size = 32;
    Packet packets[size];
    alignas(cmsghdr) char control[size][64];
    iovec places[size];
    mmsghdr messages[size] = {};

    int receive(int socket, int flags) {
        for (int i = 0; i < size; ++i) {
            places[i] = {&packets[i], sizeof(Packet)};
            messages[i].msg_hdr = {nullptr, 0, &places[i], 1, control[i], sizeof control[i], 0};
        }
        return recvmmsg(socket, messages, size, flags, nullptr);
    }
    /// When the kernel got it, by the clock of the calendar.
    [[nodiscard]] std::int64_t stamp_ns(int i) const {
        const cmsghdr* header = CMSG_FIRSTHDR(&messages[i].msg_hdr);
        timespec time{};
        if (header != nullptr) std::memcpy(&time, CMSG_DATA(header), sizeof time);
        return time.tv_sec * 1'000'000'000LL + time.tv_nsec;
    }
};

/// From `began` on, with at most `window` requests under way: a closed loop if that is small. Who has no reply two
/// seconds after the last request was due gets none. The dispatcher shares the core: the client gives way all the time.
inline void run_client(int socket, const std::vector<Planned>& planned, std::int64_t began, std::size_t window,
                       Heard* heard) {
    prctl(PR_SET_TIMERSLACK, 1UL);
    const int on = 1;
    setsockopt(socket, SOL_SOCKET, SO_TIMESTAMPNS, &on, sizeof on);
    timespec calendar{};
    clock_gettime(CLOCK_REALTIME, &calendar);
    const std::int64_t offset = calendar.tv_sec * 1'000'000'000LL + calendar.tv_nsec - gnt_now();
    const std::int64_t deadline = began + planned.back().due_ns + 2'000'000'000;
    Inbox<Reply> inbox;
    for (std::size_t sent = 0, replied = 0; replied < planned.size();) {
        std::int64_t now = gnt_now();
        if (now > deadline) return;
        const auto may_send = [&] { return sent < planned.size() && sent - replied < window; };
        for (; may_send() && began + planned[sent].due_ns <= now; now = gnt_now()) {
            heard[sent].late_ns = now - began - planned[sent].due_ns;
            // What cannot be sent has no reply: it counts as lost.
            [[maybe_unused]] const auto bytes = send(socket, &planned[sent++].request, sizeof(Request), MSG_DONTWAIT);
        }
        const int count = inbox.receive(socket, MSG_DONTWAIT);
        for (int i = 0; i < count; ++i) {
            const std::uint32_t id = inbox.packets[i].id;
            if (id >= sent || heard[id].latency_ns >= 0) continue;
            ++replied;
            if (inbox.packets[i].found == refused) continue;
            heard[id].latency_ns = std::max<std::int64_t>(inbox.stamp_ns(i) - offset - began - planned[id].due_ns, 0);
        }
        if (may_send()) {  // replies can wait: they have a time
            const std::int64_t ready = began + planned[sent].due_ns - 100'000;
            const timespec until{ready / 1'000'000'000, ready % 1'000'000'000};
            if (ready > now) clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, nullptr);
            else sched_yield();
        } else if (replied < planned.size()) {
            pollfd one{socket, POLLIN, 0};
            poll(&one, 1, 10);
        }
    }
}
