#include "threads/modules.hpp"

#include <dlfcn.h>
#include <link.h>

#include <array>
#include <atomic>
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <new>
#include <string>

#include "gnomon/threads.h"

namespace gnomon::threads {
namespace {

struct Range {
    std::uintptr_t begin, end;
};

// Handlers read while others add: a range is written before it is counted, and never taken away. Modules stay loaded
// once they were allowed, so that no other code comes to lie in their place.
struct Ranges {
    std::array<Range, 128> range;
    std::atomic<std::size_t> count{0};
    std::atomic<Ranges*> more{nullptr};
};
Ranges ranges;
std::atomic<bool> is_everything_allowed{false};
std::mutex adding;

bool is_known(std::uintptr_t address) {
    for (const Ranges* some = &ranges; some != nullptr; some = some->more.load(std::memory_order_acquire)) {
        const std::size_t count = some->count.load(std::memory_order_acquire);
        for (std::size_t i = 0; i < count; ++i) {
            if (address >= some->range[i].begin && address < some->range[i].end) return true;
        }
    }
    return false;
}

int add(Range range) {
    Ranges* last = &ranges;
    while (last->count.load(std::memory_order_relaxed) == last->range.size()) {
        Ranges* more = last->more.load(std::memory_order_relaxed);
        if (more == nullptr) {
            more = new (std::nothrow) Ranges;
            if (more == nullptr) return GNT_ENOMEM;
            last->more.store(more, std::memory_order_release);
        }
        last = more;
    }
    const std::size_t count = last->count.load(std::memory_order_relaxed);
    last->range[count] = range;
    last->count.store(count + 1, std::memory_order_release);
    return 0;
}

struct Search {
    std::uintptr_t address;
    bool is_launched = false;
    bool is_found = false;
    int status = 0;
    std::string name = {};  // of the module that was allowed
};

/// Libraries that keep state between two instructions: allocator, loader, locks, exceptions.
bool is_runtime(const char* path) {
    const char* slash = std::strrchr(path, '/');
    const char* name = slash == nullptr ? path : slash + 1;
    for (const char* one : {"libc.", "libc-", "ld-", "ld.", "libpthread", "libstdc++", "libgcc_s", "libc++", "libm.",
                            "libdl.", "libasan", "libtsan", "libpython"})
        if (std::strncmp(name, one, std::strlen(one)) == 0) return true;
    return false;
}

int look_at(dl_phdr_info* module, std::size_t, void* given) {
    auto& search = *static_cast<Search*>(given);
    const bool is_program = module->dlpi_name == nullptr || module->dlpi_name[0] == '\0';
    bool has_loader = false;
    for (int i = 0; i < module->dlpi_phnum; ++i) {
        const auto& segment = module->dlpi_phdr[i];
        const std::uintptr_t begin = module->dlpi_addr + segment.p_vaddr;
        // A static program that is position-independent has a dynamic section, but no loader.
        has_loader |= segment.p_type == (is_program ? PT_INTERP : PT_DYNAMIC);
        search.is_found |=
            segment.p_type == PT_LOAD && search.address >= begin && search.address < begin + segment.p_memsz;
    }
    if (!search.is_found) return 0;
    if (search.is_launched && is_runtime(module->dlpi_name)) return 1;
    if (!has_loader) {
        search.status = GNT_ESTATIC;
        return 1;
    }
    for (int i = 0; i < module->dlpi_phnum && search.status == 0; ++i) {
        const auto& segment = module->dlpi_phdr[i];
        const std::uintptr_t begin = module->dlpi_addr + segment.p_vaddr;
        if (segment.p_type == PT_LOAD && (segment.p_flags & PF_X) != 0)
            search.status = add({begin, begin + segment.p_memsz});
    }
    if (!is_program) search.name = module->dlpi_name;
    return 1;
}

/// Code that a compiler made at run time belongs to no module.
int add_mapping(std::uintptr_t address) {
    std::FILE* maps = std::fopen("/proc/self/maps", "re");
    if (maps == nullptr) return GNT_EINVAL;
    int status = GNT_EINVAL;
    char line[512];
    while (status == GNT_EINVAL && std::fgets(line, sizeof line, maps) != nullptr) {
        std::uintptr_t begin = 0, end = 0;
        char rights[5] = "";
        if (std::sscanf(line, "%" SCNxPTR "-%" SCNxPTR " %4s", &begin, &end, rights) == 3 && rights[2] == 'x' &&
            address >= begin && address < end)
            status = add({begin, end});
    }
    std::fclose(maps);
    return status;
}

}  // namespace

bool may_be_cut(const void* pc) {
    return is_known(reinterpret_cast<std::uintptr_t>(pc)) || is_everything_allowed.load(std::memory_order_relaxed);
}

namespace {

int allow(const void* address_inside, bool is_launched) {
    const auto address = reinterpret_cast<std::uintptr_t>(address_inside);
    if (is_known(address)) return 0;
    const std::lock_guard lock(adding);
    if (is_known(address)) return 0;
    Search search{address, is_launched};
    dl_iterate_phdr(&look_at, &search);
    if (!search.name.empty()) dlopen(search.name.c_str(), RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE);
    return search.is_found ? search.status : add_mapping(address);
}

}  // namespace

int allow_module(const void* address_inside) { return allow(address_inside, false); }
int allow_launched(const void* function) { return allow(function, true); }

int allow_range(const void* begin, const void* end) {
    if (begin >= end) return GNT_EINVAL;
    const std::lock_guard lock(adding);
    return add({reinterpret_cast<std::uintptr_t>(begin), reinterpret_cast<std::uintptr_t>(end)});
}

void allow_everything(bool is_allowed) { is_everything_allowed.store(is_allowed); }

}  // namespace gnomon::threads
