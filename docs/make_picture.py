"""Takes the picture in the README: the report of the bundled trace, in a real browser.

python docs/make_picture.py
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

from gnomon.datasets import bundled
from gnomon.report import write_html
from gnomon.systems.training import replay_trace, to_result

TARGET = Path(__file__).parent / "assets" / "report.png"
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run"]


def main() -> None:
    result = to_result(replay_trace(bundled("h200-gpt-l6")), "gnomon training replay h200-gpt-l6")
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as play:
        page_file = Path(folder) / "report.html"
        write_html(result, page_file)
        browser = play.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
        page = browser.new_page(viewport={"width": 1100, "height": 1180})
        page.goto(page_file.as_uri())
        page.wait_for_timeout(500)
        TARGET.parent.mkdir(exist_ok=True)
        page.screenshot(path=TARGET)
        browser.close()
    print(f"wrote {TARGET}")


if __name__ == "__main__":
    main()
