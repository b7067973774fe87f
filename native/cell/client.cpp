#include "cell/client.hpp"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstring>
#include <stdexcept>

#include "cell/http.hpp"
#include "clock.hpp"

namespace gnomon::cell {

Client::Client(Loop& loop, const ClientConfig& config) : loop_(loop), config_(config), stats_("", 0), rng_(config.tag) {
    for (const auto& callee : config.callees)
        pools_.push_back(std::make_unique<Pool>(
            loop, stats_, callee,
            Pool::Listener{[](Call&) {},
                           [this](Call& call, bool is_ok) { on_ended(static_cast<Sent&>(call), is_ok); }}));
    const std::string schedule = read_file(config.schedule_path);
    const std::size_t count = schedule.size() / 10;
    if (schedule.size() != count * 10 || count == 0) throw std::invalid_argument("has a schedule cut short");
    due_.resize(count);
    class_.resize(count);
    std::memcpy(due_.data(), schedule.data(), count * 8);
    std::memcpy(class_.data(), schedule.data() + count * 8, count * 2);
    for (const auto one : class_)
        if (one >= config.calls.size()) throw std::invalid_argument("has a schedule with an unknown class");

    results_size_ = count * 17;
    const int fd = open(config.results_path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (fd < 0 || ftruncate(fd, static_cast<off_t>(results_size_)) < 0)
        throw std::runtime_error("cannot write " + config.results_path);
    results_ = mmap(nullptr, results_size_, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (results_ == MAP_FAILED) throw std::runtime_error("cannot map " + config.results_path);
    latency_ns_ = static_cast<std::int64_t*>(results_);
    lateness_ns_ = latency_ns_ + count;
    outcome_ = reinterpret_cast<std::uint8_t*>(lateness_ns_ + count);

    loop_.watch(STDIN_FILENO, EPOLLIN, this, true);
}

Client::~Client() { munmap(results_, results_size_); }

void Client::send_due() {
    for (; next_ < due_.size() && due_ns(next_) <= now_ns(); ++next_) {
        auto made = std::make_unique<Sent>();
        Sent& sent = *made;
        sent.index = next_;
        sent.spec = &config_.calls[class_[next_]];
        sent.priority = config_.priorities[class_[next_]];
        sent.trace = {config_.tag, next_ + 1, 0, rng_.uniform() < config_.sample_share};
        sent_.emplace(&sent, std::move(made));
        pools_[sent.spec->callee]->call(sent);
        lateness_ns_[next_] = sent.began_ns - due_ns(next_);
    }
    if (next_ < due_.size()) {
        loop_.at(due_ns(next_), [this] { send_due(); });
        return;
    }
    loop_.at(due_ns(due_.size() - 1) + config_.grace_ns, [this] {
        for (const auto& [sent, owner] : sent_) {
            latency_ns_[sent->index] = now_ns() - due_ns(sent->index);
            outcome_[sent->index] = timeout;
        }
        loop_.stop();
    });
    stop_if_done();
}

void Client::on_ended(Sent& sent, bool is_ok) {
    const std::int64_t now = now_ns(), timeout_ns = sent.spec->timeout_ns;
    latency_ns_[sent.index] = now - due_ns(sent.index);
    const bool is_late = timeout_ns > 0 && now - sent.began_ns >= timeout_ns;
    outcome_[sent.index] = is_ok ? ok : is_late ? timeout : error;
    loop_.post([this, &sent] {
        sent_.erase(&sent);
        stop_if_done();
    });
}

void Client::stop_if_done() {
    if (next_ == due_.size() && sent_.empty()) loop_.stop();
}

void Client::on_event(std::uint32_t) {
    std::array<char, 4096> bytes;
    const ssize_t count = read(STDIN_FILENO, bytes.data(), bytes.size());
    if (count <= 0) return loop_.stop();
    input_.append(bytes.data(), static_cast<std::size_t>(count));
    for (auto end = input_.find('\n'); end != std::string::npos; end = input_.find('\n')) {
        obey(std::string_view(input_).substr(0, end));
        input_.erase(0, end + 1);
    }
}

void Client::obey(std::string_view line) {
    const auto next_word = [&line] {
        const auto space = line.find(' ');
        const auto word = line.substr(0, space);
        line.remove_prefix(space == std::string_view::npos ? line.size() : space + 1);
        return word;
    };
    const auto verb = next_word();
    std::size_t entry = 0;
    if (verb == "start" && start_ns_ == 0 && http::parse_number(next_word(), start_ns_)) {
        loop_.at(due_ns(0), [this] { send_due(); });
    } else if (verb == "targets" && http::parse_number(next_word(), entry) && entry < pools_.size()) {
        std::vector<std::uint16_t> ports;
        while (!line.empty()) ports.push_back(parse_address(next_word()));
        pools_[entry]->set_peers(std::move(ports));
    } else {
        throw std::invalid_argument("got an unknown command");
    }
    std::puts("ok");
    std::fflush(stdout);
}

}  // namespace gnomon::cell
