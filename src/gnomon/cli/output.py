"""How every verb shows its result: a table, JSON, one HTML file, a folder, a trace."""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Mapping
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from gnomon.errors import InputError

if TYPE_CHECKING:
    from gnomon.graph import Timeline
    from gnomon.report import Result


#: Where results go instead, for a caller that shows them itself.
COLLECTED: ContextVar[list[Result] | None] = ContextVar("COLLECTED", default=None)


@Parameter(name="*")
@dataclasses.dataclass(frozen=True)
class Output:
    """Where the answer goes besides the terminal.

    Attributes:
        json: Print JSON instead of tables.
        html: Also write one self-contained HTML file.
        save: Also save the result as a folder that report and compare read.
        overwrite: Let --save replace a result that is there.
    """

    json: Annotated[bool, Parameter(negative=())] = False
    html: Path | None = None
    save: Path | None = None
    overwrite: Annotated[bool, Parameter(negative=())] = False


def check_output(output: Output, *others: Path | None) -> None:
    """Before a long run: what could not be written after it is refused now."""
    from gnomon.report.folder import check_place

    _check_apart(output.save, output.html, *others)
    _check_folders(output.html, *others)
    if output.save is not None:
        check_place(Path(os.path.abspath(output.save)), output.overwrite)


def show(
    result: Result,
    output: Output,
    *,
    perfetto: Path | None = None,
    timelines: Mapping[str, Timeline] | None = None,
    extra: Mapping[str, object] | None = None,
) -> None:
    """Prints a result and writes what was asked for; says on stderr where it went.

    Args:
        perfetto: Where timelines go.
        extra: Values that the JSON has at its top.
    """
    from gnomon import report

    if (collected := COLLECTED.get()) is not None:
        collected.append(result)
        return
    _check_apart(output.save, output.html, perfetto)
    _check_folders(output.html, perfetto)
    # The one that may refuse comes first, so that a refusal leaves nothing behind.
    if output.save is not None:
        report.save(result, output.save, overwrite=output.overwrite)
        _say(f"saved {output.save}")
    if output.html is not None:
        report.write_html(result, output.html)
        _say(f"wrote {output.html}")
    if perfetto is not None and timelines is not None:
        from gnomon.report.perfetto import write_trace

        write_trace(perfetto, timelines)
        _say(f"wrote {perfetto}")
    if output.json:
        print(report.to_json(result, extra=extra))
    else:
        report.print_result(result)


def _check_apart(*targets: Path | None) -> None:
    places = [target.resolve() for target in targets if target is not None]
    for place in places:
        if places.count(place) > 1:
            raise InputError("two outputs were to be written here", where=str(place))


def _check_folders(*targets: Path | None) -> None:
    """Before anything is written: one that cannot be leaves nothing of the others behind."""
    for target in targets:
        if target is not None and not target.absolute().parent.is_dir():
            raise InputError("there is no such folder", where=str(target.parent))
        if target is not None and target.is_dir():
            raise InputError("is a folder, a file was expected", where=str(target))


def _say(line: str) -> None:
    print(line, file=sys.stderr)
