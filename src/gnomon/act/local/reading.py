"""Counters of a running lab, and what can be computed from two readings of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

# The layout of a cell's page, as in native/cell/stats.hpp.
BUCKETS = 512
_FIRST_OCTAVE, _PER_OCTAVE = 10, 16
_HEAD_WORDS, _BLOCK_HEAD = 16, 4
_BLOCK_WORDS = _BLOCK_HEAD + 2 * BUCKETS


def bucket_edges_ns() -> Floats:
    """Where the buckets of every histogram begin, and the end of the last one."""
    steps = np.arange(BUCKETS + 1)
    edges = 2.0 ** (_FIRST_OCTAVE + steps // _PER_OCTAVE) * (1 + steps % _PER_OCTAVE / _PER_OCTAVE)
    edges[0] = 0.0
    return edges


def percentiles_ms(buckets: Ints, percentiles: Sequence[float]) -> Floats:
    """Percentiles of a histogram, straight lines inside a bucket; NaN where it is empty.

    The last axis holds the buckets; it becomes the axis of the percentiles.

    >>> counts = np.zeros(BUCKETS, dtype=np.int64)
    >>> counts[160] = 10  # 2^20 ns to 2^20 + 2^16 ns
    >>> percentiles_ms(counts, [50.0, 100.0]).round(3).tolist()
    [1.081, 1.114]
    """
    edges_ms = bucket_edges_ns() / 1e6
    flat = buckets.reshape(-1, BUCKETS)
    found = np.full((len(flat), len(percentiles)), np.nan)
    for row, counts in zip(found, flat):
        filled = np.flatnonzero(counts)
        if len(filled):
            reached = np.cumsum(counts[filled])
            wanted = np.asarray(percentiles) / 100 * reached[-1]
            at = np.searchsorted(reached, wanted).clip(max=len(filled) - 1)
            bucket = filled[at]
            within = 1 - (reached[at] - wanted) / counts[bucket]
            row[:] = edges_ms[bucket] + within * (edges_ms[bucket + 1] - edges_ms[bucket])
    return found.reshape(*buckets.shape[:-1], len(percentiles))


class Reading(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """All counters of a lab at one moment. They only grow: `since` gives what came between two.

    Arrays have a row a service, columns for classes where it says so, buckets last. Real servers
    count nothing themselves: stores have what their callers saw, nginx has zeros.

    Attributes:
        now_ns: When, on the monotonic clock.
        elapsed_ns: Since the lab began, or since the other reading.
        replicas: That answer requests now.
        cpu_limit: Cores of one replica now; inf without a limit.
        usage_ns: CPU time.
        periods: CFS periods with a limit in force.
        throttled: Those in which a replica hit its limit.
        throttled_ns: How long replicas stood still.
        arrived: Requests that came, refused ones included.
        refused: Those that found the queue full.
        waiting: That wait for a worker now.
        waiting_ns: Integral of `waiting` over time: over `elapsed_ns` it is the mean queue.
        pool_waits: Calls sent to other services.
        pool_wait_ns: How long they waited for a connection.
        ok: By class: requests that ended well.
        errors: By class: requests that failed.
        exclusive: By class and bucket: latency without the time in which calls were under way.
        total: By class and bucket: latency, calls included.
        pool: By bucket: how long calls waited for a connection.
        busy_ns: CPU time of the whole machine.
        own_ns: CPU time of the lab, its clients and this process.
        steal_ns: What the hypervisor took.
    """

    now_ns: int
    elapsed_ns: int
    replicas: Ints
    cpu_limit: Floats
    usage_ns: Ints
    periods: Ints
    throttled: Ints
    throttled_ns: Ints
    arrived: Ints
    refused: Ints
    waiting: Ints
    waiting_ns: Ints
    pool_waits: Ints
    pool_wait_ns: Ints
    ok: Ints
    errors: Ints
    exclusive: Ints
    total: Ints
    pool: Ints
    busy_ns: int
    own_ns: int
    steal_ns: int

    @property
    def foreign_ns(self) -> int:
        """CPU time of other processes and, by the hypervisor, of other machines (steal).

        The kernel counts both in ticks of 10 ms, so only roughly.
        """
        return max(0, self.busy_ns - self.own_ns) + self.steal_ns

    def since(self, before: Reading) -> Reading:
        """The same with counters of the time between only."""
        now = ("now_ns", "replicas", "cpu_limit", "waiting")
        return Reading(
            **{
                name: getattr(self, name)
                if name in now
                else getattr(self, name) - getattr(before, name)
                for name in self.__struct_fields__
            }
        )


class Counts:
    """Counters of cells, summed over the replicas of a service.

    Args:
        classes: How many the application has.
        stores: How many stores the service calls.
    """

    def __init__(self, classes: int, stores: int = 0) -> None:
        self.head = np.zeros(_HEAD_WORDS, dtype=np.int64)
        self.blocks = np.zeros((1 + stores, classes, _BLOCK_WORDS), dtype=np.int64)
        self.pool = np.zeros(BUCKETS, dtype=np.int64)

    def add_page(self, page: Path, now_ns: int) -> None:
        """Adds what stands in the page of a replica."""
        words = np.fromfile(page, dtype=np.int64)
        if len(words) != _HEAD_WORDS + self.blocks.size + BUCKETS:
            return  # it has not begun yet
        head = words[:_HEAD_WORDS].copy()
        waiting, since_ns = head[3], head[4]
        # The integral stands still since the queue last changed.
        head[5] += waiting * max(0, now_ns - since_ns)
        self.head += head
        self.blocks += words[_HEAD_WORDS:-BUCKETS].reshape(self.blocks.shape)
        self.pool += words[-BUCKETS:]

    def add(self, other: Counts) -> None:
        self.head += other.head
        self.blocks += other.blocks
        self.pool += other.pool

    def forget_present(self) -> None:
        """What a replica that is gone had in its hands does not wait any more."""
        self.head[[2, 3, 6]] = 0


def split_block(block: Ints) -> tuple[Ints, Ints, Ints, Ints]:
    """Ok, errors, exclusive and total buckets of blocks."""
    exclusive = block[..., _BLOCK_HEAD : _BLOCK_HEAD + BUCKETS]
    return block[..., 0], block[..., 1], exclusive, block[..., _BLOCK_HEAD + BUCKETS :]
