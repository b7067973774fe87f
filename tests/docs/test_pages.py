"""A stranger runs every command we print: so do we."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import PAGES, ROOT, has_blocks, run_page

#: A use page is read in three minutes.
MOST_WORDS = 900


@pytest.mark.parametrize(
    "page", [p for p in PAGES if has_blocks(p)], ids=lambda p: str(p.relative_to(ROOT))
)
def test_every_snippet_runs_and_prints_what_the_page_shows(page, tmp_path):
    text, ran = run_page(page, tmp_path)
    assert text.splitlines() == page.read_text().splitlines(), (
        "python -m tests.docs.pages writes what the commands print now"
    )
    assert ran or "make t" in text or "benchmarks/" in text


def test_every_page_is_in_the_navigation():
    listed = set(re.findall(r"[\w/-]+\.md", (ROOT / "mkdocs.yml").read_text()))
    assert listed == {str(p.relative_to(ROOT / "docs")) for p in (ROOT / "docs").rglob("*.md")}


def anchors_of(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading).lower().replace(" ", "-") for heading in headings}


def test_links_between_pages_lead_somewhere():
    for page in PAGES:
        for target, anchor in re.findall(r"\]\(([^)#\s]*)#?([^)\s]*)\)", page.read_text()):
            if "://" in target:
                continue
            linked = page.parent / target if target else page
            assert linked.exists(), f"{page.name} links to {target}"
            assert not anchor or anchor in anchors_of(linked), f"{page.name}: {target}#{anchor}"


@pytest.mark.parametrize(
    "page", [p for p in PAGES if p.name == "use.md"], ids=lambda p: str(p.relative_to(ROOT))
)
def test_a_use_page_is_short(page):
    assert len(page.read_text().split()) <= MOST_WORDS


@pytest.mark.parametrize("script", ["claims_table.py", "formats_table.py"])
def test_generated_tables_are_up_to_date(script):
    done = subprocess.run(
        [sys.executable, str(ROOT / "docs" / script), "--check"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
