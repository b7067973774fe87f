"""The page: self-contained, small, the same twice, and deaf to hostile names."""

import html.parser
import json
import re
import subprocess
import sys

import numpy as np
import pytest

from gnomon.report import (
    Figure,
    Manifest,
    Result,
    TimelineView,
    render_html,
    write_html,
    write_site,
)
from gnomon.report.html import light_markdown
from gnomon.table import Table


class Reader(html.parser.HTMLParser):
    """Elements with their attributes, and the text of each script."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.scripts, self._script = [], [], False
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        self._script = tag == "script"
        if self._script:
            self.scripts.append((dict(attrs), ""))

    def handle_endtag(self, tag):
        self._script = False

    def handle_data(self, data):
        if self._script:
            attrs, text = self.scripts[-1]
            self.scripts[-1] = attrs, text + data


@pytest.fixture(scope="module")
def page(sample):
    return render_html(sample)


def test_the_bare_page_is_small():
    bare = Result("training", "replay", "t")
    assert len(render_html(bare).encode()) < 60_000
    view = TimelineView("v", ["a"], ["k"], ["n"], [0], [0], [0], [0], [1])
    assert len(render_html(Result("a", "b", "t", timelines=[view])).encode()) < 60_000


def test_nothing_is_loaded_from_elsewhere(page):
    for tag, attributes in Reader(page).elements:
        for name in ("src", "href", "action", "data"):
            target = attributes.get(name)
            assert target is None or target.startswith(("#", "data:")), (tag, target)
    assert "http://" not in page
    assert "https://" not in page
    assert "@import" not in page


def test_hostile_names_stay_text(page, sample, hostile):
    reader = Reader(page)
    tags = [tag for tag, _ in reader.elements]
    assert "img" not in tags
    assert len(reader.scripts) == 3  # theme, data, page
    assert not any(name.startswith("on") for _, attrs in reader.elements for name in attrs)
    data = next(text for attrs, text in reader.scripts if attrs.get("type"))
    assert "<" not in data
    names = json.loads(data)["names"]
    assert set(hostile) <= set(names)


def test_hostile_everything(hostile):
    for text in hostile:
        result = Result(
            "a",
            "b",
            text,
            question=text,
            figures=[Figure("f", text, text, text, note=text)],
            tables=[
                Table(text, {text: [text], "n": np.array([1.0])}, {text: text}, {text: text}, text)
            ],
            timelines=[TimelineView(text, [text], [text], [text], [0], [0], [0], [0], [1])],
            how=[text, f"`{text}` **{text}**"],
            notes=[text],
            manifest=Manifest(text, {text: text}, None, text),
        )
        reader = Reader(render_html(result))
        assert len(reader.scripts) == 3
        assert "img" not in [tag for tag, _ in reader.elements]


def test_same_result_same_bytes_in_another_process(sample, tmp_path):
    code = (
        "import runpy, sys, hashlib; from gnomon.report import *; "
        "r = runpy.run_path(sys.argv[1])['build_sample'](); write_html(r, sys.argv[2]); "
        "write_json(r, sys.argv[2] + '.json'); print(to_prometheus(r))"
    )
    outputs = []
    for seed in "12":
        path = tmp_path / f"{seed}.html"
        script = str(__file__).replace("test_html.py", "sample.py")
        run = subprocess.run(
            [sys.executable, "-c", code, script, str(path)],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
            check=True,
            capture_output=True,
        )
        outputs.append(
            (run.stdout, path.read_bytes(), (tmp_path / f"{seed}.html.json").read_bytes())
        )
    assert outputs[0] == outputs[1]
    assert outputs[0][1].decode() == render_html(sample)


def test_ranges_share_a_cell_and_sort_keys_are_exact(page):
    assert "step_ms_low" not in page
    assert 'ch">355.0 – 371.9</span>' in page
    assert 'data-v="1.136"' in page


def test_long_tables_and_timelines_say_what_is_left_out():
    table = Table("t", {"a": np.arange(5000)})
    rows = 3000
    zeros, start = np.zeros(rows, int), np.arange(rows) * 10
    view = TimelineView("v", ["a"], ["k"], ["n"], zeros, zeros, zeros, start, start + 5)
    page = render_html(Result("a", "b", "t", tables=[table], timelines=[view]), max_spans=100)
    assert "The first 2,000 of 5,000 rows" in page
    assert "3,000 spans, drawn as " in page
    assert page.count("<tr>") == 2001


def test_infinity_nan_and_surrogates(tmp_path):
    table = Table(
        "t", {"a": np.array([np.nan, np.inf, -np.inf, 1.5]), "b": ["\ud800", "", "", ""]}
    )
    view = TimelineView("v\ud800", ["\ud800"], ["k"], ["\udfff"], [0], [0], [0], [0], [1])
    write_html(Result("a", "b", "t", tables=[table], timelines=[view]), tmp_path / "p.html")
    page = (tmp_path / "p.html").read_text("utf-8")
    assert re.findall(r'data-v="([^"]*)"', page) == ["", "Infinity", "-Infinity", "1.5"]


def test_light_markdown():
    assert str(light_markdown("**a** `b**c**` <i> ** x")) == (
        "<strong>a</strong> <code>b**c**</code> &lt;i&gt; ** x"
    )


def test_site(sample, tmp_path):
    other = Result(
        "carbon", "account", "Quarter", figures=[Figure("carbon_g", "Carbon", 3.5, "g")]
    )
    write_site([sample, other, sample], tmp_path / "site", title="Nightly <runs>")
    names = sorted(p.name for p in (tmp_path / "site").iterdir())
    assert names == [
        "carbon-account.html", "index.html", "training-replay-2.html", "training-replay.html"
    ]  # fmt: skip
    index = (tmp_path / "site" / "index.html").read_text()
    assert "Nightly &lt;runs&gt;" in index
    for name in names:
        page = (tmp_path / "site" / name).read_text()
        if name == "index.html":
            assert all(f'href="{other}"' in page for other in names if other != name)
        else:
            assert 'href="index.html"' in page
