"""Makes the pictures of the pages: charts of commands' results, and the report in a real browser.

python docs/make_pictures.py charts
python docs/make_pictures.py report
"""

from __future__ import annotations

import shlex
import shutil
import sys
import tempfile
from pathlib import Path

from gnomon import report
from gnomon.cli import main as gnomon
from gnomon.datasets import bundled
from gnomon.report.charts.svg import render_chart
from gnomon.systems.training import replay_trace, to_result

ASSETS = Path(__file__).parent / "assets"
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run"]
#: File, command, and which of the result's charts.
CHARTS = [
    ("batch_policies.svg", "batch run --grid DE --policy fifo,cap:fifo,pcaps+:fair --trials 3", 0),
    (
        "carbon_added.svg",
        "carbon place --fleet bundled:mit-740 --zone 10 --year 2024 --utilisation 58",
        0,
    ),
    ("carbon_signal.svg", "carbon signal DE --from 2024-06-01 --to 2024-06-08 --forecast 48h", 0),
]


def draw_charts() -> None:
    for name, command, place in CHARTS:
        with tempfile.TemporaryDirectory() as folder:
            gnomon([*shlex.split(command), "--save", f"{folder}/result"])
            chart = report.load(f"{folder}/result").charts[place]
        (ASSETS / name).write_text(render_chart(chart, standalone=True))


def take_report() -> None:
    from playwright.sync_api import sync_playwright

    result = to_result(replay_trace(bundled("h200-gpt-l6")), "gnomon training replay h200-gpt-l6")
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as play:
        page_file = Path(folder) / "report.html"
        report.write_html(result, page_file)
        browser = play.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
        page = browser.new_page(viewport={"width": 1100, "height": 1180})
        page.goto(page_file.as_uri())
        page.wait_for_timeout(500)
        page.screenshot(path=ASSETS / "report.png")
        browser.close()


if __name__ == "__main__":
    {"charts": draw_charts, "report": take_report}[sys.argv[1]]()
