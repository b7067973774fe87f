"""A cloned topology as a folder: what is handed over, and nothing of the original's names."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec

from gnomon.errors import InputError
from gnomon.graph.request_shape import Shapes
from gnomon.ingest.services.application_file import read_application, write_application
from gnomon.ingest.spans.call_graph import CallGraph
from gnomon.systems.clone.topology.model import Model

_VERSION = 1
_SHAPES, _APPLICATION, _SPANS, _README = (
    "shapes.json", "application.yaml", "spans.json", "README.md",
)  # fmt: skip
_ABOUT = """# {name}: a cloned topology

{tiers} tiers and {shapes} request shapes that stand for {requests} recorded requests. Names are
pseudonyms; nothing here is the original's but counts, sizes and times.

- `shapes.json`: who calls whom, in which order, gaps in us; the original's call graph and latency
- `application.yaml`: the same application for `gnomon services`: classes and distributions
- `spans.json`: after a run, the clone's own spans (OTLP JSON)

Run it (a process a tier, on loopback) and compare its spans with the original's; drive it with a
client of your own until Ctrl-C; manage it:

    gnomon clone topology {name} --run 60
    gnomon clone topology {name} --serve
    gnomon services simulate {name}/application.yaml
"""


class _File(msgspec.Struct):
    version: int
    cpu_share: float
    shapes: Shapes
    original: CallGraph
    notes: tuple[str, ...]


class _Lines(msgspec.Struct):
    resourceSpans: list[msgspec.Raw]


def is_folder(path: Path) -> bool:
    """Whether `write_folder` wrote it."""
    return (path / _SHAPES).is_file()


def check_place(folder: Path) -> None:
    """Refuses a folder that holds something else."""
    if folder.exists() and not folder.is_dir():
        raise InputError("is a file, a folder was expected", where=str(folder))
    if folder.is_dir() and any(folder.iterdir()) and not is_folder(folder):
        raise InputError("holds something else than a cloned topology", where=str(folder),
                         hint="give another -o")  # fmt: skip


def write_folder(model: Model, folder: Path) -> None:
    """Writes the folder; a cloned topology that is there is replaced."""
    check_place(folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / _SPANS).unlink(missing_ok=True)
    shapes = model.shapes
    file = _File(_VERSION, model.cpu_share, shapes, model.original, model.notes)
    text = msgspec.json.encode(file).replace(b"]],[", b"]],\n[")
    (folder / _SHAPES).write_bytes(text)
    write_application(model.app, folder / _APPLICATION)
    about = _ABOUT.format(
        name=folder.name, tiers=len(shapes.tiers), shapes=len(shapes.shapes),
        requests=sum(one.weight for one in shapes.shapes),
    )  # fmt: skip
    (folder / _README).write_text(about)


def read_folder(folder: Path) -> Model:
    """What `write_folder` wrote."""
    path = folder / _SHAPES
    try:
        file = msgspec.json.decode(path.read_bytes(), type=_File)
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", where=str(path)) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InputError(f"is no cloned topology: {error}", where=str(path),
                         hint="was it changed by hand?") from None  # fmt: skip
    if file.version != _VERSION:
        raise InputError(f"is of version {file.version}", where=str(path),
                         hint=f"this gnomon reads {_VERSION}")  # fmt: skip
    _check(file.shapes, str(path))
    app = read_application(folder / _APPLICATION)
    return Model(file.shapes, app, file.original, file.cpu_share, file.notes, {})


def _check(shapes: Shapes, where: str) -> None:
    """Refuses references to nothing, and times that run backwards."""
    if not shapes.shapes or not all(
        0 <= one.tier < len(shapes.tiers) for one in shapes.operations
    ):
        raise InputError("has no shapes, or an operation of no tier", where=where)
    for number, shape in enumerate(shapes.shapes):
        for i, call in enumerate(shape.calls):
            is_known = 0 <= call.operation < len(shapes.operations)
            is_below = (call.caller == -1) == (i == 0) and call.caller < i
            is_after = all(0 < j < i and shape.calls[j].caller == call.caller for j in call.after)
            is_forward = min(call.delay_us, call.lead_us, call.rest_us) >= 0
            if not (is_known and is_below and is_after and is_forward and shape.weight > 0):
                raise InputError(f"call {i} of shape {number} is malformed", where=where)
        if not shape.calls:
            raise InputError(f"shape {number} has no calls", where=where)


def write_spans(lines: Iterable[bytes], folder: Path) -> Path:
    """The clone's spans as one document of OTLP JSON."""
    decoder = msgspec.json.Decoder(_Lines)
    found = [one for line in lines for one in decoder.decode(line).resourceSpans]
    path = folder / _SPANS
    path.write_bytes(msgspec.json.encode(_Lines(found)))
    return path
