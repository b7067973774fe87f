"""A stranger runs every command we print: so do we."""

from __future__ import annotations

import doctest
import re
import shlex
import subprocess
import sys
import types
from pathlib import Path

import pytest

from gnomon.cli import main

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```(python|sh|\w+ title=\S+)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks(page: Path) -> list[tuple[str, str]]:
    return BLOCK.findall(page.read_text())


def run_python(code: str, page: Path, namespace: dict[str, object]) -> None:
    """Plain code is run; a session with prompts must also print what the page says it prints."""
    if not code.startswith(">>>"):
        exec(compile(code, str(page), "exec"), namespace)
        return
    session = doctest.DocTestParser().get_doctest(code, namespace, page.name, str(page), 0)
    session.globs = namespace  # the parser copies: later blocks need what this one defines
    assert doctest.DocTestRunner().run(session, clear_globs=False).failed == 0


@pytest.mark.parametrize(
    "page", [p for p in PAGES if blocks(p)], ids=lambda p: str(p.relative_to(ROOT))
)
def test_every_snippet_runs(page, tmp_path, monkeypatch, capsys):
    """Blocks of one page run in order, in one folder, as a reader would run them."""
    monkeypatch.chdir(tmp_path)
    module = types.ModuleType("page")  # a real one, so that what a snippet defines can be pickled
    monkeypatch.setitem(sys.modules, "page", module)
    ran = 0
    for language, code in blocks(page):
        if "title=" in language:  # a file that the reader is shown
            Path(language.partition("title=")[2].strip('"')).write_text(code)
            continue
        if language == "python":
            run_python(code, page, module.__dict__)
            ran += 1
            continue
        for line in code.splitlines():
            command, _, comment = line.partition("#")
            if not command.startswith("gnomon "):
                continue
            expected = int(match[1]) if (match := re.search(r"exit (\d)", comment)) else 0
            assert main(shlex.split(command)[1:]) == expected, f"{line}\n{capsys.readouterr().err}"
            ran += 1
    assert ran or "make t" in page.read_text() or "benchmarks/" in page.read_text()


def test_every_page_is_in_the_navigation():
    listed = set(re.findall(r"[\w/-]+\.md", (ROOT / "mkdocs.yml").read_text()))
    assert listed == {str(p.relative_to(ROOT / "docs")) for p in (ROOT / "docs").rglob("*.md")}


def test_links_between_pages_lead_somewhere():
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text()):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page.name} links to {target}"


@pytest.mark.parametrize("script", ["claims_table.py", "formats_table.py"])
def test_generated_tables_are_up_to_date(script):
    done = subprocess.run(
        [sys.executable, str(ROOT / "docs" / script), "--check"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
