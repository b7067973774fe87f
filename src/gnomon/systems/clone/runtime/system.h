/* System calls without a C library in between: a dozen instructions less, and an error is the result. */
#ifndef GNC_SYSTEM_H
#define GNC_SYSTEM_H

#include <errno.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "model.h"

/* Below 0: an error, as -EAGAIN. */
static inline long gnc_system(long number, long a, long b, long c, long d, long e, long f) {
#if defined __x86_64__
    register long r10 __asm__("r10") = d, r8 __asm__("r8") = e, r9 __asm__("r9") = f;
    long result;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return result;
#elif defined __aarch64__
    register long x8 __asm__("x8") = number, x0 __asm__("x0") = a, x1 __asm__("x1") = b, x2 __asm__("x2") = c;
    register long x3 __asm__("x3") = d, x4 __asm__("x4") = e, x5 __asm__("x5") = f;
    __asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5) : "memory");
    return x0;
#else
    long result = syscall(number, a, b, c, d, e, f);
    return result < 0 ? -errno : result;
#endif
}

#define GNC_SYSTEM_6(number, a, b, c, d, e, f, ...) \
    gnc_system(number, (long)(a), (long)(b), (long)(c), (long)(d), (long)(e), (long)(f))
#define GNC_SYSTEM(...) GNC_SYSTEM_6(__VA_ARGS__, 0, 0, 0, 0, 0, 0, 0)

/* From and to a connection. They are inlined where requests are read and answered, so that calls that the original made
 * in different places are made in different places here, too. */
static inline long gnc_receive(const gnc_step *s, int fd, void *at, size_t bytes) {
    if (s->call == GNC_READ) return GNC_SYSTEM(SYS_read, fd, at, bytes);
    if (s->call == GNC_RECVFROM) return GNC_SYSTEM(SYS_recvfrom, fd, at, bytes);
    struct iovec part = {at, bytes};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    return GNC_SYSTEM(SYS_recvmsg, fd, &message);
}

static inline long gnc_send(const gnc_step *s, int fd, void *at, size_t bytes) {
    if (s->call == GNC_WRITE) return GNC_SYSTEM(SYS_write, fd, at, bytes);
    if (s->call == GNC_SENDTO) return GNC_SYSTEM(SYS_sendto, fd, at, bytes);
    struct iovec part = {at, bytes};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    if (s->call == GNC_SENDMSG) return GNC_SYSTEM(SYS_sendmsg, fd, &message);
    return GNC_SYSTEM(SYS_writev, fd, &part, 1);
}

#endif
