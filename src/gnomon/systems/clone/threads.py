"""What each thread of a service did, and requests that one reads and another answers."""

from __future__ import annotations

from collections import defaultdict

import msgspec

from gnomon.systems.clone.recording import Ints, Key

#: Numbers of x86-64, and what we call them.
CALLS = {
    0: "read", 1: "write", 3: "close", 5: "fstat", 7: "poll", 8: "lseek", 15: "rt_sigreturn",
    16: "ioctl", 17: "pread64", 18: "pwrite64", 20: "writev", 23: "select", 28: "madvise",
    35: "nanosleep", 39: "getpid", 40: "sendfile", 41: "socket", 42: "connect", 43: "accept",
    44: "sendto", 45: "recvfrom", 46: "sendmsg", 47: "recvmsg", 48: "shutdown",
    51: "getsockname", 52: "getpeername", 54: "setsockopt", 72: "fcntl",
    74: "fsync", 75: "fdatasync", 202: "futex", 230: "clock_nanosleep", 232: "epoll_wait",
    233: "epoll_ctl", 257: "openat", 262: "newfstatat", 270: "pselect6", 271: "ppoll",
    281: "epoll_pwait", 288: "accept4",
}  # fmt: skip
TARGETS = ("", "connection", "file", "log", "event")
WAITS = frozenset(("epoll_wait", "epoll_pwait", "poll", "ppoll", "select", "pselect6"))
READS = frozenset(("read", "recvfrom", "recvmsg"))
SLEEPS = frozenset(("nanosleep", "clock_nanosleep"))
SENDS = frozenset(("write", "writev", "sendto", "sendmsg", "sendfile"))
#: What a call returns that a signal interrupts, to the program and within the kernel.
_INTERRUPTED = (-4, -512, -513, -514, -516)
#: How a handler of a signal ends.
_RETURNS = "rt_sigreturn"
_LOCK = "futex"
_BLOCKS = WAITS | SLEEPS


class Call(msgspec.Struct):
    """A system call. With `begins` a turn begins, as with a wait; without a name that is all."""

    call: str
    target: str
    descriptor: int
    asked: int
    result: int
    begins: bool = False


_NOTHING = Call("", "", 0, 0, 0)


def is_request(one: Call) -> bool:
    """Or a part of one."""
    return one.target == "connection" and one.call in READS and one.result > 0


def in_order(rows: Ints) -> list[Call]:
    """Calls of all threads of a process, as they ended."""
    found = []
    for _, packed, first, _, third, result in rows.tolist():
        key = Key.of(packed)
        target = TARGETS[key.target] if key.target < len(TARGETS) else ""
        name = CALLS.get(key.number, f"call{key.number}")
        found.append(Call(name, target, first, third, result))
    return found


def threads_of(rows: Ints) -> list[list[Call]]:
    """Of one process. What a thread does for a request that another has read is that one's.

    A thread that reads requests may hand them on to others, which answer. What such a thread did
    from where it woke up until it sleeps again follows the turn of the thread that has read.
    Locks are left out: whether they have to wait is a matter of time.
    """
    found: dict[int, list[Call | list[Call]]] = defaultdict(list)
    reader: dict[int, int] = {}  # of the request of a connection that is not answered yet
    # Of each thread: what it did since it woke up or began with a request, what of that is another
    # thread's, and what others did for it in its present turn.
    since: dict[int, list[Call]] = defaultdict(lambda: [_NOTHING])
    given: dict[int, list[Call]] = {}
    answers: dict[int, list[list[Call]]] = defaultdict(list)
    for thread, call in zip(rows[:, 0].tolist(), in_order(rows), strict=True):
        is_connection = call.target == "connection"
        # A signal comes when it comes. The call is made again, and counts then.
        if call.call == _RETURNS or (is_connection and call.result in _INTERRUPTED):
            continue
        if call.call == _LOCK:
            if given.get(thread) is since[thread]:
                del since[thread]
            continue
        if call.call in WAITS or (is_connection and call.call in READS):
            found[thread] += answers.pop(thread, [])
        found[thread].append(call)
        if call.call in _BLOCKS:
            since[thread] = [call]
        elif is_request(call):
            since[thread] = [_NOTHING]
            reader[call.descriptor] = thread
        else:
            since[thread].append(call)
        if is_connection and call.call in SENDS:
            of = reader.pop(call.descriptor, thread)
            if of != thread and given.get(thread) is not since[thread]:
                given[thread] = since[thread]
                answers[of].append(since[thread])
    for thread, left in answers.items():
        found[thread] += left
    return [_flat(calls) for calls in found.values()]


def _flat(calls: list[Call | list[Call]]) -> list[Call]:
    found: list[Call] = []
    for one in calls:
        if isinstance(one, Call):
            found.append(one)
        else:
            found += [msgspec.structs.replace(one[0], begins=True), *one[1:]]
    return found
