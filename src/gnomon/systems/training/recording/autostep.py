"""Records a program that knows nothing of it: a step is one step of its first optimizer.

Runs inside the program, loaded by `_inject/sitecustomize.py` once torch's optimizers are there.
"""

from __future__ import annotations

import atexit
import functools
import os
import sys
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gnomon.systems.training.recording.recorder import Recorder, RecordOptions

#: Says which process records: only one may, for each rank.
CLAIM = ".claim-"


def watch_optimizers(module: Any, stepped: Callable[[Any], None]) -> None:
    """Calls `stepped(optimizer)` after each step of any optimizer made from now on.

    Args:
        module: `torch.optim.optimizer`.
        stepped: What to call.
    """
    wrap = getattr(module.Optimizer, "profile_hook_step", None)
    if wrap is None:
        hook = module.register_optimizer_step_post_hook
        hook(lambda optimizer, args, kwargs: stepped(optimizer))
        return
    # torch wraps each optimizer's step with this, and calls its global hooks in there: inside the
    # annotation "Optimizer.step", which would straddle the mark between two steps of the profiler.
    # So we wrap once more, around it.
    depth = threading.local()

    def profile_hook_step(step: Callable[..., Any]) -> Callable[..., Any]:
        wrapped = wrap(step)

        @functools.wraps(wrapped)
        def outermost(*args: Any, **kwargs: Any) -> Any:
            import torch  # not when this is defined: torch is still being imported then

            # Code of ours inside a compiled step would break the graph that is being captured.
            if torch.compiler.is_compiling():
                return wrapped(*args, **kwargs)
            # A step that calls its parent class's, or another optimizer's, is one step.
            depth.now = getattr(depth, "now", 0) + 1
            try:
                out = wrapped(*args, **kwargs)
            finally:
                depth.now -= 1
            if not depth.now:
                stepped(args[0])
            return out

        return outermost

    module.Optimizer.profile_hook_step = staticmethod(profile_hook_step)


class AutoStep:
    """Called after every optimizer step; passes those of the first optimizer on to a recorder."""

    def __init__(self, folder: str, name: str, options: dict[str, Any]) -> None:
        self._folder, self._name, self._options = Path(folder), name, options
        self._first: Callable[[], Any] = lambda: None
        self._recorder: Recorder | None = None
        self._over = False

    def __call__(self, optimizer: Any) -> None:
        """An optimizer has stepped."""
        if self._over:
            return
        first = self._first()
        if first is None:
            # None was seen, or the one we counted is gone: a trial before the real thing.
            self._first = weakref.ref(optimizer)
        elif first is not optimizer:
            return
        if self._can_step():
            self._step()

    def _can_step(self) -> bool:
        # Optimizers that step during the backward pass do so in threads of autograd's own, where
        # no profiler of the whole program can be started.
        if isinstance(threading.current_thread(), threading._DummyThread):
            return False
        cuda = sys.modules["torch"].cuda
        # Nothing may synchronise while a CUDA graph is being captured.
        return not (cuda.is_initialized() and cuda.is_current_stream_capturing())

    def _step(self) -> None:
        try:
            if self._recorder is None:
                self._recorder = self._begin()
            self._over = self._recorder is None or self._recorder.step()
        except Exception as error:
            # Whatever it is, the program must go on as if we were not there.
            self._over = True
            print(f"gnomon: not recorded: {error}", file=sys.stderr)

    def _begin(self) -> Recorder | None:
        options = RecordOptions(**self._options)
        recorder = Recorder(self._folder, options, name=self._name, overwrite=True)
        self._folder.mkdir(parents=True, exist_ok=True)  # other machines of the job have none yet
        if not _claim(self._folder / f"{CLAIM}{recorder.trace.name}", recorder.trace):
            return None
        recorder.start()
        # Registered late, so that it runs before whatever torch itself does at exit.
        atexit.register(self._end, recorder)
        return recorder

    def _end(self, recorder: Recorder) -> None:
        recorder.finish()
        if recorder.missing and recorder.rank == 0:
            print(f"gnomon: {recorder.complaint()}", file=sys.stderr)


def _claim(path: Path, trace: Path) -> bool:
    """Whether this process is the one to write a trace; a dead one's unfulfilled claim is void."""
    try:
        descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666)
    except FileExistsError:
        if trace.exists() or _is_alive(path):
            return False
        descriptor = os.open(path, os.O_WRONLY | os.O_TRUNC)
    with os.fdopen(descriptor, "w") as file:
        file.write(str(os.getpid()))
    return True


def _is_alive(claim: Path) -> bool:
    try:
        os.kill(int(claim.read_text()), 0)
    except (ValueError, ProcessLookupError):
        return False
    except PermissionError:
        return True
    return True
