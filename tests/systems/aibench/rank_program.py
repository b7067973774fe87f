"""Run as a script by `test_ranks`: does each kind of collective leave what it should?

A job of eight ranks was recorded; there are fewer here. Every rank checks its own results.
"""

import argparse
import os
import signal
import sys
import time
import types
from pathlib import Path

import collectives
import ranks
import torch
from ranks import here

WORLD = (0,)


def bench_of(rows):
    machine = types.SimpleNamespace(is_cuda=False)
    names = sorted({name for name, _ in rows})
    steps = [[[[names.index(name), args] for name, args in rows]]]
    return types.SimpleNamespace(program={"operators": names, "steps": steps}, machine=machine)


def row(kind, group=WORLD):
    return f"collective.{kind}", [[], [], list(group), None, [], -1, 0]


def check(what, got, expected):
    if not torch.equal(got, expected):
        sys.exit(f"run.py: {what}: {got.tolist()} is not {expected.tolist()}")


def check_all(ways):
    world, rank = here.world, here.rank
    mine = torch.full((4,), float(rank + 1))
    total = world * (world + 1) / 2

    def run(kind, ins, outs, detail=None, shares=(), waits=0, group=WORLD, tenths=-1):
        handle = ways[f"collective.{kind}"](ins, outs, group, detail, shares, tenths, waits)
        ways["collective.wait"](handle)

    for dtype in (torch.float32, torch.bfloat16, torch.complex64):
        one = mine.clone().to(dtype)
        run("all_reduce", [], [one], "SUM", waits=1)
        check(f"sum of {dtype}", one, torch.full((4,), total).to(dtype))
    for dtype in (torch.int64, torch.int16, torch.bool):
        one = torch.ones(4, dtype=dtype)
        run("all_reduce", [], [one], "SUM")
        check(f"{dtype} stay indices", one, torch.ones(4, dtype=dtype))
    one, two = mine.clone(), mine.clone()
    run("all_reduce", [], [one, two], "MAX")
    check("largest", torch.cat([one, two]), torch.full((8,), float(world)))
    one = torch.ones(2, 3, 4, 4).to(memory_format=torch.channels_last)
    run("all_reduce", [], [one], "SUM")
    check("other formats", one, torch.full((2, 3, 4, 4), float(world)))
    one = mine.clone()
    run("broadcast", [], [one], 7)
    check("of rank 7, or who is in its place", one, torch.full((4,), float(7 % world + 1)))
    one = mine.clone()
    run("reduce", [], [one], [0, "SUM"])
    check(
        "of the root",
        one if rank == 0 else torch.zeros(0),
        torch.full((4 if rank == 0 else 0,), total),
    )

    gathered = torch.arange(1.0, world + 1).repeat_interleave(4)
    out = torch.zeros(32)
    run("all_gather", [mine], [out])
    check("gathered of all that are here, over and over", out, gathered.repeat(8)[:32])
    outs = [torch.zeros(4) for _ in range(world)]
    run("all_gather", [mine], outs)
    check("lists that fit", torch.cat(outs), gathered)
    outs = [torch.zeros(4), torch.zeros(16)]
    run("all_gather", [mine, mine], outs)
    check("several at once", outs[1], gathered.repeat(4)[:16])
    for dtype in (torch.float8_e4m3fn, torch.complex64):
        out = torch.zeros(4 * world).to(dtype)
        run("all_gather", [mine.to(dtype)], [out])
        check(f"bytes of {dtype}", out, gathered.to(dtype))

    out = torch.zeros(2)
    run("reduce_scatter", [torch.ones(16)], [out], "SUM")
    check("a share of the sum", out, torch.full((2,), float(world)))
    out = torch.zeros(2)
    run("reduce_scatter", [torch.ones(2)] * 8, [out], "SUM")
    check("of lists", out, torch.full((2,), float(world)))

    sent = torch.arange(24)
    out = torch.full((24,), -1)
    run("all_to_all", [sent], [out])
    assert sorted(out.tolist()) != [-1] * 24
    check("all there", (out >= 0) & (out < 24), torch.ones(24, dtype=torch.bool))
    for ins, outs in ((7, 24), (24, 7), (0, 5), (5, 0), (0, 0)):
        out = torch.full((outs,), -1)
        run("all_to_all", [torch.arange(ins)], [out])
        check(
            f"{ins} to {outs}",
            (out >= 0) & (out < max(ins, 24)),
            torch.ones(outs, dtype=torch.bool) if ins else (out >= 0),
        )
    shares = [5] + [1] * (world - 1)
    out = torch.zeros(sum(shares))
    run("all_to_all", [torch.full((sum(shares),), float(rank))], [out], shares=shares)
    assert (out == rank).sum() == 5, "most stays at home, as recorded"
    outs = [torch.full((3,), -1) for _ in range(8)]
    run("all_to_all", [torch.arange(3)] * 8, outs)
    check("lists", torch.cat(outs) >= 0, torch.ones(24, dtype=torch.bool))

    outs = [torch.zeros(4) for _ in range(8)]
    run("gather", [mine], outs, 0)
    expected = gathered.view(-1, 4).repeat(8, 1)[:8] if rank == 0 else mine.repeat(8, 1)
    check("gathered", torch.stack(outs), expected)
    run("gather", [mine], [], 5)
    out = torch.zeros(4)
    run("scatter", [mine] * 8 if rank == 0 else [], [out], 0)
    check("scattered", out, torch.ones(4))
    run("barrier", [], [])

    one = torch.ones(4)
    run("all_reduce", [], [one], "SUM", group=PAIRS)
    check(
        "among two", one, torch.full((4,), float(len(collectives.pattern_of(PAIRS, rank, world))))
    )
    handles = [
        ways["collective.all_reduce"]([], [torch.ones(4)], WORLD, "SUM", (), -1, 0)
        for _ in range(3)
    ]
    for _ in handles:
        ways["collective.wait"](None)  # the oldest first
    ways["collective.wait"](None)
    ways["collective.wait"](torch.empty(0))  # what a placeholder kernel left

    clock = Clock()
    collectives.clock = collectives.time = clock
    out = torch.full((8,), -1)
    first = ways["collective.all_gather"]([torch.arange(4)], [out], WORLD, None, (), 2_000_000, 0)
    last = ways["collective.send"]([out], [], WORLD, None, (), 3_000_000, 0)
    alone = ways["collective.recv"]([], [out], PAIRS, None, (), 1_000_000, 1)
    assert alone is None
    assert 0.1 <= clock.s < 0.2, "a group waits for itself alone"
    ways["collective.wait"](first)
    assert 0.2 <= clock.s < 0.5
    ways["collective.wait"](last)
    assert 0.5 <= clock.s < 2.0, "one after the other"
    check("emulated, with what it has", out, torch.arange(4).repeat(2))


class Clock:
    """Time that passes when somebody waits, and a little whenever it is read."""

    def __init__(self):
        self._ns = 0

    def __call__(self):
        self._ns += 1_000
        return self._ns

    def sleep(self, seconds):
        self._ns += round(seconds * 1e9)

    @property
    def s(self):
        return self._ns / 1e9


PAIRS = (1, 4, 1, 2)
KINDS = [kind for kind in collectives.KINDS if kind not in ("send", "recv")]


def main():
    parser = argparse.ArgumentParser()
    for name in ("--device", "--profile", "--die"):
        parser.add_argument(name)
    ranks.options(parser)
    args = parser.parse_args()
    ranks.begin(args)
    rows = [*[row(kind) for kind in KINDS], row("all_reduce", PAIRS)]
    bench = bench_of(rows)
    ways = collectives.ready(bench)
    check_all(ways)
    if args.die and int(args.die) == here.rank:
        Path(args.profile.replace(".rank1", "")).write_text(str(time.time()))
        os.kill(os.getpid(), signal.SIGKILL)
    if args.die:
        for _ in range(10_000):
            ways["collective.all_reduce"]([], [torch.ones(4)], WORLD, "SUM", (), -1, 1)
    result = {"step_ms": [float(here.rank)]}
    collectives.report(bench, result)
    ranks.report(bench, result)
    print(result["collectives"])


if __name__ == "__main__":
    main()
