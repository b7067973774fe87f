"""Runs the pages as a reader would, and writes what each command prints below it.

python -m tests.docs.pages [PAGE...]
"""

from __future__ import annotations

import contextlib
import doctest
import io
import os
import re
import shlex
import subprocess
import sys
import tempfile
import types
import unittest.mock
from collections.abc import Iterator
from pathlib import Path

from gnomon.cli import main

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(
    r"^```(?P<kind>python|sh|console|\w+ title=\S+)\n(?P<code>.*?)^```", re.MULTILINE | re.DOTALL
)


def has_blocks(page: Path) -> bool:
    return BLOCK.search(page.read_text()) is not None


def run_page(page: Path, folder: Path) -> tuple[str, int]:
    """Runs the blocks of a page in order, in one folder.

    Returns:
        The page with the output of its `console` blocks as it is now, and how many blocks or
        commands were run.
    """
    ran = 0
    # A real module, so that what a snippet defines can be pickled.
    module = sys.modules["page"] = types.ModuleType("page")

    def run_block(found: re.Match[str]) -> str:
        nonlocal ran
        kind, code = found["kind"], found["code"]
        if "title=" in kind:  # a file that the reader is shown
            Path(kind.partition("title=")[2].strip('"')).write_text(code)
        elif kind == "python":
            run_python(code, page, module.__dict__)
            ran += 1
        elif kind == "console":
            shown = "".join(f"$ {line}\n{run_command(line)}" for line in commands_of(code))
            ran += 1
            return f"```console\n{shown}```"
        else:
            ours = [line for line in code.splitlines() if line.startswith("gnomon ")]
            for line in ours:
                run_command(line)
            ran += len(ours)
        return found[0]

    with working_in(folder):
        return BLOCK.sub(run_block, page.read_text()), ran


def run_python(code: str, page: Path, namespace: dict[str, object]) -> None:
    """Plain code is run; a session with prompts must also print what the page says it prints."""
    if not code.startswith(">>>"):
        exec(compile(code, str(page), "exec"), namespace)
        return
    session = doctest.DocTestParser().get_doctest(code, namespace, page.name, str(page), 0)
    session.globs = namespace  # the parser copies: later blocks need what this one defines
    assert doctest.DocTestRunner().run(session, clear_globs=False).failed == 0


def commands_of(code: str) -> list[str]:
    return [line[2:] for line in code.splitlines() if line.startswith("$ ")]


def run_command(line: str) -> str:
    """What a `gnomon` command prints, through the filter behind it; its exit code is checked."""
    command, _, comment = line.partition("#")
    command, _, filter_ = command.partition(" | ")
    expected = int(match[1]) if (match := re.search(r"exit (\d)", comment)) else 0
    printed, beside = io.StringIO(), io.StringIO()
    # A pipe takes what a command prints, not what it reports beside it.
    errors = beside if filter_ else printed
    # One width wherever this runs: pytest's workers may have a COLUMNS of their own.
    width = unittest.mock.patch.dict(os.environ, COLUMNS="160")
    with width, contextlib.redirect_stdout(printed), contextlib.redirect_stderr(errors):
        code = main(shlex.split(command)[1:])
    text = printed.getvalue()
    assert code == expected, f"{line}\n{text}{beside.getvalue()}"
    if filter_:
        text = subprocess.run(
            ["bash", "-c", filter_], input=text, capture_output=True, text=True, check=True
        ).stdout
    return "".join(f"{row.rstrip()}\n" for row in text.rstrip().splitlines())


@contextlib.contextmanager
def working_in(folder: Path) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def rewrite(pages: list[Path]) -> None:
    for page in filter(has_blocks, pages):
        with tempfile.TemporaryDirectory() as folder:
            text, _ = run_page(page, Path(folder))
        if text != page.read_text():
            page.write_text(text)
            print(f"wrote {page.relative_to(ROOT)}", file=sys.stderr)


if __name__ == "__main__":
    rewrite([Path(name).resolve() for name in sys.argv[1:]] or PAGES)
