// Signal handlers are entered with the stack that the x86-64 ABI promises.
//
// QEMU 7.2 enters them with a stack pointer that is off by eight, and checks the alignment of vector instructions: a
// handler that formats a number ends the program. haproxy and PostgreSQL have such handlers. So what a program sets as
// a handler is replaced by a few instructions that align the stack and call it. They lie in the zeros between the end
// of the C library's code and the end of its last page, because QEMU executes what the program has mapped and nothing
// else.
#pragma once

#include <elf.h>
#include <sys/mman.h>

#include <array>
#include <cstring>
#include <fstream>
#include <sstream>

#include "profile/follow.hpp"

namespace gnomon::profile {

inline bool copy_to_program(std::uint64_t to, const void* from, std::size_t bytes) {
    const iovec here{const_cast<void*>(from), bytes}, there{reinterpret_cast<void*>(to), bytes};
    return process_vm_writev(getpid(), &here, 1, &there, 1, 0) == static_cast<ssize_t>(bytes);
}

/// Of the last page of code around an address, what no code fills: an address and how much. Nothing: {0, 0}.
inline std::pair<std::uint64_t, std::size_t> room_after_code(std::uint64_t address) {
    constexpr std::uint64_t page = 4096;
    std::ifstream maps("/proc/self/maps");
    for (std::string text; std::getline(maps, text);) {
        std::istringstream words(text);
        std::uint64_t begin = 0, end = 0, offset = 0;
        std::string rights, device, inode, path;
        char dash = 0;
        words >> std::hex >> begin >> dash >> end >> rights >> offset >> device >> inode >> path;
        if (address < begin || address >= end) continue;
        std::ifstream file(path, std::ios::binary);
        Elf64_Ehdr head{};
        if (!file.read(reinterpret_cast<char*>(&head), sizeof head)) return {0, 0};
        for (std::uint64_t i = 0; i < head.e_phnum; ++i) {
            Elf64_Phdr part{};
            file.seekg(static_cast<std::streamoff>(head.e_phoff + i * head.e_phentsize));
            if (!file.read(reinterpret_cast<char*>(&part), sizeof part)) return {0, 0};
            const std::uint64_t at = offset + address - begin, last = part.p_offset + part.p_filesz;
            if (part.p_type != PT_LOAD || !(part.p_flags & PF_X) || at < part.p_offset || at >= last) continue;
            const std::uint64_t room = (address + last - at + 15) & ~std::uint64_t{15};
            return {room, (page - room % page) % page};
        }
    }
    return {0, 0};
}

class Handlers {
public:
    static constexpr std::int64_t call = 13;  // rt_sigaction

    /// What a thread has to put back when its call returns.
    struct Pending {
        std::int64_t signal = 0;
        std::uint64_t action = 0, given = 0, old = 0, before = 0;
    };

    /// The program sets a handler: `action` and `old` are where its arguments point.
    Pending set(std::int64_t signal, std::uint64_t action, std::uint64_t old) {
        // The C library's own two signals unwind the stack, and know what they find there.
        if (signal <= 0 || signal >= signals || signal == 32 || signal == 33) return {};
        std::uint64_t& handler = handlers_[static_cast<std::size_t>(signal)];
        Pending found{signal, 0, 0, old, handler};
        Action given;
        if (action == 0 || !copy_from_program(&given, action, sizeof given)) return found;
        if (entry_ == 0) place(given.restorer);
        if (given.handler <= 1 || given.handler == entry_ || entry_ == 0) return found;
        if (!copy_to_program(action, &entry_, sizeof entry_)) return found;
        handler = given.handler;
        found.action = action, found.given = given.handler;
        return found;
    }

    /// The call has returned: the program sees what it set.
    void restore(const Pending& pending, std::int64_t result) {
        if (pending.signal == 0) return;
        if (pending.action != 0) copy_to_program(pending.action, &pending.given, sizeof pending.given);
        if (result != 0) handlers_[static_cast<std::size_t>(pending.signal)] = pending.before;
        std::uint64_t old = 0;
        if (result == 0 && pending.old != 0 && copy_from_program(&old, pending.old, sizeof old) && old == entry_)
            copy_to_program(pending.old, &pending.before, sizeof pending.before);
    }

private:
    static constexpr std::int64_t signals = 65;

    struct Action {
        std::uint64_t handler, flags, restorer, mask;
    };

    /// Instructions that call the handler of the signal in edi with an aligned stack, after the code around an address.
    void place(std::uint64_t near) {
        std::array<unsigned char, 29> code{
            0x48, 0xb9, 0,    0,    0, 0, 0, 0, 0, 0,  // mov rcx, handlers
            0x89, 0xf8,                                // mov eax, edi
            0x48, 0x8b, 0x0c, 0xc1,                    // mov rcx, [rcx + 8 * rax]
            0x31, 0xc0,                                // xor eax, eax
            0x40, 0xf6, 0xc4, 0x08,                    // test spl, 8
            0x74, 0x02,                                // jz to the call
            0xff, 0xe1,                                // jmp rcx: it is aligned
            0xff, 0xd1,                                // call rcx
            0xc3,                                      // ret
        };
        const std::uint64_t* table = handlers_.data();
        std::memcpy(code.data() + 2, &table, sizeof table);
        const auto [room, bytes] = room_after_code(near);
        if (bytes < code.size()) return;
        auto* at = reinterpret_cast<unsigned char*>(room);
        for (std::size_t i = 0; i < code.size(); ++i)
            if (at[i] != 0) return;
        constexpr std::size_t page = 4096;
        void* whole = reinterpret_cast<void*>(room & ~std::uint64_t{page - 1});
        if (mprotect(whole, page, PROT_READ | PROT_WRITE) != 0) return;
        std::memcpy(at, code.data(), code.size());
        mprotect(whole, page, PROT_READ);
        entry_ = room;
    }

    std::array<std::uint64_t, signals> handlers_{};
    std::uint64_t entry_ = 0;
};

}  // namespace gnomon::profile
