// A program that replaces itself by another: that one is run by the emulator and the plugin, too.
//
// Without this the emulator hands execve to the machine, which runs the new program natively and unseen. Shell scripts
// that start a service, and services that start themselves again, do so.
#pragma once

#include <limits.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

namespace gnomon::profile {

/// Memory of the emulated program, which the emulator maps where the program believes it is. False: there is none.
inline bool copy_from_program(void* to, std::uint64_t from, std::size_t bytes) {
    const iovec here{to, bytes}, there{reinterpret_cast<void*>(from), bytes};
    return process_vm_readv(getpid(), &here, 1, &there, 1, 0) == static_cast<ssize_t>(bytes);
}

inline std::string text_from_program(std::uint64_t at) {
    std::string found;
    for (char one = 1; found.size() < PATH_MAX && copy_from_program(&one, at + found.size(), 1) && one;) found += one;
    return found;
}

/// How this process was started: the emulator with its options, of which the plugin is the last, and the program.
struct Started {
    std::vector<std::string> emulator;
    std::string program;
};

inline Started how_started() {
    std::ifstream file("/proc/self/cmdline");
    Started found;
    std::vector<std::string> words;
    for (std::string one; std::getline(file, one, '\0');) words.push_back(one);
    const auto plugin = std::find(words.begin(), words.end(), "-plugin");
    if (words.end() - plugin < 3) return found;
    found.emulator.assign(words.begin(), plugin + 2);
    std::error_code ignored;
    found.emulator[0] = std::filesystem::read_symlink("/proc/self/exe", ignored);
    const auto program = plugin + (plugin[2] == "-0" ? 4 : 2);
    if (program < words.end()) found.program = std::filesystem::canonical(*program, ignored);
    return found;
}

/// What a script names as its interpreter after `#!`, and the rest of that line as one word, as Linux reads it.
inline std::vector<std::string> interpreter_of(std::string_view line) {
    constexpr auto blank = " \t";
    line = line.substr(2, line.find('\n') - 2);
    line.remove_prefix(std::min(line.find_first_not_of(blank), line.size()));
    line = line.substr(0, line.find_last_not_of(blank) + 1);
    const std::size_t end = std::min(line.find_first_of(blank), line.size());
    std::vector<std::string> found{std::string(line.substr(0, end))};
    line.remove_prefix(end);
    line.remove_prefix(std::min(line.find_first_not_of(blank), line.size()));
    if (!line.empty()) found.emplace_back(line);
    return found;
}

/// Replaces the process as the program asked, but in the emulator. Returns where that cannot be done: the emulator then
/// does what it can, and gives the program its error.
inline void follow(const Started& started, std::uint8_t machine, std::uint64_t path_at, std::uint64_t words_at,
                   std::uint64_t environment_at) {
    constexpr std::size_t most_scripts = 4, machine_at = 18;
    std::error_code ignored;
    std::string path = text_from_program(path_at);
    std::vector<char*> given;
    for (std::uint64_t one = 0; copy_from_program(&one, words_at + 8 * given.size(), 8) && one;)
        given.push_back(reinterpret_cast<char*>(one));
    if (started.emulator.empty() || given.empty()) return;
    if (path == "/proc/self/exe") path = started.program;
    std::vector<std::string> words{text_from_program(reinterpret_cast<std::uint64_t>(given[0]))};
    for (std::size_t scripts = 0;; ++scripts) {
        std::string head(256, '\0');
        if (access(path.c_str(), X_OK) != 0 || !std::filesystem::is_regular_file(path, ignored)) return;
        std::ifstream file(path, std::ios::binary);
        file.read(head.data(), static_cast<std::streamsize>(head.size()));
        head.resize(static_cast<std::size_t>(file.gcount()));
        if (head.size() > machine_at && head.starts_with("\x7f\x45LF")) {
            if (static_cast<std::uint8_t>(head[machine_at]) != machine) return;
            break;
        }
        if (!head.starts_with("#!") || scripts == most_scripts) return;
        std::vector<std::string> all = interpreter_of(head);
        all.push_back(path);
        all.insert(all.end(), words.begin() + 1, words.end());
        words = all;
        path = words[0];
    }
    std::vector<std::string> all = started.emulator;
    all.insert(all.end(), {"-0", words[0], path});
    all.insert(all.end(), words.begin() + 1, words.end());
    std::vector<char*> pointers;
    for (auto& one : all) pointers.push_back(one.data());
    pointers.insert(pointers.end(), given.begin() + 1, given.end());
    pointers.push_back(nullptr);
    execve(pointers[0], pointers.data(), reinterpret_cast<char**>(environment_at));
}

}  // namespace gnomon::profile
