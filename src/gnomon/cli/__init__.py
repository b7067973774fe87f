"""The command line: parsing and printing only.

`gnomon NOUN VERB` asks a system; `gnomon VERB` is shared by all. Exit codes: 0 done, 1 internal
error, 2 wrong input or usage, 3 the answer is "no".
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Sequence

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code; errors become one line on stderr."""
    words = list(sys.argv[1:] if argv is None else argv)
    # What follows "--" is somebody else's command line.
    ours = words.index("--") if "--" in words else len(words)
    verbose = "--verbose" in words[:ours]
    words = [word for word in words[:ours] if word != "--verbose"] + words[ours:]
    for stream in (sys.stdout, sys.stderr):
        # A terminal that knows only ASCII gets question marks instead of an exception.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    try:
        code = _run(words)
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        return _fail("interrupted", 130)
    except BrokenPipeError:
        # Whoever read our output has gone (`| head`): not an error, but stdout must not be
        # flushed again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        if verbose:
            import traceback

            traceback.print_exc()
        from gnomon.errors import GnomonError

        if isinstance(error, GnomonError):
            return _fail(str(error), error.exit_code)
        if isinstance(error, OSError):
            where = f"{error.filename}: " if error.filename else ""
            return _fail(f"{where}{error.strerror or error}", 2)
        what = f"internal error: {type(error).__name__}: {error}"
        hint = "" if verbose else " (--verbose shows where)"
        return _fail(f"{what}{hint}", 1)


def _run(words: list[str]) -> int:
    if words in ([], ["--help"], ["-h"]):
        # Without the parser: the page everybody asks for first takes a fifth of the time.
        from gnomon.cli.commands import first_help

        print(first_help())
        return 0
    if words == ["--version"]:
        from gnomon.version import __version__

        print(f"gnomon {__version__}")
        return 0
    ours = words[: words.index("--")] if "--" in words else words
    if "--help" in ours or "-h" in ours:
        from gnomon.cli.help import help_page

        page = help_page(words)
        if page is not None:
            print(page)
            return 0
    from cyclopts import CycloptsError

    from gnomon.cli.app import app
    from gnomon.cli.typed import TYPED

    token = TYPED.set(words)
    try:
        answer = app(words, exit_on_error=False, print_error=False, result_action="return_value")
    except CycloptsError as error:
        return _fail(f"{_one_line(str(error))} (see gnomon --help)", 2)
    finally:
        TYPED.reset(token)
    return int(answer) if isinstance(answer, int) else 0


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _fail(line: str, code: int) -> int:
    print(f"gnomon: {_one_line(line)}", file=sys.stderr)
    return code
