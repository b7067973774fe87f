// gnomon-cell: one replica of a service, the client that loads it, and how both are started.
//
//     gnomon-cell serve CONFIG.json           prints its port, then serves until SIGTERM or /drain
//     gnomon-cell client CONFIG.json          sends a schedule of requests, then ends
//     gnomon-cell run PARENT [FILE...] -- ARGV...
//         enters control groups (writes its pid into the files), ties its life to the parent's,
//         and becomes ARGV

#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <exception>
#include <fstream>
#include <stdexcept>
#include <string>
#include <string_view>

#include "cell/client.hpp"
#include "cell/config.hpp"
#include "cell/http.hpp"
#include "cell/server.hpp"

namespace gnomon::cell {
namespace {

/// Every connection is a descriptor; the usual 1,024 are too few for a client.
void raise_descriptor_limit() {
    rlimit limit{};
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = std::max(limit.rlim_cur, std::min<rlim_t>(limit.rlim_max, 65'536));
    setrlimit(RLIMIT_NOFILE, &limit);
}

/// Ends the loop on SIGTERM or SIGINT.
class Ending final : public Source {
public:
    explicit Ending(Loop& loop) : loop_(loop) {
        sigset_t signals;
        sigemptyset(&signals);
        sigaddset(&signals, SIGTERM);
        sigaddset(&signals, SIGINT);
        // Before the first thread is made, so that all of them have the mask.
        sigprocmask(SIG_BLOCK, &signals, nullptr);
        fd_ = signalfd(-1, &signals, SFD_CLOEXEC);
        loop.watch(fd_, EPOLLIN, this, true);
    }
    ~Ending() override { close(fd_); }
    void on_event(std::uint32_t) override { loop_.stop(); }

private:
    Loop& loop_;
    int fd_ = -1;
};

int serve(const std::string& path) {
    const Config config = parse_config(read_file(path));
    Loop loop;
    const Ending ending(loop);
    Server server(loop, config);
    std::printf("%u\n", unsigned{server.port()});
    std::fflush(stdout);
    loop.run();
    server.flush();
    std::_Exit(0);  // workers may be in the middle of long stretches: nobody waits for them
}

int run_client(const std::string& path) {
    const ClientConfig config = parse_client_config(read_file(path));
    Loop loop;
    const Ending ending(loop);
    Client client(loop, config);
    loop.run();
    return 0;
}

int run(int argc, char** argv) {
    pid_t parent = 0;
    if (!http::parse_number(std::string_view(argv[2]), parent)) throw std::invalid_argument("needs the parent's pid");
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) return 1;  // it died before we asked to hear of it
    int i = 3;
    for (; i < argc && std::strcmp(argv[i], "--") != 0; ++i)
        if (!(std::ofstream(argv[i]) << getpid() << std::flush))
            throw std::runtime_error("the group cannot be entered");
    if (i + 1 >= argc) throw std::invalid_argument("needs a command after --");
    execvp(argv[i + 1], argv + i + 1);
    throw std::runtime_error(std::string(argv[i + 1]) + ": " + std::strerror(errno));
}

}  // namespace
}  // namespace gnomon::cell

int main(int argc, char** argv) {
    using namespace gnomon::cell;
    const std::string_view verb = argc > 2 ? argv[1] : "";
    try {
        raise_descriptor_limit();
        if (verb == "serve") return serve(argv[2]);
        if (verb == "client") return run_client(argv[2]);
        if (verb == "run") return run(argc, argv);
        std::fprintf(stderr, "usage: gnomon-cell serve|client CONFIG.json, or run PARENT [FILE...] -- ARGV...\n");
        return 2;
    } catch (const std::exception& error) {
        std::fprintf(stderr, "gnomon-cell: %s: %s\n", argv[2], error.what());
        return 1;
    }
}
