// The guard library: preload it, or link it before libc, and no function is preempted inside the allocator, stdio or
// while it holds a mutex. Needed where code outside of the allowed modules may be cut (gnt_allow_everything), and for
// mutexes.
#include <dlfcn.h>
#include <pthread.h>

#include <cstdarg>
#include <cstdio>

#include "gnomon/threads.h"

namespace {

struct Guard {
    Guard() { gnt_guard_enter(); }
    ~Guard() { gnt_guard_leave(); }
};

/// The function that this library stands in front of.
template <typename Function>
Function* next(Function*& known, const char* name) {
    if (known == nullptr) known = reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
    return known;
}

}  // namespace

extern "C" {

// glibc's own names: dlsym would allocate.
void* __libc_malloc(std::size_t);
void* __libc_calloc(std::size_t, std::size_t);
void* __libc_realloc(void*, std::size_t);
void* __libc_memalign(std::size_t, std::size_t);
void __libc_free(void*);

GNT_API void* malloc(std::size_t size) {
    const Guard guard;
    return __libc_malloc(size);
}
GNT_API void* calloc(std::size_t count, std::size_t size) {
    const Guard guard;
    return __libc_calloc(count, size);
}
GNT_API void* realloc(void* memory, std::size_t size) {
    const Guard guard;
    return __libc_realloc(memory, size);
}
GNT_API void free(void* memory) {
    const Guard guard;
    __libc_free(memory);
}
GNT_API void* memalign(std::size_t alignment, std::size_t size) {
    const Guard guard;
    return __libc_memalign(alignment, size);
}
GNT_API void* aligned_alloc(std::size_t alignment, std::size_t size) { return memalign(alignment, size); }
GNT_API int posix_memalign(void** to, std::size_t alignment, std::size_t size) {
    if (alignment % sizeof(void*) != 0 || (alignment & (alignment - 1)) != 0 || alignment == 0) return 22;  // EINVAL
    void* made = memalign(alignment, size);
    if (made == nullptr) return 12;  // ENOMEM
    *to = made;
    return 0;
}

// A guard from lock to unlock: whoever waited for a lock that a preempted function holds would wait for ever.
GNT_API int pthread_mutex_lock(pthread_mutex_t* mutex) {
    static int (*known)(pthread_mutex_t*) = nullptr;
    gnt_guard_enter();
    const int status = next(known, "pthread_mutex_lock")(mutex);
    if (status != 0) gnt_guard_leave();
    return status;
}
GNT_API int pthread_mutex_trylock(pthread_mutex_t* mutex) {
    static int (*known)(pthread_mutex_t*) = nullptr;
    gnt_guard_enter();
    const int status = next(known, "pthread_mutex_trylock")(mutex);
    if (status != 0) gnt_guard_leave();
    return status;
}
GNT_API int pthread_mutex_timedlock(pthread_mutex_t* mutex, const timespec* until) {
    static int (*known)(pthread_mutex_t*, const timespec*) = nullptr;
    gnt_guard_enter();
    const int status = next(known, "pthread_mutex_timedlock")(mutex, until);
    if (status != 0) gnt_guard_leave();
    return status;
}
GNT_API int pthread_mutex_clocklock(pthread_mutex_t* mutex, clockid_t clock, const timespec* until) {
    static int (*known)(pthread_mutex_t*, clockid_t, const timespec*) = nullptr;
    gnt_guard_enter();
    const int status = next(known, "pthread_mutex_clocklock")(mutex, clock, until);
    if (status != 0) gnt_guard_leave();
    return status;
}
GNT_API int pthread_mutex_unlock(pthread_mutex_t* mutex) {
    static int (*known)(pthread_mutex_t*) = nullptr;
    const int status = next(known, "pthread_mutex_unlock")(mutex);
    if (status == 0) gnt_guard_leave();
    return status;
}

GNT_API int vfprintf(std::FILE* file, const char* format, std::va_list arguments) {
    static int (*known)(std::FILE*, const char*, std::va_list) = nullptr;
    const Guard guard;
    return next(known, "vfprintf")(file, format, arguments);
}
GNT_API int vsnprintf(char* to, std::size_t size, const char* format, std::va_list arguments) {
    static int (*known)(char*, std::size_t, const char*, std::va_list) = nullptr;
    const Guard guard;
    return next(known, "vsnprintf")(to, size, format, arguments);
}
#define GNT_VARIADIC(result, call) \
    std::va_list arguments;        \
    va_start(arguments, format);   \
    const result made = call;      \
    va_end(arguments);             \
    return made
GNT_API int printf(const char* format, ...) { GNT_VARIADIC(int, vfprintf(stdout, format, arguments)); }
GNT_API int __printf_chk(int, const char* format, ...) { GNT_VARIADIC(int, vfprintf(stdout, format, arguments)); }
GNT_API int fprintf(std::FILE* file, const char* format, ...) { GNT_VARIADIC(int, vfprintf(file, format, arguments)); }
GNT_API int __fprintf_chk(std::FILE* file, int, const char* format, ...) {
    GNT_VARIADIC(int, vfprintf(file, format, arguments));
}
GNT_API int snprintf(char* to, std::size_t size, const char* format, ...) {
    GNT_VARIADIC(int, vsnprintf(to, size, format, arguments));
}
GNT_API int __snprintf_chk(char* to, std::size_t size, int, std::size_t, const char* format, ...) {
    GNT_VARIADIC(int, vsnprintf(to, size, format, arguments));
}
GNT_API std::size_t fwrite(const void* from, std::size_t size, std::size_t count, std::FILE* file) {
    static std::size_t (*known)(const void*, std::size_t, std::size_t, std::FILE*) = nullptr;
    const Guard guard;
    return next(known, "fwrite")(from, size, count, file);
}
GNT_API int fputs(const char* text, std::FILE* file) {
    static int (*known)(const char*, std::FILE*) = nullptr;
    const Guard guard;
    return next(known, "fputs")(text, file);
}
GNT_API int puts(const char* text) {
    static int (*known)(const char*) = nullptr;
    const Guard guard;
    return next(known, "puts")(text);
}
GNT_API int fflush(std::FILE* file) {
    static int (*known)(std::FILE*) = nullptr;
    const Guard guard;
    return next(known, "fflush")(file);
}

}  // extern "C"
