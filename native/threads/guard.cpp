// The guard library: preload it, or link it before libc, and no function is preempted inside the allocator or stdio,
// while it holds a mutex, or while it makes a function-local static. Needed where code outside of the allowed modules
// may be cut (gnt_allow_everything), and for mutexes and statics.
#include <dlfcn.h>
#include <pthread.h>

#include <climits>
#include <cstdarg>
#include <cstdint>
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

// Function-local statics and pthread_once: whoever finds one being made waits for whoever makes it.
GNT_API int __cxa_guard_acquire(std::uint64_t* object) {
    static int (*known)(std::uint64_t*) = nullptr;
    gnt_guard_enter();
    const int must_make = next(known, "__cxa_guard_acquire")(object);
    if (must_make == 0) gnt_guard_leave();
    return must_make;
}
GNT_API void __cxa_guard_release(std::uint64_t* object) {
    static void (*known)(std::uint64_t*) = nullptr;
    next(known, "__cxa_guard_release")(object);
    gnt_guard_leave();
}
GNT_API void __cxa_guard_abort(std::uint64_t* object) {
    static void (*known)(std::uint64_t*) = nullptr;
    next(known, "__cxa_guard_abort")(object);
    gnt_guard_leave();
}

#define GNT_GUARDED(result, name, parameters, arguments) \
    GNT_API result name parameters {                     \
        static result(*known) parameters = nullptr;      \
        const Guard guard;                               \
        return next(known, #name) arguments;             \
    }
GNT_GUARDED(int, pthread_once, (pthread_once_t * once, void (*make)()), (once, make))
GNT_GUARDED(std::FILE*, fopen, (const char* path, const char* mode), (path, mode))
GNT_GUARDED(std::FILE*, fopen64, (const char* path, const char* mode), (path, mode))
GNT_GUARDED(std::FILE*, fdopen, (int file, const char* mode), (file, mode))
GNT_GUARDED(std::FILE*, freopen, (const char* path, const char* mode, std::FILE* file), (path, mode, file))
GNT_GUARDED(std::FILE*, fmemopen, (void* memory, std::size_t size, const char* mode), (memory, size, mode))
GNT_GUARDED(std::FILE*, open_memstream, (char** memory, std::size_t* size), (memory, size))
GNT_GUARDED(int, fclose, (std::FILE * file), (file))
GNT_GUARDED(int, fflush, (std::FILE * file), (file))
GNT_GUARDED(int, fseek, (std::FILE * file, long offset, int from), (file, offset, from))
GNT_GUARDED(long, ftell, (std::FILE * file), (file))
GNT_GUARDED(int, setvbuf, (std::FILE * file, char* memory, int mode, std::size_t size), (file, memory, mode, size))
GNT_GUARDED(std::size_t, fwrite, (const void* from, std::size_t size, std::size_t count, std::FILE* file),
            (from, size, count, file))
GNT_GUARDED(std::size_t, fread, (void* to, std::size_t size, std::size_t count, std::FILE* file),
            (to, size, count, file))
GNT_GUARDED(int, fputs, (const char* text, std::FILE* file), (text, file))
GNT_GUARDED(int, puts, (const char* text), (text))
GNT_GUARDED(int, fputc, (int one, std::FILE* file), (one, file))
GNT_GUARDED(int, putc, (int one, std::FILE* file), (one, file))
GNT_GUARDED(int, _IO_putc, (int one, std::FILE* file), (one, file))
GNT_GUARDED(int, putchar, (int one), (one))
GNT_GUARDED(int, fgetc, (std::FILE * file), (file))
GNT_GUARDED(int, getc, (std::FILE * file), (file))
GNT_GUARDED(int, getchar, (), ())
GNT_GUARDED(int, ungetc, (int one, std::FILE* file), (one, file))
GNT_GUARDED(char*, fgets, (char* to, int size, std::FILE* file), (to, size, file))
GNT_GUARDED(ssize_t, getline, (char** line, std::size_t* size, std::FILE* file), (line, size, file))
GNT_GUARDED(ssize_t, getdelim, (char** line, std::size_t* size, int end, std::FILE* file), (line, size, end, file))
GNT_GUARDED(void, perror, (const char* text), (text))
GNT_GUARDED(int, vfprintf, (std::FILE * file, const char* format, std::va_list arguments), (file, format, arguments))
GNT_GUARDED(int, vsnprintf, (char* to, std::size_t size, const char* format, std::va_list arguments),
            (to, size, format, arguments))
GNT_GUARDED(int, vasprintf, (char** to, const char* format, std::va_list arguments), (to, format, arguments))
GNT_GUARDED(int, vfscanf, (std::FILE * file, const char* format, std::va_list arguments), (file, format, arguments))
GNT_GUARDED(int, vsscanf, (const char* text, const char* format, std::va_list arguments), (text, format, arguments))
GNT_API int vprintf(const char* format, std::va_list arguments) { return vfprintf(stdout, format, arguments); }
GNT_API int vsprintf(char* to, const char* format, std::va_list arguments) {
    return vsnprintf(to, static_cast<std::size_t>(INT_MAX), format, arguments);
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
GNT_API int sprintf(char* to, const char* format, ...) { GNT_VARIADIC(int, vsprintf(to, format, arguments)); }
GNT_API int asprintf(char** to, const char* format, ...) { GNT_VARIADIC(int, vasprintf(to, format, arguments)); }
GNT_API int fscanf(std::FILE* file, const char* format, ...) { GNT_VARIADIC(int, vfscanf(file, format, arguments)); }
GNT_API int sscanf(const char* text, const char* format, ...) { GNT_VARIADIC(int, vsscanf(text, format, arguments)); }

}  // extern "C"
