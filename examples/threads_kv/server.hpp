// A key-value store, served by tasks of a pool: this is what uses the library.
#pragma once

#include <sys/socket.h>
#include <sys/wait.h>
#include <zlib.h>

#include <atomic>
#include <gnomon/threads.hpp>
#include <unordered_map>

#include "client.hpp"

struct Store {
    std::vector<std::array<char, 64>> values;                 // by key
    std::unordered_map<std::uint32_t, std::uint32_t> places;  // of keys
    double scanned = 1000;                                    // values that a SCAN looks at

    Store() : values(keys) {
        for (std::uint32_t i = 0; i < keys; ++i) {
            std::snprintf(values[i].data(), 64, "value %u of the store, %u", i, i * 2654435761U);
            places[i] = i;
        }
    }
    /// How many values from `first` on have an odd sum.
    [[nodiscard]] std::uint32_t walk(std::uint32_t first) const {
        std::uint32_t odd = 0;
        for (std::uint32_t i = 0; i < static_cast<std::uint32_t>(scanned); ++i) {
            std::uint32_t sum = 0;
            for (const char one : values[(first + i) % keys]) sum = sum * 31 + static_cast<unsigned char>(one);
            odd += sum & 1;
            if (i % 8 == 7) gnt_poll();
        }
        return odd;
    }
};

class Server {
public:
    Server(const Store& store, int socket, std::size_t requests) : store_(store), socket_(socket), asked_(requests) {
        deflateInit(&stream_, 6);
    }
    ~Server() { deflateEnd(&stream_); }
    Server(const Server&) = delete;
    Server& operator=(const Server&) = delete;

    /// Submits a task a request, until the client has ended, however it did.
    void dispatch(gnt_pool* pool, pid_t client) {
        Inbox<Request> inbox;
        for (int status = 0;;) {
            const int count = inbox.receive(socket_, MSG_WAITFORONE);
            if (count <= 0 && waitpid(client, &status, WNOHANG) == client) break;
            for (int i = 0; i < count; ++i) {
                const Request& request = inbox.packets[i];
                if (inbox.messages[i].msg_len != sizeof request || request.id >= asked_.size()) continue;
                asked_[request.id] = {this, request};
                gnt_job job{};
                job.function = &Server::serve;
                job.argument = &asked_[request.id];
                job.kind = request.kind == scan ? scan : get;
                job.on_done = &Server::note;
                job.user = this;
                if (gnt_submit(pool, &job, nullptr) != 0) reply({request.id, refused, {}});
            }
        }
        is_ending_ = true;
    }

    /// Work without end: a task compresses some blocks, and another one follows.
    int compress(gnt_pool* pool) {
        pool_ = pool;
        gnt_job job{};
        job.function = &Server::compress_blocks;
        job.argument = this;
        job.kind = compression;
        return gnt_submit(pool, &job, nullptr);
    }

    std::vector<double> service_us[3];  // by kind
    std::atomic<double> compressed_bytes{0};

private:
    struct Asked {
        Server* server;
        Request request;
    };

    static std::intptr_t serve(void* given) {
        const auto& [server, request] = *static_cast<Asked*>(given);
        const Store& store = server->store_;
        Reply reply{request.id, 0, {}};
        if (request.kind == scan) {
            reply.found = store.walk(request.key);
        } else if (const auto place = store.places.find(request.key); place != store.places.end()) {
            reply.found = 1;
            reply.value = store.values[place->second];
        }
        const gnomon::PreemptionGuard guard;
        server->reply(reply);
        return 0;
    }

    void reply(const Reply& with) const {
        [[maybe_unused]] const auto bytes = send(socket_, &with, sizeof with, MSG_DONTWAIT);
    }

    static void note(const gnt_report* report, void* self) {
        static_cast<Server*>(self)->service_us[report->kind].push_back(static_cast<double>(report->attained_ns) / 1e3);
    }

    static std::intptr_t compress_blocks(void* self) {
        auto& mine = *static_cast<Server*>(self);
        do {
            for (std::size_t i = 0; i < 32 && !mine.is_ending_; ++i) {
                mine.compress_block(reinterpret_cast<const Bytef*>(mine.store_.values[i * 16].data()));
                gnt_poll();
            }
        } while (!mine.is_ending_ && mine.compress(mine.pool_) != 0);
        return 0;
    }

    /// 1 KiB; zlib is not preempted in the middle of one, its state is shared by all tasks.
    void compress_block(const Bytef* block) {
        const gnomon::PreemptionGuard guard;
        Bytef packed[2048];
        deflateReset(&stream_);
        stream_.next_in = const_cast<Bytef*>(block);
        stream_.avail_in = 1024;
        stream_.next_out = packed;
        stream_.avail_out = sizeof packed;
        if (deflate(&stream_, Z_FINISH) == Z_STREAM_END) compressed_bytes = compressed_bytes + 1024;
    }

    const Store& store_;
    int socket_;
    std::vector<Asked> asked_;  // by id
    gnt_pool* pool_ = nullptr;
    std::atomic<bool> is_ending_{false};
    z_stream stream_{};
};
