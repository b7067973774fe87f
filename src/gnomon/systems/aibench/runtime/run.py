#!/usr/bin/env python3
"""Runs a recorded PyTorch workload again: its operators, shapes, order, threads and streams.

    python run.py [--device cuda|cpu] [--steps 30] [--json]

The program lies beside this file; data is made up. Needs torch and nothing else.
"""

import argparse
import gzip
import importlib
import json
import os
import statistics
import sys
import threading
import time
import zlib
from pathlib import Path

import torch

sys.dont_write_bytecode = True  # the folder stays as it was handed over
import measure  # noqa: E402

import data  # noqa: E402

FORMAT = 1
clock = time.perf_counter_ns
#: How far pacing may catch up where this host was slower than the recorded one, in ns.
CATCH_UP = 5_000_000
#: Recorded host time is let pass in portions of about so many tenths of a microsecond.
PORTION = 200


def text(value):
    """A value of the program as Python: `["r", 5]` is the register r5, and so on."""
    if not isinstance(value, list):
        return repr(value)
    if not value or not isinstance(value[0], str):
        return repr(tuple(value))
    tag, *rest = value
    if tag == "L":
        return "[" + "".join(text(part) + ", " for part in rest) + "]"
    if tag in "rx":
        return f"{tag}{rest[0]}"
    if tag in "dlm":
        return f"torch.{rest[0]}"
    plain = {"v": lambda: ("CPU", "DEVICE")[rest[0]], "p": lambda: "PIN", "q": lambda: "stream()",
             "s": lambda: repr(rest[0]), "f": lambda: f"float({rest[0]!r})"}  # fmt: skip
    return plain[tag]()


def targets(outs, blank):
    """Where results go, nested as they come; unused ones go to `blank`."""
    if isinstance(outs, list):
        return "(" + "".join(targets(out, blank) + ", " for out in outs) + ")"
    return blank if outs is None else f"r{outs}"


def registers(value):
    if not isinstance(value, list) or not value:
        return []
    if value[0] == "r":
        return [value[1]]
    return [r for part in value[1:] for r in registers(part)] if value[0] == "L" else []


class Call:
    """One row of the program, and how it is run here."""

    def __init__(self, row, operators):
        self.does, self.args, self.outs, self.metas, self.frees, self.host, self.device = row[:7]
        self.more = row[7] if len(row) > 7 else {}
        self.name = operators[self.does] if self.does >= 0 else None
        self.is_replayed, self.why = bool(self.name), "" if self.name else "cannot be rebuilt"
        self.differs = False
        self.blank = "_"  # each thread has its own

    def registers(self):
        found, waiting = [], [self.outs]
        while waiting:
            out = waiting.pop(0)
            if isinstance(out, list):
                waiting = out + waiting
            elif out is not None:
                found.append(out)
        return found

    def source(self):
        if not self.is_replayed:
            made = [f"r{out} = new({meta})" for out, meta in zip(self.registers(), self.metas)]
            return "\n".join([f"occupy({self.device})", *made])
        by_name = [f"{name}={text(value)}" for name, value in self.more.get("k", {}).items()]
        call = f"o{self.does}({', '.join([text(arg) for arg in self.args] + by_name)})"
        lines = [call] * (self.more.get("n", 1) - 1)
        lines += [f"{targets(self.outs, self.blank)} = {call}" if self.outs is not None else call]
        if self.more.get("y"):
            lines += [f"r{r} = fit(r{r}, {meta})" for r, meta in zip(self.registers(), self.metas)]
        return "\n".join(lines)

    def cleanup(self):
        names = [f"r{register}" for register in self.frees]
        drops = isinstance(self.outs, list) and self.blank in targets(self.outs, self.blank)
        if self.is_replayed and drops:
            names.append(self.blank)
        return "del " + ", ".join(names) if names else ""


class Machine:
    """A device: streams, events, waiting."""

    def __init__(self, device, program, args):
        self.is_cuda = device.startswith("cuda")
        self.device = torch.device("cuda:0" if device == "cuda" else device)
        self.marks = [None] * program["events"]
        if self.is_cuda:
            torch.backends.cuda.matmul.allow_tf32 = bool(program["settings"].get("tf32"))
            torch.cuda.set_device(self.device)
            extra = [torch.cuda.Stream() for _ in range(program["streams"] - 1)]
            self.streams = [torch.cuda.current_stream(), *extra]
            self.per_tenth = data.spin_rate()
        self.scale = args.host_scale

    def synchronize(self):
        if self.is_cuda:
            torch.cuda.synchronize()

    def on(self, stream):
        if self.is_cuda:
            torch.cuda.set_stream(self.streams[stream])

    def mark(self, number):
        if self.is_cuda:
            self.marks[number] = torch.cuda.current_stream().record_event(self.marks[number])

    def hold(self, number):
        if self.is_cuda and self.marks[number] is not None:
            torch.cuda.current_stream().wait_event(self.marks[number])

    def keep(self, value):
        """Does not give a tensor's memory away while this stream may still read it."""
        if isinstance(value, torch.Tensor) and value.is_cuda:
            value.record_stream(torch.cuda.current_stream())

    def join(self):
        """A step is over when all its streams are."""
        for stream in self.streams[1:] if self.is_cuda else []:
            self.streams[0].wait_stream(stream)

    def occupy(self, tenths):
        if self.is_cuda:
            torch.cuda._sleep(int(tenths * self.per_tenth))
        else:
            until = clock() + tenths * 100
            while clock() < until:
                pass

    def pacer(self):
        """Two functions: let host time pass as recorded, and restart the clock."""
        due = clock()

        def pace(tenths):
            nonlocal due
            due += tenths * 100 * self.scale
            now = clock()
            while now < due:
                if due - now > 50_000:
                    time.sleep(0)  # other threads may have something to do
                now = clock()
            due = max(due, now - CATCH_UP)

        def restart():
            nonlocal due
            due = clock()

        def rest(tenths):
            restart()
            pace(tenths)

        # A device works beside its host, whose time can be made up for; a CPU's cannot.
        return (pace if self.is_cuda else rest), restart


class Bench:
    def __init__(self, program, machine, args):
        self.program, self.machine, self.args = program, machine, args
        tensors = data.Data(program, machine.device, args)
        self.names = {
            "torch": torch, "CPU": torch.device("cpu"), "DEVICE": machine.device,
            "PIN": machine.is_cuda, "new": tensors.new, "fit": tensors.fit,
            "occupy": machine.occupy, "on": machine.on, "mark": machine.mark,
            "hold": machine.hold, "keep": machine.keep, "view_as": data.view_as,
            "stream": torch.cuda.current_stream if machine.is_cuda else torch.Stream,
        }  # fmt: skip
        self.names.update((f"x{n}", made) for n, made in enumerate(tensors.made))
        self.tensors = tensors
        self.substitutes = {}
        for module in program["settings"].get("modules", []):
            self.substitutes.update(importlib.import_module(module).ready(self))
        self.operators, self.numbers = [self.find(name) for name in program["operators"]], {}
        self.steps = [
            [[self.item(row) for row in thread] for thread in step] for step in program["steps"]
        ]
        self.calls = [c for step in self.steps for t in step for c in t if isinstance(c, Call)]
        self.locks = [threading.Lock() for _ in range(program["signals"])]
        for lock in self.locks:
            lock.acquire()
        self.broken = None
        for number, lock in enumerate(self.locks):
            self.names[f"post{number}"] = lock.release
            self.names[f"need{number}"] = lambda lock=lock: self.wait(lock)
        for step in self.steps:
            self.rehearse(step)
        self.machine.synchronize()
        threads = max(len(step) for step in self.steps)
        for number in range(threads):
            pace, restart = machine.pacer()
            self.names[f"pace{number}"], self.names[f"restart{number}"] = pace, restart
        self.code = [
            [compile(self.script(thread, number), f"step {at}, thread {number}", "exec")
             for number, thread in enumerate(step)]
            for at, step in enumerate(self.steps)
        ]  # fmt: skip
        self.workers = [Worker(self) for _ in range(threads - 1)]

    def wait(self, lock):
        """Waits for another thread, unless it failed."""
        while not lock.acquire(timeout=1.0):
            if self.broken is not None:
                raise RuntimeError("another thread failed") from self.broken

    def find(self, name):
        """An operator of torch by its name; None where this torch lacks it."""
        if name in self.names:
            return self.names[name]
        found = torch.ops
        try:
            for part in name.split("."):
                found = getattr(found, part)
        except (AttributeError, RuntimeError):
            return None
        return found

    def item(self, row):
        return row if isinstance(row[0], str) else Call(row, self.program["operators"])

    def rehearse(self, step):
        """Runs a step once, call by call: what fails gets a substitute or a placeholder kernel."""
        places, posted, before = [0] * len(step), set(), None
        while any(place < len(step[number]) for number, place in enumerate(places)):
            if before == places:
                data.refuse("the program is damaged: its threads wait for one another")
            before = list(places)
            for number, thread in enumerate(step):
                while places[number] < len(thread):
                    item = thread[places[number]]
                    if isinstance(item, Call):
                        self.attempt(item)
                    elif item[0] == "post":
                        posted.add(item[1])
                    elif item[0] == "need" and item[1] not in posted:
                        break
                    places[number] += 1

    def attempt(self, call):
        for place, bound, *changes in call.more.get("i", []) if call.is_replayed else []:
            self.keep_in_range(call, place, bound, bool(changes))
        ways = [self.operators[call.does]] if call.name else []
        if call.name in self.substitutes:
            substitute = self.substitutes[call.name]
            goes_first = getattr(substitute, "first", False)
            ways = [substitute] if goes_first else [*ways, substitute]
        for way in ways:
            if way is None:
                call.why = "this torch does not have it"
            elif self.works(call, way):
                break
        else:
            call.is_replayed = False
            exec(call.source(), self.names)
        call.differs = call.is_replayed and not self.is_as_recorded(call)
        if call.is_replayed and way is ways[0] and isinstance(way, torch._ops.OpOverload):
            self.shorten(call, way)
        exec(call.cleanup(), self.names)

    def works(self, call, way):
        """Tries one way to make a call; it stays where it works."""
        before, call.does = call.does, self.number(way)
        try:
            exec(call.source(), self.names)
            return True
        except Exception as error:  # whatever it is, there may be another way
            call.why = str(error).strip().split("\n")[0][:120] or type(error).__name__
            call.does = before
            return False

    def number(self, function):
        """The number under which scripts call a function."""
        if id(function) not in self.numbers:
            self.numbers[id(function)] = len(self.numbers)
            self.names[f"o{len(self.numbers) - 1}"] = function
        return self.numbers[id(function)]

    def shorten(self, call, way):
        """Takes a shorter way into torch where it leads to the same: Python pays for each call."""
        kept, why = call.does, call.why
        call.does = self.number(way._op)
        if way._schema.is_mutable or not call.registers():
            return  # it would have to run again to be compared
        looks = self.looks(call)
        base = way.__name__.partition(".")[0]
        for home in (torch._C.TensorBase, torch._C._VariableFunctions, torch._C._nn):
            short = getattr(home, base, None)
            if short and self.works(call, short) and self.looks(call) == looks:
                return
        call.does, call.why = kept, why
        exec(call.source(), self.names)
        call.does = self.number(way._op)

    def is_as_recorded(self, call):
        """Whether the results have the recorded shapes and types."""
        for register, meta in zip(call.registers(), call.metas):
            made, (dtype, shape, *_) = self.names[f"r{register}"], self.program["metas"][meta]
            look = (list(made.shape), str(made.dtype)) if isinstance(made, torch.Tensor) else None
            if look not in (None, (shape, f"torch.{dtype}")):
                return False
        return True

    def looks(self, call):
        made = [self.names[f"r{register}"] for register in call.registers()]
        return [(m.shape, m.dtype, m.stride()) if isinstance(m, torch.Tensor) else m for m in made]

    def keep_in_range(self, call, place, bound, changes):
        """Replaces an index that came out wrong, from data that was made up."""
        holder, at = (call.args, place) if isinstance(place, int) else (
            call.args[place[0]], place[1] + 1)  # fmt: skip
        index = eval(text(holder[at]), self.names)
        if index is None or not index.numel() or index.dtype == torch.bool:
            return
        # Only indexing by lists of tensors counts from the end.
        low = 0 if isinstance(place, int) else -bound
        # One that the program itself changes would leave its range in a later step.
        if changes or int(index.min()) < low or int(index.max()) >= bound:
            number = len(self.tensors.made)
            self.tensors.made.append(self.tensors.indices_like(index, bound))
            self.names[f"x{number}"] = self.tensors.made[number]
            holder[at] = ["x", number]

    def script(self, thread, number):
        """A thread's part of a step as Python."""
        recorded = self.program["settings"]["device"] == self.machine.device.type
        paced = {"on": True, "off": False, "auto": recorded}[self.args.pace]
        lines, stream, owed, holds, made_on = [f"restart{number}()"], 0, 0, [], {}
        for item in thread:
            if not isinstance(item, Call):
                kind, which = item
                if kind in ("post", "need"):
                    lines += [f"pace{number}({owed})"] if owed else []
                    owed = 0
                    lines.append(f"{kind}{which}()")
                    lines += [f"restart{number}()"] if kind == "need" else []
                elif kind == "hold":
                    holds.append(f"hold({which})")  # by the stream of the call that follows
                else:
                    lines.append(f"{kind}({which})")
                continue
            if item.more.get("s", 0) != stream:
                stream = item.more.get("s", 0)
                lines.append(f"on({stream})")
            item.blank = f"_{number}"
            lines += [*holds, item.source()]
            holds = []
            if self.machine.is_cuda and len(self.machine.streams) > 1:
                read = [r for arg in [*item.args, *item.more.get("k", {}).values()]
                        for r in registers(arg)]  # fmt: skip
                lines += [f"keep(r{r})" for r in read if made_on.get(r, 0) != stream]
                made_on.update(dict.fromkeys(item.registers(), stream))
            lines.append(item.cleanup())
            if item.more.get("b"):
                lines.append(f"restart{number}()")
            owed += item.host if paced else 0
            if owed > PORTION:
                lines.append(f"pace{number}({owed})")
                owed = 0
        lines += [f"pace{number}({owed})"] if owed else []
        lines += ["on(0)"] if stream else []
        return "\n".join(line for line in lines if line)

    def step(self, number):
        """One step as recorded, or one round of a mix."""
        for which in self.program["order"][number % len(self.program["order"])]:
            own, *others = self.code[which]
            for worker, code in zip(self.workers, others):
                worker.begin(code)
            exec(own, self.names)
            for worker, _ in zip(self.workers, others):
                worker.finish()
            self.machine.join()


class Worker(threading.Thread):
    def __init__(self, bench):
        super().__init__(daemon=True)
        self.bench, self.machine, self.names = bench, bench.machine, bench.names
        self.code, self.error = None, None
        self.go, self.done = threading.Lock(), threading.Lock()
        self.go.acquire(), self.done.acquire()
        self.start()

    def run(self):
        if self.machine.is_cuda:
            torch.cuda.set_device(self.machine.device)  # threads do not inherit it
        with torch.inference_mode():
            while self.go.acquire():
                try:
                    exec(self.code, self.names)
                except BaseException as error:  # it belongs to the main thread
                    self.error = self.bench.broken = error
                self.done.release()

    def begin(self, code):
        self.code = code
        self.go.release()

    def finish(self):
        self.done.acquire()
        if self.error is not None:
            raise self.error


def report(bench, times, peak):
    calls = [call for call in bench.calls if not call.more.get("g")]
    replayed = [call for call in calls if call.is_replayed]
    placeholders = [call for call in calls if not call.is_replayed]
    lost = bench.program["settings"].get("lost", 0)
    time_all = sum(call.device for call in calls) + lost
    covered = 100 * sum(call.device for call in replayed) / time_all if time_all else None
    named = {}
    for call in placeholders:
        key = f"{call.name or 'unknown kernel'}: {call.why}"
        count, spent = named.get(key, (0, 0))
        named[key] = count + 1, spent + call.device
    return {
        "step_ms": times, "median_ms": statistics.median(times), "ops": len(calls),
        "replayed": len(replayed), "placeholders": len(placeholders),
        "skipped": len(calls) - len(replayed) - len(placeholders),
        "coverage_ops_pct": 100 * len(replayed) / max(len(calls), 1),
        "coverage_time_pct": covered, "peak_bytes": peak, "torch": torch.__version__,
        "device": torch.cuda.get_device_name() if bench.machine.is_cuda else "cpu",
        "differing": sum(call.differs for call in calls),
        "placeholders_by_reason": {k: {"count": n, "ms": t / 1e4} for k, (n, t) in named.items()},
    }  # fmt: skip


def show(result):
    low, high = min(result["step_ms"]), max(result["step_ms"])
    covered = result["coverage_time_pct"]
    print(
        f"step         {result['median_ms']:.3f} ms ({low:.3f} to {high:.3f}, "
        f"{len(result['step_ms'])} steps) on {result['device']}, torch {result['torch']}"
    )
    print(
        f"operators    {result['ops']}: {result['replayed']} replayed, {result['placeholders']} "
        f"placeholder kernels, {result['skipped']} skipped ({result['coverage_ops_pct']:.2f} %)"
    )
    known = f"{covered or 0:.2f} % of the recorded device time is replayed"
    print(f"time         {'not known: no profiler trace was given' if covered is None else known}")
    print(f"memory       {result['peak_bytes'] / 2**20:.0f} MiB at the peak")
    if "collectives" in result:
        how = result["collectives"]
        kinds = ", ".join(f"{count} {kind}" for kind, count in how["kinds"].items())
        print(f"collectives  {kinds or 'none'} ({how['backend']}, {how['world']} ranks)")
    if result["differing"]:
        print(f"results      {result['differing']} calls give other shapes or types than recorded")
    for reason, what in result["placeholders_by_reason"].items():
        print(f"placeholder  {what['count']} x {reason} ({what['ms']:.3f} ms)")


def read_program(path):
    try:
        program = json.loads(gzip.decompress(path.read_bytes()))
        found = program["format"]
    except (OSError, EOFError, ValueError, TypeError, KeyError, zlib.error) as error:
        data.refuse(f"{path.name} cannot be read: {error}")
    if found != FORMAT:
        data.refuse(f"this program has format {found}, not {FORMAT}")
    return program


def call_modules(program, name, *args):
    """Calls a function of every module that has it."""
    for module in program["settings"].get("modules", []):
        getattr(importlib.import_module(module), name, lambda *_: None)(*args)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.error = data.refuse
    parser.add_argument("--device", help="cuda, cuda:1, cpu; cuda where there is one")
    parser.add_argument("--steps", type=int, default=30, help="steps to measure")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    parser.add_argument("--profile", metavar="FILE", help="write a profiler trace of three steps")
    parser.add_argument(
        "--pace",
        choices=("auto", "on", "off"),
        default="auto",
        help="let host time pass as recorded; auto: on the recorded kind of device",
    )
    parser.add_argument(
        "--host-scale", type=float, default=1.0, help="recorded host time times this"
    )
    parser.add_argument(
        "--indices",
        default="uniform",
        metavar="HOW",
        help="uniform, zipf:EXPONENT or histogram:FILE (one weight per line)",
    )
    parser.add_argument("--seed", type=int, default=0, help="of the data that is made up")
    program = read_program(Path(__file__).with_name("program.json.gz"))
    call_modules(program, "options", parser)
    args = parser.parse_args()
    if args.steps < 1:
        parser.error("--steps has to be at least 1")
    if not 0 <= args.seed < 2**63:
        parser.error("--seed has to be a number from 0 up")
    if not 0.0 <= args.host_scale < 1e6:
        parser.error("--host-scale has to be a number from 0 up")
    if args.profile and not Path(args.profile).absolute().parent.is_dir():
        parser.error(f"--profile {args.profile}: there is no such folder")
    call_modules(program, "begin", args)
    device = args.device or ("cuda" if torch.cuda.is_available() else "cpu")
    if device.partition(":")[0] not in ("cpu", "cuda"):
        parser.error(f"--device {device}: cuda, cuda:1 ... or cpu")
    if device.startswith("cuda") and not torch.cuda.is_available():
        parser.error("this torch sees no CUDA device; use --device cpu")
    sys.setswitchinterval(1e-4)
    torch.manual_seed(args.seed)
    with torch.inference_mode():
        bench = Bench(program, Machine(device, program, args), args)
        times, peak = measure.steps_ms(bench, args.steps)
        watts = measure.power(bench) if args.profile and bench.machine.is_cuda else []
        if args.profile:
            measure.profile(bench, args.profile)
    result = report(bench, times, peak)
    if watts:
        result["power_w"] = watts
    call_modules(program, "report", bench, result)
    print(json.dumps(result)) if args.json else show(result)


if __name__ == "__main__":
    try:
        main()
    except BrokenPipeError:
        sys.exit(1)
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        if os.environ.get("GNOMON_TRACEBACK"):
            raise
        print(
            f"run.py: failed, {type(error).__name__}: {error} (GNOMON_TRACEBACK=1 shows where)",
            file=sys.stderr,
        )
        sys.exit(1)
