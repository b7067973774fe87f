"""Memories and copies of code that requests of a morphed clone use in turn.

Twice the data is two memories: one request works on the first, the next on the second. A line is
then touched again after twice as many others, whatever the service does with it. Two copies of
the code do the same to lines of code. A turn is a memory and a copy; turns form a ring, and the
edge that begins the work on a request goes on to the next. Phases are rings of different lengths:
a thread that sleeps until the next phase puts another one in place, so that requests pay nothing
for it.
"""

from __future__ import annotations

import math

import msgspec

from gnomon.errors import InputError

_PAGE = 4096
_ALIGNED = 16 * _PAGE
_MOST_BYTES = 1 << 32
_TABLE = 64


class Turns(msgspec.Struct, frozen=True):
    """What requests take turns with.

    Attributes:
        copies: Of the code. Paths of copy c have the kind `kind * copies + c`.
        memories: One number for each phase.
        seconds: Of each phase; the last is followed by the first.
        edges: That begin the work on a request.
    """

    copies: int = 1
    memories: tuple[int, ...] = (1,)
    seconds: tuple[float, ...] = (0.0,)
    edges: frozenset[int] = frozenset()

    @property
    def is_plain(self) -> bool:
        return self.copies == 1 and set(self.memories) == {1}

    def counts(self) -> list[int]:
        """Turns of each phase: all memories with all copies, as evenly as can be."""
        return [math.lcm(one, self.copies) for one in self.memories]


def turning_code(run: str) -> str:
    """The drawing of a path where there are turns; `run` is the text where there are none."""
    found = run.replace(_DRAW, _TURN)
    assert found != run, "the code that draws a path has changed"
    return found


_DRAW = """gnc_draw:
    mov gnc_memory@gottpoff(%rip), %rcx
    mov %fs:(%rcx), %rbx
"""
_TURN = """gnc_turn:
    mov gnc_memory@gottpoff(%rip), %rcx
    mov %fs:(%rcx), %rdx
    mov (%rdx), %rdx
    mov %rdx, %fs:(%rcx)
    jmp 1f
gnc_draw:
    mov gnc_memory@gottpoff(%rip), %rcx
    mov %fs:(%rcx), %rdx
1:  mov 8(%rdx), %rbx
    add 16(%rdx), %edi
"""


def turning_memory(turns: Turns, rings: str, memory_bytes: int) -> tuple[str, int]:
    """C code that sets up all memories of a worker, and how many bytes they take.

    Args:
        rings: C code of `link_rings`, which sets up one memory.
    """
    # An odd number of pages: memories do not meet in the same sets of a cache.
    stride = _PAGE * (-(-memory_bytes // _PAGE) | 1)
    counts = turns.counts()
    memories, all_turns = max(turns.memories), sum(counts)
    total = _ALIGNED + stride * memories + _PAGE * (1 + 24 * all_turns // _PAGE)
    if total >= _MOST_BYTES:
        raise InputError(f"{memories} times the data of this clone is {total / 2**30:.0f} GiB",
                         hint="below 4 GiB a worker")  # fmt: skip
    rows = ", ".join(
        f"{{{seconds:.9g}, {sum(counts[:i])}, {count}, {memory}}}"
        for i, (seconds, count, memory) in enumerate(
            zip(turns.seconds, counts, turns.memories, strict=True)
        )
    )
    text = _MEMORIES
    for name, value in (("PHASES", rows), ("STRIDE", stride), ("MEMORIES", memories),
                        ("TURNS", all_turns), ("COPIES", turns.copies),
                        ("TABLE", _TABLE)):  # fmt: skip
        text = text.replace(f"@{name}@", str(value))
    return rings + text + (_PHASES if len(counts) > 1 else _ONE_PHASE), total


_MEMORIES = """
#include <stdatomic.h>

/* What requests take turns with: a memory, and a copy of the code. */
typedef struct turn {
    _Atomic(struct turn *) next;
    unsigned char *memory;
    uint64_t copy;
} turn;

typedef struct worker {
    struct worker *before;
    turn turns[@TURNS@]; /* of all phases */
} worker;

_Thread_local turn *gnc_memory;

static const struct {
    double seconds;
    uint32_t first, turns, memories;
} phases[] = {@PHASES@};
static void begin_phases(worker *w);

/* From all turns the way leads to those of a phase. */
static void enter(worker *w, size_t phase) {
    turn *mine = w->turns + phases[phase].first;
    for (uint32_t i = 0; i < @TURNS@; ++i) atomic_store_explicit(&w->turns[i].next, mine, memory_order_relaxed);
    for (uint32_t i = 0; i + 1 < phases[phase].turns; ++i)
        atomic_store_explicit(&mine[i].next, mine + i + 1, memory_order_relaxed);
}

void gnc_edges_begin(void *memory) {
    unsigned char *base = (unsigned char *)(((uintptr_t)memory + 0xffff) & ~(uintptr_t)0xffff);
    worker *w = (worker *)(base + @MEMORIES@ * (size_t)@STRIDE@);
    for (uint64_t m = 0; m < @MEMORIES@; ++m) {
        unsigned char *one = base + m * @STRIDE@;
        ((uint64_t *)(one + 128))[1] = 0x9e3779b97f4a7c15u * (2 * m + 1);
        link_rings(one);
    }
    for (size_t p = 0; p < sizeof phases / sizeof *phases; ++p)
        for (uint32_t i = 0; i < phases[p].turns; ++i) {
            turn *mine = &w->turns[phases[p].first + i];
            mine->memory = base + i % phases[p].memories * (size_t)@STRIDE@ + 128;
            mine->copy = i % @COPIES@ * @TABLE@;
        }
    begin_phases(w);
    gnc_memory = w->turns;
}
"""
_ONE_PHASE = """
static void begin_phases(worker *w) { enter(w, 0); }
"""
_PHASES = """
#include <pthread.h>
#include <signal.h>
#include <time.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static worker *workers;
static size_t phase;

/* From the start of the first worker, by the clock: what requests take is not added up. */
static void *keep_time(void *unused) {
    struct timespec due;
    clock_gettime(CLOCK_MONOTONIC, &due);
    for (;;) {
        double end = (double)due.tv_nsec / 1e9 + phases[phase].seconds;
        due.tv_sec += (time_t)end;
        due.tv_nsec = (long)((end - (double)(time_t)end) * 1e9);
        while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &due, NULL)) {}
        pthread_mutex_lock(&lock);
        phase = (phase + 1) % (sizeof phases / sizeof *phases);
        for (worker *w = workers; w; w = w->before) enter(w, phase);
        pthread_mutex_unlock(&lock);
    }
    return unused;
}

static void begin_phases(worker *w) {
    pthread_mutex_lock(&lock);
    if (!workers) {
        pthread_t thread;
        sigset_t all, old;
        sigfillset(&all); /* signals are for the workers */
        pthread_sigmask(SIG_SETMASK, &all, &old);
        pthread_create(&thread, NULL, keep_time, NULL);
        pthread_sigmask(SIG_SETMASK, &old, NULL);
    }
    w->before = workers;
    workers = w;
    enter(w, phase);
    pthread_mutex_unlock(&lock);
}
"""
