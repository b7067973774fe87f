"""Collectives: what ranks send one another, for as many ranks as there are here.

The bytes that a rank sends are those that were recorded, however many ranks run. All ranks run
the same program, so what one sends and what another expects have to agree by construction:
messages to all are shared out by the distance from rank to rank, and results that have another
size for another number of ranks go to a buffer of their own first.

A group of the recording is a pattern (so many ranks, so far apart); every rank here has a group of
that pattern with those that exist. A rank alone in its group copies what it would send to where it
would receive. A message from one rank to one other has no partner here, because the other ran
another program: it takes the time it took.
"""

import contextlib
import threading
import time
from functools import partial

import torch
from ranks import here

clock = time.perf_counter_ns
#: Types that both libraries move and reduce; others go as bytes.
NATIVE = {torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int8, torch.uint8,
          torch.int32, torch.int64, torch.bool}  # fmt: skip
KINDS = ("all_reduce", "broadcast", "reduce", "all_gather", "reduce_scatter", "all_to_all",
         "gather", "scatter", "barrier", "send", "recv")  # fmt: skip
IN_PLACE = ("all_reduce", "broadcast", "reduce")
#: Parts of errors that come from a rank that is gone, not from a call that cannot be made.
GONE = ("closed", "reset", "timed out", "abort", "peer", "remote", "broken pipe")


# -- who and how much --------------------------------------------------------------------------


def pattern_of(group, rank, world):
    """The ranks of a recorded group here, in which a rank is; alone where it is in none.

    A group is a number, and nothing for everyone; or first, stride and count for one that repeats
    over the world; or several of those for one that does not.
    """
    runs = [group[at : at + 3] for at in range(1, len(group), 3)]
    if not runs:
        return tuple(range(world))
    if len(runs) > 1:
        spans = [range(first, first + step * count, step) for first, step, count in runs]
        inside = tuple(one for one in range(world) if any(one in span for span in spans))
        return inside if rank in inside else (rank,)
    first, step, count = runs[0]
    block = step * count
    begin = (rank - first // step * step) // block * block + first // step * step
    column = begin + (rank - begin) % step
    return tuple(one for one in range(column, column + block, step) if 0 <= one < world)


def shares_of(total, recorded, world):
    """How much goes to the rank one further on, two further on...; as recorded where it fits."""
    if len(recorded) == world and sum(recorded) == total:
        return list(recorded)
    least, more = divmod(total, world)
    return [least + (distance < more) for distance in range(world)]


def splits_of(shares, rank):
    """What a rank sends to each, and gets from each: what one sends, the other expects."""
    world = len(shares)
    sends = [shares[(other - rank) % world] for other in range(world)]
    gets = [shares[(rank - other) % world] for other in range(world)]
    return sends, gets


def pour(source, out):
    """Fills a flat tensor with another, over and over; whole numbers stay what they may be."""
    size = source.numel()
    if not size or not out.numel():
        return
    whole = out.numel() // size * size
    if whole:
        out[:whole].view(-1, size).copy_(source)
    if whole < out.numel():
        out[whole:].copy_(source[: out.numel() - whole])


def flat(tensor):
    """A tensor's elements as they lie in memory, without a copy where they lie side by side."""
    if tensor.is_contiguous():
        return tensor.view(-1)
    reach = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride())) + 1
    if reach == tensor.numel():
        return tensor.as_strided((reach,), (1,))
    return tensor.reshape(-1)


def packed(parts, size):
    """Flat tensors one behind the other, and more of the same up to some size."""
    whole, at = parts[0].new_empty(size), 0
    for part in parts:
        end = min(at + part.numel(), size)
        whole[at:end].copy_(part[: end - at])
        at = end
    if at:
        pour(whole[:at], whole[at:])
    else:
        whole.zero_()
    return whole


def movable(tensor):
    return tensor if tensor.dtype in NATIVE else tensor.view(torch.uint8)


def reducible(tensor):
    return movable(torch.view_as_real(tensor).view(-1) if tensor.is_complex() else tensor)


# -- what is under way -------------------------------------------------------------------------


class Handle:
    def __init__(self, owner, works, after=()):
        self.owner, self.works, self.after, self.lock = owner, works, after, threading.Lock()

    def wait(self):
        with self.lock:
            works, self.works = self.works, ()
            for work in works:
                work.wait()
            for source, out in self.after:
                pour(source, out)
            self.after = ()
        self.owner.pending.pop(self, None)


class Until:
    def __init__(self, at):
        self.at = at

    def wait(self):
        while (left := self.at - clock()) > 0:
            if left > 200_000:
                time.sleep((left - 100_000) / 1e9)


# -- doing it ----------------------------------------------------------------------------------


class Collectives:
    def __init__(self, bench):
        self.bench, self.machine = bench, bench.machine
        self.groups, self.costs = {}, {}
        #: Those that nothing has waited for, the oldest first.
        self.pending = {}
        self.busy_until = {}
        if here.backend != "none":
            self.make_groups()

    def rows(self):
        operators = self.bench.program["operators"]
        for step in self.bench.program["steps"]:
            for row in (row for thread in step for row in thread if not isinstance(row[0], str)):
                name = operators[row[0]] if row[0] >= 0 else ""
                if name.startswith("collective.") and name != "collective.wait":
                    yield name.split(".")[1], row[1]

    def make_groups(self):
        """Every rank makes every group, in the same order, as torch wants it."""
        for _, args in self.rows():
            group = tuple(args[2])
            if group in self.groups:
                continue
            self.groups[group] = None
            made = set()
            for rank in range(here.world):
                ranks = pattern_of(group, rank, here.world)
                if ranks in made or (len(ranks) < 2 and here.world > 1):
                    continue
                made.add(ranks)
                new = self.new_group(ranks)
                if here.rank in ranks:
                    self.groups[group] = new

    def new_group(self, ranks):
        try:
            return torch.distributed.new_group(list(ranks), timeout=here.patience)
        except RuntimeError as error:
            here.lost(error)

    def run(self, kind, ins, outs, group, detail, shares, tenths, waits):
        """One collective; what it returns is waited for later."""
        if tenths >= 0 or kind in ("send", "recv"):
            handle = self.emulate(kind, ins, outs, group, max(tenths, 0))
        else:
            handle = self.start(kind, ins, outs, self.groups.get(group), detail, shares)
        if waits or self.machine.is_cuda:
            # On a device this makes the stream wait, not the host, as a kernel would.
            self.finish(handle)
            return None
        self.pending[handle] = True
        return handle

    def wait(self, handle):
        """Waits for one; without one, for the oldest that was left by the step before."""
        if handle is None and self.pending:
            handle = next(iter(self.pending))
        if isinstance(handle, Handle):
            self.finish(handle)

    def finish(self, handle):
        try:
            handle.wait()
        except RuntimeError as error:
            here.lost(error)

    def start(self, kind, ins, outs, group, detail, shares):
        ins, outs = [flat(one) for one in ins], [flat(one) for one in outs]
        if group is None or (not ins and not outs and kind != "barrier"):
            self.copy(kind, ins, outs)
            return Handle(self, ())
        if here.backend == "gloo" and self.machine.is_cuda:
            return self.staged(kind, ins, outs, group, detail, shares)
        return self.issue(kind, ins, outs, group, detail, shares)

    def issue(self, kind, ins, outs, group, detail, shares):
        try:
            works, after = getattr(self, kind)(ins, outs, group, detail, shares)
        except RuntimeError as error:
            if any(part in str(error).lower() for part in GONE):
                here.lost(error)
            raise
        return Handle(self, works, after)

    def staged(self, kind, ins, outs, group, detail, shares):
        """Ranks that share a device talk through the host's memory."""
        host = [one.cpu() for one in outs]
        self.finish(self.issue(kind, [one.cpu() for one in ins], host, group, detail, shares))
        return Handle(self, (), list(zip(host, outs)))

    def copy(self, kind, ins, outs):
        """What one rank alone has to do: put what it sends where it receives."""
        if kind in IN_PLACE or not ins:
            return
        for number, out in enumerate(outs):
            pour(ins[number % len(ins)], out)

    def emulate(self, kind, ins, outs, group, tenths):
        """Takes the time of a collective; what is received is made of what is sent."""
        key = (kind, tenths, *(one.numel() for one in (*ins, *outs)))
        if self.machine.is_cuda and key not in self.costs:
            self.costs[key] = self.cost_of(kind, ins, outs)
        began = clock()
        self.copy(kind, [flat(one) for one in ins], [flat(one) for one in outs])
        if self.machine.is_cuda:
            self.machine.occupy(max(tenths - self.costs[key], 0))
            return Handle(self, ())
        until = max(self.busy_until.get(group, 0), began) + tenths * 100
        self.busy_until[group] = until
        return Handle(self, (Until(until),))

    def cost_of(self, kind, ins, outs):
        """Tenths of a microsecond that copying takes the device."""
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        ins, outs = [flat(one) for one in ins], [flat(one) for one in outs]
        self.copy(kind, ins, outs)
        begin.record()
        self.copy(kind, ins, outs)
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) * 1e4

    # -- by kind: what was started, and what to copy when it is over ---------------------------

    def reducing(self, options, tensor, how):
        """The operation: whole numbers are not added up, or they would be no indices any more."""
        operations = torch.distributed.ReduceOp
        options.reduceOp = getattr(operations, how or "SUM", operations.SUM)
        if not (tensor.is_complex() or (tensor.is_floating_point() and tensor.dtype in NATIVE)):
            options.reduceOp = operations.MAX
        elif how == "AVG" and here.backend == "gloo":
            options.reduceOp = operations.SUM
        return options

    def rooted(self, options, root, group):
        options.rootRank = (root or 0) % group.size()
        return options

    def all_reduce(self, ins, outs, group, how, shares):
        options = torch.distributed.AllreduceCoalescedOptions()
        if len(outs) > 1 and len({one.dtype for one in outs}) == 1:
            self.reducing(options, outs[0], how)
            return [group.allreduce_coalesced([reducible(one) for one in outs], options)], ()
        works = []
        for one in outs:
            options = self.reducing(torch.distributed.AllreduceOptions(), one, how)
            works.append(group.allreduce([reducible(one)], options))
        return works, ()

    def broadcast(self, ins, outs, group, root, shares):
        options = self.rooted(torch.distributed.BroadcastOptions(), root, group)
        return [group.broadcast([movable(one)], options) for one in outs], ()

    def reduce(self, ins, outs, group, detail, shares):
        root, how = detail or (0, "SUM")
        works = []
        for one in outs:
            options = self.reducing(torch.distributed.ReduceOptions(), one, how)
            works.append(group.reduce([reducible(one)], self.rooted(options, root, group)))
        return works, ()

    def all_gather(self, ins, outs, group, detail, shares):
        works, after = [], []
        each = max(len(outs) // len(ins), 1)
        for number, one in enumerate(ins):
            mine = outs[number * each : (number + 1) * each]
            if len(mine) == group.size() and all(out.numel() == one.numel() for out in mine):
                works.append(group.allgather([[movable(out) for out in mine]], [movable(one)]))
                continue
            whole = one.numel() * group.size()
            fits = len(mine) == 1 and mine[0].numel() == whole
            to = mine[0] if fits else one.new_empty(whole)
            works.append(group._allgather_base(movable(to), movable(one)))
            after += [] if fits else [(to, out) for out in mine]
        return works, after

    def reduce_scatter(self, ins, outs, group, how, shares):
        works, after = [], []
        each = max(len(ins) // len(outs), 1)
        for number, out in enumerate(outs):
            mine = ins[number * each : (number + 1) * each]
            total = sum(one.numel() for one in mine)
            share = -(-total // group.size())
            size = share * group.size()
            whole = mine[0] if len(mine) == 1 and total == size else packed(mine, size)
            to = out if out.numel() == share else out.new_empty(share)
            options = self.reducing(torch.distributed.ReduceScatterOptions(), to, how)
            works.append(group._reduce_scatter_base(reducible(to), reducible(whole), options))
            after += [] if to is out else [(to, out)]
        return works, after

    def all_to_all(self, ins, outs, group, detail, shares):
        sent, got = (sum(one.numel() for one in side) for side in (ins, outs))
        # A link is as busy as its busier direction.
        total, world = max(sent, got), group.size()
        like = (ins or outs)[0]
        source = ins[0] if len(ins) == 1 and sent == total else packed(ins or outs, total)
        fits = len(outs) == 1 and got == total
        to = outs[0] if fits else like.new_empty(total)
        sends, gets = splits_of(shares_of(total, shares, world), group.rank())
        width = 1 if like.dtype in NATIVE else like.element_size()
        work = group.alltoall_base(movable(to), movable(source), [one * width for one in gets],
                                   [one * width for one in sends])  # fmt: skip
        after, at = [], 0
        for out in () if fits else outs:
            after.append((to[at : at + out.numel()], out))
            at += out.numel()
        return [work], after

    def gather(self, ins, outs, group, root, shares):
        options = self.rooted(torch.distributed.GatherOptions(), root, group)
        one, to = ins[0], []
        if group.rank() == options.rootRank:
            to = [torch.empty_like(one) for _ in range(group.size())]
        parts = [[movable(part) for part in to]] if to else []
        works = [group.gather(parts, [movable(one)], options)]
        sources = to or [one]
        return works, [(sources[at % len(sources)], out) for at, out in enumerate(outs)]

    def scatter(self, ins, outs, group, root, shares):
        options = self.rooted(torch.distributed.ScatterOptions(), root, group)
        out, parts = outs[0], []
        if group.rank() == options.rootRank:
            parts = [torch.zeros_like(out) for _ in range(group.size())]
            for part, one in zip(parts, ins):
                pour(one, part)
        given = [[movable(part) for part in parts]] if parts else []
        return [group.scatter([movable(out)], given, options)], ()

    def barrier(self, ins, outs, group, detail, shares):
        return [group.barrier()], ()

    def close(self):
        with contextlib.suppress(RuntimeError):
            for handle in list(self.pending):
                handle.wait()


def ready(bench):
    collectives = bench.collectives = Collectives(bench)
    ways = {f"collective.{kind}": partial(collectives.run, kind) for kind in KINDS}
    ways["collective.wait"] = partial(collectives.wait)
    for way in ways.values():
        way.first = True
    return ways


def report(bench, result):
    """Adds how many collectives of each kind there are per round, and how they were done."""
    summary = result.setdefault("collectives", {})
    kinds, how = {}, {"real": 0, "local": 0, "emulated": 0}
    for kind, args in bench.collectives.rows():
        kinds[kind] = kinds.get(kind, 0) + 1
        is_real = bench.collectives.groups.get(tuple(args[2])) is not None
        if args[5] >= 0 or kind in ("send", "recv"):
            how["emulated"] += 1
        else:
            how["real" if is_real else "local"] += 1
    summary.update(kinds=kinds, **how)
    bench.collectives.close()
