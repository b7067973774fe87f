/* One step of a script: the clock, the edge, the system call itself.
 *
 * Calls are made raw, so that the kernel sees the one that the original made and not what a C library makes of it. */
#define _GNU_SOURCE /* AT_EMPTY_PATH */
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "runtime.h"
#include "system.h"

enum { LOG_LIMIT = 64 << 20 };

/* A function for each call, in place of one with all: what is set up and saved for one call is not for the others. */
#define ARGUMENTS                                                                                              \
    __attribute__((unused)) gnc_worker *w, __attribute__((unused)) const gnc_step *s, __attribute__((unused)) int fd, \
        __attribute__((unused)) void *at, __attribute__((unused)) size_t bytes
#define CALL(name, result) \
    static long name(ARGUMENTS) { return result; }

/* Not inlined: steps without a clock would save registers for it. */
__attribute__((noinline)) void gnc_clocks(gnc_worker *w, uint32_t count) {
    struct timespec now;
    while (count--) {
        clock_gettime(CLOCK_MONOTONIC, &now);
        w->now_ns = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
    }
}

uint32_t gnc_steps(const gnc_script *script) {
    uint32_t count = 0;
    for (uint32_t phase = 0; phase < script->phases; phase++) count += script->counts[phase];
    return count;
}

CALL(do_nothing, 0)
CALL(do_receive, gnc_receive(s, fd, at, bytes))
CALL(do_send, gnc_send(s, fd, at, bytes))
CALL(do_sendfile, GNC_SYSTEM(SYS_sendfile, fd, w->fd[GNC_FILE], &(off_t){0}, bytes))
CALL(do_lseek, GNC_SYSTEM(SYS_lseek, fd, 0L, SEEK_SET))
CALL(do_fsync, GNC_SYSTEM(SYS_fsync, fd))
CALL(do_fdatasync, GNC_SYSTEM(SYS_fdatasync, fd))
CALL(do_setsockopt, GNC_SYSTEM(SYS_setsockopt, fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int)))
CALL(do_fcntl, GNC_SYSTEM(SYS_fcntl, fd, F_GETFL, 0))
CALL(do_ioctl, GNC_SYSTEM(SYS_ioctl, fd, FIONREAD, &(int){0}))
CALL(do_madvise, GNC_SYSTEM(SYS_madvise, w->memory, bytes, MADV_NORMAL)) /* changes nothing */
CALL(do_getpid, GNC_SYSTEM(SYS_getpid))
CALL(do_shutdown, GNC_SYSTEM(SYS_shutdown, fd, SHUT_WR))
CALL(do_eventfd_read, GNC_SYSTEM(SYS_read, w->fd[GNC_EVENT], &(uint64_t){0}, sizeof(uint64_t)))

static long do_read(ARGUMENTS) {
    long got = GNC_SYSTEM(SYS_read, fd, at, bytes);
    if (got == 0 && !w->depth) GNC_SYSTEM(SYS_lseek, fd, 0L, SEEK_SET); /* else empty for ever */
    return got;
}

/* What is appended must not fill the disk. */
static int log_for(gnc_worker *w, size_t bytes) {
    if ((w->logged += (uint32_t)bytes) >= LOG_LIMIT) {
        w->logged = 0;
        GNC_SYSTEM(SYS_ftruncate, w->fd[GNC_LOG], 0L);
    }
    return w->fd[GNC_LOG];
}

static int goes_to_log(const gnc_worker *w, const gnc_step *s) {
    return s->target == GNC_LOG || (s->target == GNC_FILE && !w->depth);
}

static long do_write(ARGUMENTS) {
    if (goes_to_log(w, s)) fd = log_for(w, bytes);
    return GNC_SYSTEM(SYS_write, fd, at, bytes);
}

static long do_writev(ARGUMENTS) {
    struct iovec part = {at, bytes};
    if (goes_to_log(w, s)) fd = log_for(w, bytes);
    return GNC_SYSTEM(SYS_writev, fd, &part, 1);
}

static long do_open(ARGUMENTS) {
    fd = (int)GNC_SYSTEM(SYS_openat, AT_FDCWD, gnc_file_path, O_RDWR | O_CLOEXEC, 0);
    if (fd < 0) return fd;
    if (w->depth == GNC_OPEN_FILES) GNC_SYSTEM(SYS_close, w->opened[--w->depth]); /* a script that never closes */
    return w->opened[w->depth++] = w->fd[GNC_FILE] = fd;
}

static long do_close(ARGUMENTS) {
    if (s->target == GNC_CONNECTION) return GNC_SYSTEM(SYS_close, fd);
    if (!w->depth) return GNC_SYSTEM(SYS_close, -1); /* nothing open: the call alone */
    fd = w->opened[--w->depth];
    w->fd[GNC_FILE] = w->depth ? w->opened[w->depth - 1] : w->standing_file;
    return GNC_SYSTEM(SYS_close, fd);
}

static long do_stat(ARGUMENTS) {
    struct stat status; /* not set to zero: the kernel fills it */
    return GNC_SYSTEM(SYS_newfstatat, AT_FDCWD, gnc_file_path, &status, 0);
}

static long do_fstat(ARGUMENTS) {
    struct stat status;
    return GNC_SYSTEM(SYS_newfstatat, fd, "", &status, AT_EMPTY_PATH);
}

/* Where in the file: all of it in turn, as offsets are not in the model. */
static long file_offset(gnc_worker *w, size_t bytes) {
    uint32_t at = w->file_at;
    w->file_at = at + 2 * bytes > gnc_the_model.file_bytes ? 0 : at + (uint32_t)bytes;
    return at;
}
CALL(do_pread, GNC_SYSTEM(SYS_pread64, fd, at, bytes, file_offset(w, bytes)))
CALL(do_pwrite, GNC_SYSTEM(SYS_pwrite64, fd, at, bytes, file_offset(w, bytes)))

static long do_names(ARGUMENTS) {
    struct sockaddr_storage name;
    socklen_t room = sizeof name;
    return GNC_SYSTEM(s->call == GNC_GETSOCKNAME ? SYS_getsockname : SYS_getpeername, fd, &name, &room);
}

static long do_epoll_ctl(ARGUMENTS) {
    struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};
    return GNC_SYSTEM(SYS_epoll_ctl, w->epoll, EPOLL_CTL_MOD, fd, &event);
}

static long do_eventfd_write(ARGUMENTS) {
    uint64_t one = 1;
    w->next_worker = w->next_worker + 1 < gnc_worker_count ? w->next_worker + 1 : 0;
    fd = gnc_workers ? gnc_workers[w->next_worker]->fd[GNC_EVENT] : -1;
    return GNC_SYSTEM(SYS_write, fd, &one, sizeof one);
}

/* GNC_WAIT and GNC_ACCEPT are made where their result is used; GNC_OTHER is not made. */
static long (*const calls[])(ARGUMENTS) = {
    [GNC_WAIT] = do_nothing,           [GNC_ACCEPT] = do_nothing,
    [GNC_READ] = do_read,              [GNC_RECVFROM] = do_receive,
    [GNC_RECVMSG] = do_receive,        [GNC_WRITE] = do_write,
    [GNC_WRITEV] = do_writev,          [GNC_SENDTO] = do_send,
    [GNC_SENDMSG] = do_send,        [GNC_SENDFILE] = do_sendfile,
    [GNC_OPEN] = do_open,              [GNC_CLOSE] = do_close,
    [GNC_STAT] = do_stat,              [GNC_FSTAT] = do_fstat,
    [GNC_LSEEK] = do_lseek,            [GNC_PREAD] = do_pread,
    [GNC_PWRITE] = do_pwrite,          [GNC_FSYNC] = do_fsync,
    [GNC_FDATASYNC] = do_fdatasync,    [GNC_EPOLL_CTL] = do_epoll_ctl,
    [GNC_SETSOCKOPT] = do_setsockopt,  [GNC_GETSOCKNAME] = do_names,
    [GNC_GETPEERNAME] = do_names,      [GNC_FCNTL] = do_fcntl,
    [GNC_IOCTL] = do_ioctl,            [GNC_MADVISE] = do_madvise,
    [GNC_GETPID] = do_getpid,          [GNC_SHUTDOWN] = do_shutdown,
    [GNC_EVENTFD_WRITE] = do_eventfd_write, [GNC_EVENTFD_READ] = do_eventfd_read,
    [GNC_OTHER] = do_nothing,
};

long gnc_do(gnc_worker *w, const gnc_step *s, void *at, size_t bytes) {
    gnc_enter(w, s->key, s->clocks);
    if (s->target == GNC_CONNECTION) w->connection = (uint32_t)w->fd[GNC_CONNECTION];
    return calls[s->call](w, s, w->fd[s->target], at, bytes);
}
