"""Several processes of one benchmark: started here, or as torchrun started them.

The process that is given `--ranks N` runs nothing itself: it starts N others, watches them, and
ends them all when one fails. They meet through a file and talk over the loopback interface only.
"""

import atexit
import contextlib
import ctypes
import datetime
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import torch

#: How a rank ends that lost the others: the reason is theirs.
LOST = 75
#: Time to end by themselves for ranks that lost one, in seconds.
GRACE = 1.0
_MEET = "BENCH_RANKS_MEET"


class Ranks:
    """Which of how many this process is, and how they talk."""

    def __init__(self, rank=0, world=1, local=0, local_world=1, backend="none"):
        self.rank, self.world, self.local, self.local_world = rank, world, local, local_world
        self.backend, self.patience = backend, datetime.timedelta(seconds=300)

    def lost(self, error):
        """Ends this process at once: threads may wait for one another, and so for ever."""
        why = re.sub(r"^\[\S+\] ", "", str(error).strip().split("\n")[0]).split(". ")[0][:160]
        log(self.rank, f"lost another rank: {why or type(error).__name__}")
        os._exit(LOST)


here = Ranks()


def log(rank, line):
    print(f"run.py: rank {rank}: {line}", file=sys.stderr, flush=True)


def options(parser):
    parser.add_argument(
        "--ranks",
        type=int,
        default=1,
        metavar="N",
        help="start N processes on this machine that communicate",
    )
    parser.add_argument(
        "--backend", choices=("auto", "nccl", "gloo", "none"), default="auto",
        help="how ranks communicate; auto: nccl where each has a CUDA device of its own, gloo "
             "elsewhere, none (local copies) for one process",
    )  # fmt: skip
    parser.add_argument(
        "--rank-timeout",
        type=float,
        default=300.0,
        metavar="S",
        help="seconds after which a rank that does not answer is given up",
    )


def begin(args):
    if args.ranks < 1:
        sys.exit("run.py: --ranks has to be at least 1")
    is_rank = int(os.environ.get("WORLD_SIZE", "1")) > 1
    if args.ranks > 1 and is_rank and _MEET not in os.environ:
        sys.exit(
            "run.py: --ranks starts ranks, but WORLD_SIZE shows that they are started already"
        )
    if args.ranks > 1 and not is_rank:
        choose_backend(args, args.ranks, args.ranks)  # errors are printed once, not by each rank
        sys.exit(Starter(args.ranks).run())
    join(args)


def ready(bench):
    return {}


def join(args):
    env = os.environ
    here.rank, here.world = int(env.get("RANK", "0")), int(env.get("WORLD_SIZE", "1"))
    here.local = int(env.get("LOCAL_RANK", here.rank))
    here.local_world = int(env.get("LOCAL_WORLD_SIZE", here.world))
    if _MEET in env:
        end_with_starter()
    here.patience = datetime.timedelta(seconds=args.rank_timeout)
    here.backend = choose_backend(args, here.world, here.local_world)
    choose_device(args)
    if args.profile and here.rank:
        path = Path(args.profile)
        args.profile = str(path.with_name(f"{path.name.split('.')[0]}.rank{here.rank}"
                                          + "".join(path.suffixes)))  # fmt: skip
    if here.backend != "none":
        meet()


def end_with_starter():
    """Sees that this process ends when the one that started it is gone."""
    with contextlib.suppress(AttributeError, OSError):
        # Linux kills it: a thread alone would wait for a library that holds Python's lock.
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    threading.Thread(target=watch_starter, daemon=True).start()


def watch_starter():
    """Waits for the starter's end of the pipe to close; it may have before Linux was asked."""
    while os.read(0, 1024):
        pass
    os._exit(LOST)


def is_on_cuda(args):
    return (args.device or "cuda").startswith("cuda") and torch.cuda.is_available()


def choose_device(args):
    """A device for each rank; shared where there are fewer."""
    if is_on_cuda(args) and args.device in (None, "cuda"):
        args.device = f"cuda:{here.local % torch.cuda.device_count()}"
        torch.cuda.set_device(args.device)


def choose_backend(args, world, local_world):
    """How ranks talk, or the end of the program where they cannot."""
    on_cuda = is_on_cuda(args)
    devices = torch.cuda.device_count() if args.device in (None, "cuda") else 1
    shared = local_world > devices
    if args.backend == "auto":
        if world == 1:
            return "none"
        return "nccl" if on_cuda and not shared else "gloo"
    if args.backend == "nccl" and not on_cuda:
        sys.exit("run.py: --backend nccl needs CUDA devices; use gloo")
    if args.backend == "nccl" and shared:
        sys.exit(f"run.py: --backend nccl needs a device for each of {local_world} ranks, and "
                 f"there are {devices}; use gloo")  # fmt: skip
    if args.backend == "none" and world > 1:
        sys.exit("run.py: --backend none is for one process; ranks need nccl or gloo")
    return args.backend


def meet():
    dist = torch.distributed
    if not dist.is_available() or not getattr(dist, f"is_{here.backend}_available")():
        sys.exit(f"run.py: this torch has no {here.backend}")
    place = os.environ.get(_MEET)
    if here.world == 1 and "MASTER_ADDR" not in os.environ:
        folder = tempfile.mkdtemp(prefix="ranks-")
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        place = str(Path(folder) / "meet")
    method = f"file://{place}" if place else "env://"
    try:
        dist.init_process_group(here.backend, init_method=method, rank=here.rank,
                                world_size=here.world, timeout=here.patience)  # fmt: skip
    except (RuntimeError, ValueError) as error:
        here.lost(error)


def report(bench, result):
    """Adds what the other ranks measured; only rank 0 goes on to print."""
    summary = result.setdefault("collectives", {})
    summary["backend"], summary["world"] = here.backend, here.world
    if here.world > 1:
        everyone = [None] * here.world
        try:
            torch.distributed.all_gather_object(everyone, result["step_ms"])
        except RuntimeError as error:
            here.lost(error)
        summary["step_ms_by_rank"] = everyone
    if here.backend != "none":
        torch.distributed.destroy_process_group()
    if here.rank:
        sys.exit(0)


class Starter:
    """Starts ranks on this machine and sees that all of them end."""

    def __init__(self, ranks):
        self.ranks = ranks
        self.folder = Path(tempfile.mkdtemp(prefix="ranks-"))
        self.children = []

    def run(self):
        """The exit code: 0 when every rank did its work."""
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
        try:
            for rank in range(self.ranks):
                self.children.append(self.start(rank))
            return self.watch()
        except KeyboardInterrupt:
            return 130
        finally:
            self.end_all()
            shutil.rmtree(self.folder, ignore_errors=True)

    def start(self, rank):
        cores = os.cpu_count() or 1
        env = {"OMP_NUM_THREADS": str(max(1, cores // self.ranks)),
               "GLOO_SOCKET_IFNAME": "lo", "NCCL_SOCKET_IFNAME": "lo", **os.environ}  # fmt: skip
        env[_MEET] = str(self.folder / "meet")
        env |= dict.fromkeys(("RANK", "LOCAL_RANK"), str(rank))
        env |= dict.fromkeys(("WORLD_SIZE", "LOCAL_WORLD_SIZE"), str(self.ranks))
        with self.stderr_of(rank).open("w") as stderr:
            return subprocess.Popen(
                [sys.executable, *sys.argv], env=env, stdin=subprocess.PIPE, stderr=stderr,
                stdout=None if rank == 0 else subprocess.DEVNULL,
            )  # fmt: skip

    def stderr_of(self, rank):
        return self.folder / f"stderr.{rank}"

    def watch(self):
        """Waits until all have ended, or one has failed."""
        while True:
            codes = [child.poll() for child in self.children]
            if any(codes):
                time.sleep(0.1)  # the others' errors show which failed first
                return self.failed()
            if None not in codes:
                sys.stderr.write(self.stderr_of(0).read_text(errors="replace"))
                return 0
            time.sleep(0.02)

    def failed(self):
        codes = [child.poll() for child in self.children]
        bad = [rank for rank, code in enumerate(codes) if code]
        # A signal explains more than an error, and an error more than a lost rank.
        rank = min(bad, key=lambda rank: (codes[rank] > 0, codes[rank] == LOST, rank))
        if codes[rank] < 0:
            why = f"was ended by {signal.Signals(-codes[rank]).name}"
        else:
            lines = self.stderr_of(rank).read_text(errors="replace").strip().split("\n")
            why = re.sub(r"^run\.py: (error: |rank \d+: )*", "", lines[-1])[:200]
            why = why or f"ended with code {codes[rank]}"
        if len(bad) == self.ranks and len(set(codes)) == 1:  # not one of them but all: no news
            print(f"run.py: {why}", file=sys.stderr)
        else:
            log(rank, f"{why}; the other ranks were stopped")
        return 2 if codes[rank] == 2 else 1

    def end_all(self):
        """Leaves no process behind: closes the pipe, then kills."""
        for child in self.children:
            child.stdin.close()
        until = time.monotonic() + GRACE
        for child in self.children:
            try:
                child.wait(max(until - time.monotonic(), 0.01))
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
