"""Small bundled inputs, made by us, that examples, the tour and the tests run on."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from gnomon.errors import InputError

__all__ = ["bundled", "names"]

_FOLDERS = {
    "cpu-gpt-mini": "cpu_gpt_mini",
    "cpu-gpt-pp4": "cpu_gpt_pp4",
    "h200-gpt-l6": "h200_gpt_l6",
    "spark-diamonds": "spark_diamonds",
}


def names() -> list[str]:
    """What is bundled.

    >>> names()
    ['cpu-gpt-mini', 'cpu-gpt-pp4', 'h200-gpt-l6', 'spark-diamonds']
    """
    return sorted(_FOLDERS)


def bundled(name: str) -> Path:
    """The folder of a bundled input.

    `h200-gpt-l6`: three steps of a six-layer GPT (hidden 2048) on one H200, PyTorch 2.11:
    `kineto.json.gz`, `et.json.gz` (the execution trace of one step) and, in `meta.json`, step
    times measured without the profiler.

    `cpu-gpt-mini`: the same three files of a three-layer GPT (hidden 128) on one CPU core,
    PyTorch 2.13: small enough to run again anywhere.

    `cpu-gpt-pp4`: two steps of an eight-layer GPT (hidden 512) in a pipeline of four CPU ranks
    (gloo), a trace a rank; without what a replay does not read.

    `spark-diamonds`: the event log of five jobs of several stages on Spark 4.3, two executors on
    one machine; names of machine and user were replaced.

    >>> sorted(path.name for path in bundled("h200-gpt-l6").iterdir())
    ['et.json.gz', 'kineto.json.gz', 'meta.json']
    """
    if name not in _FOLDERS:
        raise InputError(f"nothing bundled is called {name!r}; there is {', '.join(names())}")
    return Path(str(files("gnomon.datasets") / _FOLDERS[name]))
