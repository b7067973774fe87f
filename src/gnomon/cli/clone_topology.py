"""gnomon clone topology: what it takes, in which order it happens, what it prints."""

from __future__ import annotations

import contextlib
import json
import re
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gnomon.cli.output import Output, check_output, show
from gnomon.cli.typed import typed_command
from gnomon.errors import InputError

if TYPE_CHECKING:
    from gnomon.systems.clone.topology import Model


def clone_topology(
    traces: Sequence[str], *, folder: Path | None, run: str | None, serve: bool,
    rate: float | None, cpu_share: float | None, least: int, hold_out: float, key: Path | None,
    seed: int, output: Output,
) -> int:  # fmt: skip
    """See `gnomon.cli.clone.topology`."""
    from gnomon.act.process import interrupted_by_signals
    from gnomon.systems.clone import topology

    if not traces:
        raise InputError("which traces?", hint="gnomon clone topology traces.json -o shop")
    seconds = None if run is None else _seconds(run)
    if rate is not None and seconds is None:
        raise InputError("--rate is of a run", hint="add --run 60")
    if serve and seconds is not None:
        raise InputError("--serve and --run: one of them")
    check_output(output, key)
    place, model = _load(traces, folder, cpu_share, least, hold_out)
    if key is not None:
        if not model.names:
            raise InputError("a folder does not know the names", hint="--key goes with traces")
        key.write_text(json.dumps(model.names, indent=1, ensure_ascii=False) + "\n")
        print(f"wrote {key}", file=sys.stderr)
    sources = [one for one in traces if Path(one).is_file()]
    with interrupted_by_signals():
        if serve:
            with contextlib.suppress(KeyboardInterrupt):
                topology.serve(model, seed=seed, say=_print, wait=_wait)
            return 0
        from gnomon.systems.clone.topology import topology_result

        if seconds is None:
            next = " ".join(traces) if place is None else str(place)
            show(topology_result.model_to_result(model, command=typed_command(), sources=sources,
                                                 next=next), output)  # fmt: skip
            return 0
        ran = topology.run(model, seconds=seconds, rate=rate, seed=seed, say=_say)
    found = topology.compare(model.original, ran.seen)
    if place is not None:
        path = topology.write_spans(ran.spans, place)
        print(f"wrote {path}", file=sys.stderr)
    result = topology_result.run_to_result(
        model, ran, found, command=typed_command(), sources=sources
    )
    show(result, output)
    return 0 if found.matches else 3


def _load(
    traces: Sequence[str], folder: Path | None, cpu_share: float | None, least: int,
    hold_out: float,
) -> tuple[Path | None, Model]:  # fmt: skip
    """The model of traces, written where it was asked for; or of a folder that was written."""
    import msgspec

    from gnomon.ingest.formats import check_input
    from gnomon.ingest.spans.read import read_spans
    from gnomon.systems.clone import topology

    first = Path(traces[0])
    if len(traces) == 1 and topology.is_folder(first):
        if folder is not None or hold_out:
            raise InputError("is a cloned topology already", where=str(first),
                             hint="-o and --hold-out go with traces")  # fmt: skip
        model = topology.read_folder(first)
        if cpu_share is not None:
            model = msgspec.structs.replace(model, cpu_share=cpu_share)
        return first, model
    for path in traces:
        check_input(path, "clone topology")
    if folder is not None:
        topology.check_place(folder)
    name = "clone" if folder is None else folder.name
    model = topology.make_model(
        read_spans(list(traces)), name=name or "clone", cpu_share=cpu_share or 0.0, least=least,
        hold_out=hold_out,
    )  # fmt: skip
    if folder is not None:
        topology.write_folder(model, folder)
        print(f"wrote {folder}", file=sys.stderr)
    return folder, model


def _seconds(text: str) -> float:
    """A bare number is seconds."""
    from gnomon.units import SECOND_NS, parse_duration

    bare = re.fullmatch(r"\d+(\.\d+)?", text.strip())
    try:
        return parse_duration(f"{text}s" if bare else text) / SECOND_NS
    except InputError as error:
        raise InputError(error.what, where="--run", hint=error.hint) from None


def _wait() -> None:
    threading.Event().wait()


def _say(what: str) -> None:
    if sys.stderr.isatty():
        print(f"==> {what}", file=sys.stderr)


def _print(line: str) -> None:
    print(line, flush=True)
