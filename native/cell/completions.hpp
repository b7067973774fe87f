// When queued work ended: the reply to a request does not wait for it, but its SLA may.
//
// A file of records of three int64: the two halves of the trace id, which a client chooses so that
// it finds its requests again, and the monotonic time.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <stdexcept>
#include <string>

#include "cell/loop.hpp"
#include "cell/wire.hpp"
#include "clock.hpp"

namespace gnomon::cell {

class Completions {
public:
    /// Nothing is written where the path is empty.
    Completions(Loop& loop, const std::string& path) : loop_(loop) {
        if (path.empty()) return;
        file_ = open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
        if (file_ < 0) throw std::runtime_error(path + " cannot be written");
    }
    ~Completions() {
        if (file_ >= 0) close(file_);
    }
    Completions(const Completions&) = delete;
    Completions& operator=(const Completions&) = delete;

    void add(const Trace& trace, std::int64_t end_ns) {
        if (file_ < 0) return;
        wire::put(records_, trace.high);
        wire::put(records_, trace.low);
        wire::put(records_, end_ns);
        if (timer_ == no_timer) timer_ = loop_.at(now_ns() + flush_every_ns, [this] { flush(); });
    }
    void flush() {
        loop_.cancel(timer_);
        // Short writes only happen on full disks, where the reader drops half a record.
        if (!records_.empty() && ::write(file_, records_.data(), records_.size()) < 0)
            throw std::runtime_error("completions cannot be written");
        records_.clear();
    }

private:
    static constexpr std::int64_t flush_every_ns = 50'000'000;

    Loop& loop_;
    int file_ = -1;
    std::string records_;
    TimerKey timer_ = no_timer;
};

}  // namespace gnomon::cell
