"""gnomon inspect: what is this file, and what is in it?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from gnomon.cli.output import Output, show
from gnomon.cli.sources import Source
from gnomon.cli.typed import typed_command

if TYPE_CHECKING:
    from gnomon.report import Result


def inspect(path: Source, *, output: Output = Output()) -> None:  # noqa: B008
    """Say what a file or folder is, what is in it, and which commands read it.

    Args:
        path: Whatever gnomon reads (docs/reference/formats.md), or anything else.
        output: Where the answer goes.
    """
    show(describe(path), output)


def describe(path: Path) -> Result:
    """A Result about the file itself."""
    from gnomon.cli.contents import contents_of
    from gnomon.ingest.formats import identify
    from gnomon.report import Figure, Manifest, Result
    from gnomon.units import format_bytes

    identity = identify(path)
    if identity.format in ("recording", "folder"):
        first, count, what = _first_in(path)
        result = describe(first)
        more = Figure(f"{what}_in_folder", f"{what} in folder", count)
        return msgspec.structs.replace(result, figures=[*result.figures, more])
    facts: dict[str, Any] = {
        "format": identity.kind.title, "size": format_bytes(identity.bytes)
    }  # fmt: skip
    found, tables = contents_of(path, identity.format)
    facts |= found
    if identity.kind.commands:
        facts["read_by"] = ", ".join(identity.kind.commands)
    return Result(
        "gnomon",
        "inspect",
        path.name,
        "What is this?",
        figures=[Figure(name, name.replace("_", " "), value) for name, value in facts.items()],
        tables=tables,
        manifest=Manifest.of(typed_command(), [path]),
    )


def _first_in(folder: Path) -> tuple[Path, int, str]:
    from gnomon.errors import InputError
    from gnomon.ingest.spark.log_files import find_spark_logs
    from gnomon.systems.training.sources import find_trace

    try:
        trace, others = find_trace(folder)
    except InputError:
        try:
            logs = find_spark_logs(folder)
        except InputError:
            logs = []
        if not logs:
            raise
        return logs[0], len(logs), "logs"
    return trace, others + 1, "traces"
