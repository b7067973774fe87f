"""Records a training loop: a few unprofiled steps are timed, then a profiler trace is taken.

A trace alone says how long a step is *with* the profiler. The steps timed before it ran say how
long it really is, and those after it whether the machine drifted meanwhile.

Standard library and torch alone: this also runs inside programs that `gnomon training record`
starts, whose Python may have nothing else of ours.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import json
import os
import platform
import resource
import statistics
import sys
import time
import warnings
from collections.abc import Generator, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

from gnomon.errors import InputError, MissingExtra
from gnomon.systems.training.recording.folder import (
    META,
    pack_trace,
    refuse_existing,
    remove_existing,
    trace_name,
    write_meta,
)


@dataclasses.dataclass(frozen=True)
class RecordOptions:
    """How many steps of what, and what the profiler notes down.

    Attributes:
        skip: First steps, left alone: caches fill, memory is found, kernels are chosen.
        unprofiled: Steps timed without the profiler.
        warmup: Steps during which the profiler warms up.
        steps: Steps in the trace.
        after: Steps timed again when the profiler has gone; half of `unprofiled` unless given.
        shapes: Note the shapes of tensors.
        sync_events: Note what each synchronisation waited for (CUDA).
        stack: Note Python's call stacks; this costs most.
    """

    skip: int = 3
    unprofiled: int = 10
    warmup: int = 2
    steps: int = 3
    after: int | None = None
    shapes: bool = False
    sync_events: bool = False
    stack: bool = False

    def __post_init__(self) -> None:
        for name, least in (("skip", 0), ("unprofiled", 1), ("warmup", 1), ("steps", 1)):
            if getattr(self, name) < least:
                raise InputError(
                    f"is {getattr(self, name)}, at least {least} is needed", where=name
                )
        if self.after is not None and self.after < 0:
            raise InputError(f"is {self.after}, at least 0 is needed", where="after")

    @property
    def unprofiled_after(self) -> int:
        """Steps to time when the profiler has gone."""
        return (self.unprofiled + 1) // 2 if self.after is None else self.after

    @property
    def until_trace(self) -> int:
        """Steps from the first to the end of the trace."""
        return self.skip + self.unprofiled + self.warmup + self.steps

    @property
    def total(self) -> int:
        """Steps until everything is there; the first after the trace is left alone."""
        return self.until_trace + (1 + self.unprofiled_after if self.unprofiled_after else 0)


def record(
    folder: str | os.PathLike[str],
    *,
    unprofiled: int = 10,
    warmup: int = 2,
    steps: int = 3,
    skip: int = 3,
    after: int | None = None,
    shapes: bool = False,
    sync_events: bool = False,
    stack: bool = False,
    name: str | None = None,
    overwrite: bool = False,
) -> Recorder:
    """Records the training loop inside its `with` block: unprofiled steps timed, then a trace.

        with record("run/") as recorder:
            for batch in data:
                train(batch)
                if recorder.step():
                    break  # or go on: from here it costs nothing

    Writes `kineto.json.gz` (`rank<R>.json.gz` for each rank of a distributed job) and, from rank
    0, `meta.json`. A loop that ends early leaves what was measured, and a warning about the rest.

    Args:
        folder: Where to; made if needed.
        unprofiled: Steps to time without the profiler.
        warmup: Steps for the profiler to warm up.
        steps: Steps to trace.
        skip: First steps to leave alone.
        after: Steps to time again afterwards, to see drift; half of `unprofiled` unless given.
        shapes: Also note the shapes of tensors.
        sync_events: Also note what each CUDA synchronisation waited for.
        stack: Also note Python's call stacks; this slows the host most.
        name: What the recording is called; the folder's name unless given.
        overwrite: Replace a recording that is there.
    """
    options = RecordOptions(skip, unprofiled, warmup, steps, after, shapes, sync_events, stack)
    return Recorder(folder, options, name=name, overwrite=overwrite)


class Recorder:
    """Counts steps and does at each what is due. Made by `record`; entered and left by `with`.

    Attributes:
        folder: Where the recording goes.
        options: What was asked for.
        seen: Steps so far.
        missing: What the recording lacks, in words; empty when everything is there.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        options: RecordOptions,
        *,
        name: str | None = None,
        overwrite: bool = False,
    ) -> None:
        self.folder, self.options, self.seen = Path(folder), options, 0
        self._name = name or self.folder.resolve().name
        self._torch = _import_torch()
        self._overwrite = overwrite
        self._before, self._after = _Laps(self._torch), _Laps(self._torch)
        self._profiled = _Laps(self._torch)
        self._traced, self._has_trace = 0, False
        self._trouble: str | None = None
        self._written: dict[str, None] = {}
        self._rank: tuple[int, int] | None = None
        self._peak: dict[str, int | None] = {}
        self._phases: Generator[None, None, None] | None = None
        self._process = os.getpid()

    def __enter__(self) -> Recorder:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.finish()
        if self.missing and error is None:
            warnings.warn(self.complaint(), stacklevel=2)
        elif self.missing:
            # A warning may be an error here, which would hide the one that is under way.
            print(f"gnomon: {self.complaint()}", file=sys.stderr)

    def start(self) -> None:
        """Makes the folder, or refuses it; the steps begin."""
        if not self._overwrite:
            refuse_existing(self.folder, *_rank_and_world(self._torch))
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            what = f"cannot be made: {error.strerror}"
            raise InputError(what, where=str(self.folder)) from None
        self._phases = self._run()
        next(self._phases)

    def step(self) -> bool:
        """To be called when a step has ended; True once everything was collected."""
        if self._phases is None or os.getpid() != self._process:
            return self.done
        self.seen += 1
        with self._never_raising():
            try:
                next(self._phases)
            except StopIteration:
                self._phases = None
        return self.done

    @property
    def done(self) -> bool:
        """Whether nothing more will be measured."""
        return self._phases is None

    def finish(self) -> None:
        """Keeps what was measured. Called when the loop has ended, however it did."""
        if self._phases is None or os.getpid() != self._process:
            return
        with self._never_raising():
            self._phases.close()
        with self._never_raising():
            self._save_meta()
        self._phases = None

    @contextlib.contextmanager
    def _never_raising(self) -> Iterator[None]:
        """A recording that fails must not end a training that could go on."""
        try:
            yield
        except Exception as error:
            self._phases = None
            self._trouble = self._trouble or _one_line(error)

    @property
    def missing(self) -> list[str]:
        """What the recording lacks, in words."""
        lacks = []
        if len(self._before) < self.options.unprofiled:
            lacks.append(f"{self.options.unprofiled - len(self._before)} of the unprofiled steps")
        if not self._has_trace:
            lacks.append("the trace")
        elif self._traced < self.options.steps:
            lacks.append(f"{self.options.steps - self._traced} of the trace's steps")
        if len(self._after) < self.options.unprofiled_after:
            lacks.append("the unprofiled steps after it")
        return lacks

    def complaint(self) -> str:
        """One line about what is missing, and what to do."""
        cause = self._trouble or f"the loop ended after {self.seen} of {self.options.total} steps"
        hint = "" if self._trouble else "; run longer, or ask for fewer steps"
        return (
            f"{self.folder}: recorded in part: {cause}; missing: {', '.join(self.missing)}"
            f"; kept: {', '.join(self._written) or 'nothing'}{hint}"
        )

    def _run(self) -> Generator[None, None, None]:
        """The phases; each `yield` is one step of the user's loop."""
        for _ in range(self.options.skip):
            yield
        yield from self._time(self._before, self.options.unprofiled)
        self._peak = _peak_memory(self._torch)
        self._save_meta()  # a job that is killed later keeps at least this
        yield from self._profile()
        self._save_meta()
        if self.options.unprofiled_after:
            yield  # pays for the writing of the trace
            yield from self._time(self._after, self.options.unprofiled_after)
            self._save_meta()

    def _time(self, laps: _Laps, count: int) -> Generator[None, None, None]:
        laps.start()
        try:
            for _ in range(count):
                yield
                laps.lap()
        finally:
            laps.stop()

    def _profile(self) -> Generator[None, None, None]:
        options, profiler = self.options, _Quiet(self._make_profiler())
        profiler.start()
        try:
            for _ in range(options.warmup - 1):
                yield
                profiler.step()
            yield
            # So that every kernel in the trace was launched in it.
            _synchronize(self._torch)
            profiler.step()
            # Every rank's trace carries its own figures; meta.json is rank 0's alone.
            profiler.add_metadata_json("gnomon", json.dumps(self._figures()))
            self._profiled.begin()
            for _ in range(options.steps):
                yield
                self._traced += 1
                if self._traced == options.steps:
                    self._profiled.lap()
                profiler.step()
        finally:
            # Hands the trace over when it was still being taken.
            profiler.stop()
        self._profiled.stop()

    def _make_profiler(self) -> Any:
        torch, options = self._torch, self.options
        if torch.autograd._profiler_enabled():
            # Starting a second one ends the first, and both lose their traces.
            raise RuntimeError("a profiler of the program's own is running")
        activities = [torch.profiler.ProfilerActivity.CPU]
        if _on_cuda(torch):
            activities.append(torch.profiler.ProfilerActivity.CUDA)
        more: dict[str, Any] = {}
        if options.sync_events:
            config = torch.profiler._ExperimentalConfig(enable_cuda_sync_events=True)
            more["experimental_config"] = config
        return torch.profiler.profile(
            activities=activities,
            schedule=torch.profiler.schedule(
                wait=0, warmup=options.warmup, active=options.steps, repeat=1
            ),
            on_trace_ready=self._save_trace,
            record_shapes=options.shapes,
            with_stack=options.stack,
            **more,
        )

    @property
    def trace(self) -> Path:
        """Where this rank's trace goes."""
        return self.folder / trace_name(*self._place())

    @property
    def rank(self) -> int:
        """Which process of the job this is."""
        return self._place()[0]

    def _place(self) -> tuple[int, int]:
        """Rank and world size, asked for when the job surely knows them, then kept."""
        if self._rank is None:
            self._rank = _rank_and_world(self._torch)
        return self._rank

    def _make_room(self) -> None:
        """Once, before the first file: no file of an older recording may stand beside ours."""
        if self._overwrite:
            remove_existing(self.folder, *self._place())
        self._overwrite = False

    def _save_trace(self, profiler: Any) -> None:
        if not self._traced:
            return  # ended within the first step: nothing whole to show
        self._make_room()
        raw = self.trace.with_name(f".{self.trace.name}.{os.getpid()}.raw")
        try:
            profiler.export_chrome_trace(str(raw))
            pack_trace(raw, self.trace)
            self._has_trace = True
            self._written[self.trace.name] = None
        finally:
            raw.unlink(missing_ok=True)

    def _save_meta(self) -> None:
        rank, _ = self._place()
        if rank == 0 and len(self._before):
            self._make_room()
            write_meta(self.folder, self._meta())
            self._written[META] = None

    def _figures(self) -> dict[str, Any]:
        """What is known when the trace begins."""
        rank, world_size = self._place()
        before, torch = self._before, self._torch
        return {
            "name": self._name,
            "torch": str(torch.__version__),
            "gpu": torch.cuda.get_device_name() if before.cuda else None,
            "rank": rank,
            "world_size": world_size,
            "step_ms_median": statistics.median(before.step_ms) if len(before) else None,
            "step_ms_wall": before.wall_ms,
            before.key: before.step_ms,
            **self._peak,
            "options": dataclasses.asdict(self.options) | {"after": self.options.unprofiled_after},
            "versions": _versions(torch),
        }

    def _meta(self) -> dict[str, Any]:
        window_ms = sum(self._profiled.step_ms)
        return self._figures() | {
            "profiled_step_ms": window_ms / self.options.steps if window_ms else None,
            "step_ms_wall_2": self._after.wall_ms,
            f"{self._before.key}_2": self._after.step_ms,
            "missing": self.missing,
        }


class _Quiet:
    """A profiler whose warnings, about cycles of which there is but one, nobody sees.

    They depend on the version of torch; where warnings are errors they would end the recording.
    """

    def __init__(self, profiler: Any) -> None:
        self._profiler = profiler

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._profiler, name)

        def quietly(*args: Any) -> Any:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return method(*args)

        return quietly


class _Laps:
    """Times of consecutive steps: the host's clock around all, CUDA events between them.

    Where CUDA is not used, the host's clock between them as well.
    """

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._marks: list[Any] = []
        self._begin_s = 0.0
        self.cuda = False
        self.step_ms: list[float] = []
        self.wall_ms: float | None = None

    def __len__(self) -> int:
        return len(self.step_ms)

    @property
    def key(self) -> str:
        """What such times are called in `meta.json`."""
        return "step_ms_event" if self.cuda else "step_ms"

    def start(self) -> None:
        """The first step begins, on an idle device."""
        _synchronize(self._torch)
        self.begin()

    def begin(self) -> None:
        """The first step begins; whoever calls has made the device idle."""
        self.cuda = _on_cuda(self._torch)
        self._begin_s = time.perf_counter()
        self.lap()

    def lap(self) -> None:
        """A step has ended, as far as the host knows."""
        if not self.cuda:
            self._marks.append(time.perf_counter())
            return
        event = self._torch.cuda.Event(enable_timing=True)
        event.record()
        self._marks.append(event)

    def stop(self) -> None:
        """No more steps; waits for the device, then reads the times."""
        _synchronize(self._torch)
        wall_ms = (time.perf_counter() - self._begin_s) * 1e3
        pairs = list(zip(self._marks, self._marks[1:]))
        if self.cuda:
            self.step_ms = [a.elapsed_time(b) for a, b in pairs]
        else:
            self.step_ms = [(b - a) * 1e3 for a, b in pairs]
        self.wall_ms = wall_ms / len(pairs) if pairs else None
        self._marks = []


def _import_torch() -> Any:
    try:
        return importlib.import_module("torch")
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise MissingExtra("torch", "torch", "recording a training loop") from None


def _on_cuda(torch: Any) -> bool:
    # A program that never touched its GPU shall not find a context there because of us.
    return bool(torch.cuda.is_available() and torch.cuda.is_initialized())


def _synchronize(torch: Any) -> None:
    if _on_cuda(torch):
        torch.cuda.synchronize()


def _rank_and_world(torch: Any) -> tuple[int, int]:
    distributed = torch.distributed
    if distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank(), distributed.get_world_size()
    try:
        return int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    except ValueError:
        return 0, 1


def _peak_memory(torch: Any) -> dict[str, int | None]:
    device = torch.cuda.max_memory_allocated() if _on_cuda(torch) else None
    host = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {"peak_bytes": device, "peak_host_bytes": host}


def _versions(torch: Any) -> dict[str, str | None]:
    from gnomon.version import __version__

    return {
        "gnomon": __version__,
        "python": platform.python_version(),
        "cuda": torch.version.cuda,
        "hip": torch.version.hip,
    }


def _one_line(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}"[:300]
