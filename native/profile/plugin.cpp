// A plugin for qemu-user: what a program does between its system calls, in one pass.
//
//     qemu-x86_64 -plugin libgnomon_profile.so,out=/tmp/x,control=/tmp/y PROGRAM ...
//
// The control file's first word is 1 while things are to be recorded. When it is 2, or at the end, each process writes
// OUT.PID: named arrays. A thread logs the blocks and the memory accesses that it executes; at its next system call the
// log is folded into the *edge* from the call before to this one. This separates the costs of a request, a wake-up, a
// timer and a connection: they are on different edges. Of each edge some executions, drawn at random, are kept whole.
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <unordered_map>

#include "profile/calls.hpp"
#include "profile/follow.hpp"
#include "profile/handlers.hpp"
#include "profile/qemu.hpp"
#include "profile/recorded.hpp"
#include "profile/reuse.hpp"
#include "profile/set_cache.hpp"

namespace gnomon::profile {
namespace {

constexpr std::size_t log_room = 1 << 14;
constexpr std::size_t most_calls = 1 << 21, most_heads = 1 << 15;
/// Executions of an edge that are kept: so many, fewer where they are long.
constexpr std::size_t most_samples = 64, fewest_samples = 4, most_sampled = 1 << 21;

enum Kind : std::int64_t { other, connection, file, log, event };
constexpr std::int64_t kind_shift = 12, vain_bit = 1 << 16;
constexpr std::size_t most_descriptors = 1 << 16;

struct ThreadLog {
    std::int32_t number = 0;
    std::int64_t before = -1;                        // the key of the call that ended last
    std::int64_t key = 0, arguments[3] = {0, 0, 0};  // of the one that is being made
    std::vector<std::uint64_t> entries;
    std::uint32_t last_block = UINT32_MAX;
    std::int64_t last_read = -1;   // a call
    std::int64_t connection = -1;  // a descriptor
    std::int64_t result = 0;       // of the call that ended last
    Edge pending;
    std::vector<std::uint64_t> sample;  // the entries of the pending edge
    Handlers::Pending handler;
};

struct Profile : Recorded {
    pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    std::string out;
    const std::atomic<std::uint32_t>* control = nullptr;
    std::map<std::pair<std::uint64_t, std::string>, std::uint32_t> block_of;
    std::mt19937_64 rng{7};
    ReuseStack code_lines{1 << 16}, data_lines;
    SetCache code_cache{512, 8}, data_cache{512, 8};
    std::int32_t threads = 0;
    bool is_written = false;
    const Numbers* numbers = nullptr;
    const Started started = how_started();
    Handlers handlers;
    std::vector<std::uint8_t> kinds = std::vector<std::uint8_t>(most_descriptors);
    std::vector<std::int64_t> openings = std::vector<std::int64_t>(most_descriptors);
};

Profile& profile() {
    static auto* one = new Profile;  // threads outlive static destructors
    return *one;
}

struct Locked {
    Locked() { pthread_mutex_lock(&profile().lock); }
    ~Locked() { pthread_mutex_unlock(&profile().lock); }
    Locked(const Locked&) = delete;
    Locked& operator=(const Locked&) = delete;
};

/// What the page that is shared with whoever started this says.
enum Control : std::uint32_t { idle, recording, writing, warming };
std::uint32_t control() { return profile().control->load(std::memory_order_relaxed); }
bool is_recording() { return control() == recording; }
/// While warming, lines are noted as touched, so that the recording knows how long ago that was.
bool is_watching() { return is_recording() || control() == warming; }

ThreadLog& mine() {
    thread_local ThreadLog* log = nullptr;
    if (log == nullptr) {
        log = new ThreadLog;
        log->entries.reserve(log_room);
        const Locked locked;
        log->number = profile().threads++;
    }
    return *log;
}

/// The lines of a block of code.
template <typename Visit>
void each_line(const Block& block, Visit&& visit) {
    for (auto line = block.address / line_bytes; line <= (block.address + block.bytes - 1) / line_bytes; ++line)
        visit(line);
}

/// Touches the lines of the log, and counts nothing.
void warm(ThreadLog& log) {
    Profile& all = profile();
    for (const auto entry : log.entries) {
        if ((entry & block_bit) == 0) {
            const auto line = (entry & word_mask) / words_a_line;
            all.data_lines.touch(line), all.data_cache.misses(line);
            continue;
        }
        each_line(all.blocks[static_cast<std::uint32_t>(entry)],
                  [&](std::uint64_t line) { all.code_lines.touch(line), all.code_cache.misses(line); });
    }
    log.entries.clear();
}

/// The log so far, into what becomes an edge.
void fold(ThreadLog& log) {
    if (!is_recording()) return warm(log);
    Profile& all = profile();
    Edge& edge = log.pending;
    all.outcomes.resize(all.blocks.size());
    all.repeats.resize(all.blocks.size());
    std::uint64_t last = block_bit;
    for (const auto entry : log.entries) {
        // The emulator splits what is wider than a word; the machine does not.
        const bool is_rest = entry == last + 1 && (entry & block_bit) == 0 && (entry & (words_a_line - 1)) != 0;
        last = entry;
        if (is_rest) continue;
        if ((entry & block_bit) == 0) {
            const bool is_store = (entry & store_bit) != 0;
            const std::size_t bucket = all.data_lines.touch((entry & word_mask) / words_a_line);
            ++(is_store ? edge.stores : edge.loads);
            ++(is_store ? edge.store : edge.load)[bucket];
            edge.data_misses += all.data_cache.misses((entry & word_mask) / words_a_line);
            if (log.sample.size() < most_sampled) log.sample.push_back(entry | std::uint64_t{bucket} << bucket_shift);
            continue;
        }
        const auto id = static_cast<std::uint32_t>(entry);
        const Block& block = all.blocks[id];
        const bool is_again = block.is_repeat && log.last_block == id;
        if (log.last_block != UINT32_MAX && !is_again) {
            const Block& before = all.blocks[log.last_block];
            Outcomes& outcome = all.outcomes[log.last_block];
            const auto fell = static_cast<std::uint8_t>(before.address + before.bytes == block.address);
            ++outcome.followed;
            outcome.fell_through += fell;
            outcome.changed += outcome.last != 2 && outcome.last != fell;
            outcome.last = fell;
            outcome.turned += outcome.last_block != UINT32_MAX && outcome.last_block != id;
            outcome.last_block = id;
        }
        log.last_block = id;
        if (log.sample.size() < most_sampled) log.sample.push_back(entry);
        if (is_again) {
            ++edge.repeats;
            ++all.repeats[id];
            continue;
        }
        edge.instructions += block.instructions;
        ++edge.executed[id];
        each_line(block, [&](std::uint64_t line) {
            ++edge.code[all.code_lines.touch(line)], edge.code_misses += all.code_cache.misses(line);
        });
    }
    log.entries.clear();
}

/// A connection: its descriptor, and how often that was given to one.
std::int64_t opened(std::int64_t descriptor) {
    const bool is_known = descriptor >= 0 && descriptor < static_cast<std::int64_t>(most_descriptors);
    return is_known ? profile().openings[static_cast<std::size_t>(descriptor)] << 16 | descriptor : -1;
}

/// Wake-ups with as many events, roughly, are alike: each power of two has two kinds. Others are of one kind.
int stratum_of(const ThreadLog& log) {
    const std::int64_t number = log.before & ((std::int64_t{1} << kind_shift) - 1), events = log.result;
    if (events < 2 || !is_one_of(profile().numbers->waits, number)) return 0;
    const int width = 63 - __builtin_clzll(static_cast<std::uint64_t>(events));
    return 2 * width - 1 + static_cast<int>(events >> (width - 1) & 1);
}

/// Keeps the pending execution with the chance that leaves every one of its stratum equally likely to be kept.
void keep_sample(ThreadLog& log) {
    Profile& all = profile();
    Stratum& stratum = all.samples[{log.before, log.key}][stratum_of(log)];
    auto& kept = stratum.kept;
    ++stratum.count;
    const std::size_t room = std::clamp(most_sampled / (1 + log.sample.size()), fewest_samples, most_samples);
    if (log.sample.size() == most_sampled) return;  // cut short
    const std::int64_t next = log.key >> kind_shift == connection ? opened(log.arguments[0]) : -1;
    const std::size_t at = kept.size() < room ? kept.size() : all.rng() % stratum.count;
    if (at >= room) return;
    if (at == kept.size()) kept.emplace_back();
    kept[at] = {log.number, log.last_read, log.connection, next, log.result, log.sample};
}

void merge(Edge& into, const Edge& from) {
    into.count += 1;
    into.instructions += from.instructions;
    into.loads += from.loads;
    into.stores += from.stores;
    into.repeats += from.repeats;
    into.clocks += from.clocks;
    into.code_misses += from.code_misses;
    into.data_misses += from.data_misses;
    for (const auto& [id, times] : from.executed) into.executed[id] += times;
    for (std::size_t i = 0; i < buckets; ++i) {
        into.code[i] += from.code[i];
        into.load[i] += from.load[i];
        into.store[i] += from.store[i];
    }
}

// --- what QEMU calls -------------------------------------------------------------------------------

void append(std::uint64_t entry) {
    ThreadLog& log = mine();
    log.entries.push_back(entry);
    if (log.entries.size() == log_room) {
        const Locked locked;
        fold(log);
    }
}

void on_block(unsigned, void* id) {
    if (is_watching()) append(block_bit | reinterpret_cast<std::uintptr_t>(id));
}

void on_access(unsigned, qemu_plugin_meminfo_t info, std::uint64_t address, void* instruction) {
    if (!is_watching()) return;
    const auto number = std::min(reinterpret_cast<std::uintptr_t>(instruction), std::uintptr_t{instruction_mask});
    append((address / 8 & word_mask) | std::uint64_t{number} << instruction_shift |
           (qemu_plugin_mem_is_store(info) ? store_bit : 0));
}

std::int64_t kind_of(std::int64_t number, std::int64_t descriptor) {
    Profile& all = profile();
    const bool is_one = is_one_of(all.numbers->of_descriptor, number) && descriptor >= 0 &&
                        descriptor < static_cast<std::int64_t>(most_descriptors);
    return is_one ? std::int64_t{all.kinds[static_cast<std::size_t>(descriptor)]} : std::int64_t{other};
}

void note_descriptor(std::int64_t number, std::int64_t first, std::int64_t result) {
    Profile& all = profile();
    const auto set = [&](std::int64_t descriptor, Kind kind) {
        if (descriptor >= 0 && descriptor < static_cast<std::int64_t>(most_descriptors))
            all.kinds[static_cast<std::size_t>(descriptor)] = static_cast<std::uint8_t>(kind);
    };
    if (is_one_of(all.numbers->accepts, number)) {
        set(result, connection);
        if (result >= 0 && result < static_cast<std::int64_t>(most_descriptors))
            ++all.openings[static_cast<std::size_t>(result)];
    } else if (is_one_of(all.numbers->opens, number)) set(result, is_recording() ? file : log);  // stays open: a log
    else if (int both[2]; result == 0 && is_one_of(all.numbers->events, number) &&
                          copy_from_program(both, static_cast<std::uint64_t>(first), sizeof both)) {
        for (const int one : both) set(one, event);  // a pipe
    } else if (is_one_of(all.numbers->events, number)) set(result, event);
    else if (is_one_of(all.numbers->closes, number)) set(first, other);
}

/// How long it asks to sleep, in nanoseconds, in place of the first argument.
void note_sleep(ThreadLog& log, std::int64_t number) {
    for (const auto& [sleep, argument] : profile().numbers->sleeps) {
        std::int64_t time[2];
        const bool is_absolute = argument == 2 && (log.arguments[1] & 1) != 0;  // until then, not for so long
        if (number != sleep) continue;
        const bool is_known =
            !is_absolute && copy_from_program(time, static_cast<std::uint64_t>(log.arguments[argument]), sizeof time);
        constexpr std::int64_t longest_s = 86400;  // whoever sleeps longer waits for something else
        log.arguments[0] = is_known ? std::min(time[0], longest_s) * 1'000'000'000 + time[1] : 0;
    }
}

void on_call(qemu_plugin_id_t, unsigned, std::int64_t number, std::uint64_t a, std::uint64_t b, std::uint64_t c,
             std::uint64_t, std::uint64_t, std::uint64_t, std::uint64_t, std::uint64_t) {
    if (number == profile().numbers->executes) follow(profile().started, profile().numbers->machine, a, b, c);
    ThreadLog& log = mine();
    const Locked locked;
    if (number == profile().numbers->sets_handler)
        log.handler = profile().handlers.set(static_cast<std::int64_t>(a), b, c);
    if (is_one_of(profile().numbers->clocks, number)) {
        ++log.pending.clocks;
        return;
    }
    if (is_one_of(profile().numbers->timely, number)) return;
    log.arguments[0] = static_cast<std::int64_t>(a);
    log.arguments[1] = static_cast<std::int64_t>(b);
    log.arguments[2] = static_cast<std::int64_t>(c);
    log.key = number | kind_of(number, log.arguments[0]) << kind_shift;
    note_sleep(log, number);
    fold(log);
    // What began before recording did is no whole edge.
    if (log.before >= 0 && is_recording()) {
        Edge& edge = profile().edges[{log.before, log.key}];
        merge(edge, log.pending);
        keep_sample(log);
    }
    log.pending = Edge{};
    log.sample.clear();
    log.before = -1;
}

/// What a read has put at the begin of its buffer.
void note_head(ThreadLog& log, std::int64_t number, std::int64_t result) {
    Profile& all = profile();
    if (result <= 0 || log.key >> kind_shift != connection || !is_one_of(all.numbers->reads, number)) return;
    log.last_read = static_cast<std::int64_t>(all.calls.size());
    if (all.heads.size() == most_heads) return;
    std::uint64_t at = static_cast<std::uint64_t>(log.arguments[1]);
    if (is_one_of(all.numbers->messages, number) && !copy_from_program(&at, at + 16, sizeof at)) return;  // msg_iov
    if (is_one_of(all.numbers->vectors, number) && !copy_from_program(&at, at, sizeof at))
        return;  // the first iov_base
    Head head{static_cast<std::int64_t>(all.calls.size()), {}};
    if (copy_from_program(head.bytes, at, std::min<std::size_t>(head_bytes, static_cast<std::size_t>(result))))
        all.heads.push_back(head);
}

void note_call(const Call& call) {
    Profile& all = profile();
    if (!is_recording()) return;
    if (all.calls.size() < most_calls) all.calls.push_back(call);
    else ++all.calls_left_out;
}

void on_return(qemu_plugin_id_t, unsigned, std::int64_t number, std::int64_t result) {
    ThreadLog& log = mine();
    const Locked locked;
    Profile& all = profile();
    if (number == all.numbers->sets_handler) all.handlers.restore(log.handler, result);
    if (is_one_of(all.numbers->clocks, number)) return;
    if (is_one_of(all.numbers->timely, number)) return note_call({log.number, number, 0, 0, 0, result});
    log.entries.clear();
    log.last_block = UINT32_MAX;
    note_descriptor(number, log.arguments[0], result);
    const bool is_vain = result <= 0 && is_one_of(all.numbers->in_vain, number);
    log.before = is_recording() ? log.key | (is_vain ? vain_bit : 0) : -1;
    log.result = result;
    if (!is_recording()) return;
    if (log.key >> kind_shift == connection) log.connection = opened(log.arguments[0]);
    note_head(log, number, result);
    note_call({log.number, log.key, log.arguments[0], log.arguments[1], log.arguments[2], result});
}

void on_translation(qemu_plugin_id_t, qemu_plugin_tb* tb) {
    const std::size_t count = qemu_plugin_tb_n_insns(tb);
    std::string code;
    for (std::size_t i = 0; i < count; ++i) {
        qemu_plugin_insn* one = qemu_plugin_tb_get_insn(tb, i);
        code.append(static_cast<const char*>(qemu_plugin_insn_data(one)), qemu_plugin_insn_size(one));
        qemu_plugin_register_vcpu_mem_cb(one, &on_access, QEMU_PLUGIN_CB_NO_REGS, QEMU_PLUGIN_MEM_RW,
                                         reinterpret_cast<void*>(i));
    }
    if (code.empty()) return;
    const Locked locked;
    Profile& all = profile();
    const auto [found, is_new] = all.block_of.try_emplace({qemu_plugin_tb_vaddr(tb), code}, all.blocks.size());
    if (is_new) {
        const auto first = static_cast<unsigned char>(code[0]);
        all.blocks.push_back({qemu_plugin_tb_vaddr(tb), static_cast<std::uint32_t>(code.size()),
                              static_cast<std::uint32_t>(count), static_cast<std::uint32_t>(all.code.size()),
                              count == 1 && (first == 0xf3 || first == 0xf2)});
        all.code += code;
    }
    qemu_plugin_register_vcpu_tb_exec_cb(tb, &on_block, QEMU_PLUGIN_CB_NO_REGS,
                                         reinterpret_cast<void*>(static_cast<std::uintptr_t>(found->second)));
}

// --- the file --------------------------------------------------------------------------------------

void write_once() {
    const Locked locked;
    Profile& all = profile();
    if (all.is_written) return;
    all.is_written = true;
    const std::string path = all.out + "." + std::to_string(getpid());
    std::FILE* file = std::fopen((path + ".part").c_str(), "wbe");
    if (file == nullptr) return;
    write_recording(file, all);
    const bool is_whole = std::fflush(file) == 0;
    std::fclose(file);
    if (is_whole) std::rename((path + ".part").c_str(), path.c_str());
}

void on_exit(qemu_plugin_id_t, void*) { write_once(); }

/// Writes when the control file says so: a program that SIGTERM kills has no exit.
void* watch(void*) {
    while (control() != writing) usleep(5000);
    write_once();
    return nullptr;
}

/// Such as 512:8, lines and ways.
SetCache cache_of(std::string_view given) {
    const std::string text(given);
    char* end = nullptr;
    const std::size_t lines = std::strtoul(text.c_str(), &end, 10);
    const std::size_t ways = *end == ':' ? std::strtoul(end + 1, nullptr, 10) : 0;
    return ways > 0 && lines >= ways ? SetCache{lines, ways} : SetCache{512, 8};
}

/// Signals are for the program's own threads.
void start_watch() {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_t thread;
    if (pthread_create(&thread, nullptr, &watch, nullptr) == 0) pthread_detach(thread);
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void before_fork() { pthread_mutex_lock(&profile().lock); }

void after_fork_in_parent() { pthread_mutex_unlock(&profile().lock); }

/// What its parent did is the parent's to write.
void after_fork_in_child() {
    Profile& all = profile();
    all.lock = PTHREAD_MUTEX_INITIALIZER;
    all.edges.clear();
    all.samples.clear();
    all.calls.clear();
    all.heads.clear();
    std::fill(all.outcomes.begin(), all.outcomes.end(), Outcomes{});
    std::fill(all.repeats.begin(), all.repeats.end(), 0);
    all.calls_left_out = 0;
    start_watch();
}

}  // namespace
}  // namespace gnomon::profile

extern "C" {

[[gnu::visibility("default")]] int qemu_plugin_version = 1;

[[gnu::visibility("default")]] int qemu_plugin_install(qemu_plugin_id_t id, const qemu_info_t* info, int words,
                                                       char** word) {
    using namespace gnomon::profile;
    if (info->system_emulation) return 1;
    Profile& all = profile();
    for (const auto& one : machines) {
        if (info->target_name == std::string_view(one.target)) all.numbers = &one;
    }
    std::string control;
    for (int i = 0; i < words; ++i) {
        const std::string_view given = word[i];
        if (given.starts_with("out=")) all.out = given.substr(4);
        if (given.starts_with("control=")) control = given.substr(8);
        if (given.starts_with("code=")) all.code_cache = cache_of(given.substr(5));
        if (given.starts_with("data=")) all.data_cache = cache_of(given.substr(5));
    }
    const int file = open(control.c_str(), O_RDONLY | O_CLOEXEC);
    if (all.numbers == nullptr || all.out.empty() || file < 0) return 1;
    void* page = mmap(nullptr, 4096, PROT_READ, MAP_SHARED, file, 0);
    close(file);
    if (page == MAP_FAILED) return 1;
    all.control = static_cast<const std::atomic<std::uint32_t>*>(page);
    pthread_atfork(&before_fork, &after_fork_in_parent, &after_fork_in_child);
    start_watch();
    qemu_plugin_register_vcpu_tb_trans_cb(id, &on_translation);
    qemu_plugin_register_vcpu_syscall_cb(id, &on_call);
    qemu_plugin_register_vcpu_syscall_ret_cb(id, &on_return);
    qemu_plugin_register_atexit_cb(id, &on_exit, nullptr);
    return 0;
}
}
