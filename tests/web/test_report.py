"""The report in a real browser: it opens alone, answers the hand, and fits a phone."""

import functools
import runpy
from pathlib import Path

import pytest

from gnomon.datasets import bundled
from gnomon.report import write_html, write_site
from gnomon.systems.training.prediction import predict, source
from gnomon.systems.training.prediction import predict_result as predicted
from gnomon.systems.training.prediction import search_result as found

pytestmark = pytest.mark.browser

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
SAMPLE = Path(__file__).parents[1] / "report" / "sample.py"


@pytest.fixture(scope="module")
def browser(chromium):
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=FLAGS)
        yield browser
        browser.close()


def write_predictions(folder):
    """A prediction and a search, as `gnomon training predict` and `search` write them."""
    trace = source.read_recorded(bundled("h200-gpt-l6"))[0]
    told = predict.predict(trace, {"layers": 8, "tp": 2, "pp": 2, "accumulation": 4})
    write_html(predicted.to_result(told), folder / "prediction.html")
    layouts = found.find_layouts(trace, {"layers": 24, "hidden": 4096}, 8, on="serial")
    write_html(found.to_result(layouts), folder / "search.html")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    result = runpy.run_path(str(SAMPLE))["build_sample"]()
    folder = tmp_path_factory.mktemp("report")
    write_html(result, folder / "report.html")
    write_predictions(folder)
    write_site([result, result], folder / "site")
    return folder


@pytest.fixture
def visit(browser, folder):
    """Opens a page of the folder; at the end nothing may have gone wrong or left the machine."""
    contexts, wrong = [], []

    def open_page(name="report.html", width=1280, scheme="light", touch=False):
        context = browser.new_context(
            viewport={"width": width, "height": 900}, color_scheme=scheme, has_touch=touch
        )
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: wrong.append(message.text))
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("request", functools.partial(note_request, wrong, folder))
        page.goto((folder / name).as_uri())
        page.wait_for_timeout(150)
        return page

    yield open_page
    for context in contexts:
        for page in context.pages:
            assert page.evaluate("window.hacked") is None
        context.close()
    assert wrong == []


def note_request(wrong, folder, request):
    if not request.url.startswith((folder.as_uri(), "data:,")):
        wrong.append(f"request: {request.url}")


def column(page, table, number):
    cells = page.locator(f"#table-{table} tbody tr:visible td:nth-child({number})")
    return cells.all_text_contents()


def test_everything_is_there(visit):
    page = visit()
    assert page.locator(".figure").count() == 7
    assert page.locator(".wide svg.chart").count() == 6
    for chart in page.locator(".wide svg.chart").all():
        assert chart.locator(".mark").count() >= 4
        assert chart.bounding_box()["height"] > 80
    assert page.locator("table").count() == 2
    assert page.locator("tbody tr").count() == 125
    assert page.locator("nav a").all_text_contents() == [
        "Notes", "Charts", "Timeline", "Tables", "How was this computed"
    ]  # fmt: skip
    assert not page.locator("details .in").is_visible()
    page.click("summary")
    assert page.locator("details").get_by_text("rank2.json.gz").is_visible()


def test_tables_sort_by_click_and_by_key(visit):
    page = visit()
    head = page.locator("#table-1 th", has_text="speedup")
    head.locator("button").click()
    assert head.get_attribute("aria-sort") == "descending"
    assert [float(v) for v in column(page, 1, 3)] == [1.136, 1.073, 1.061, 1.026, 1.0]
    head.locator("button").press("Enter")
    assert head.get_attribute("aria-sort") == "ascending"
    assert [float(v) for v in column(page, 1, 3)] == [1.0, 1.026, 1.061, 1.073, 1.136]
    page.locator("#table-1 th button", has_text="change").click()
    assert head.get_attribute("aria-sort") == "none"
    names = column(page, 1, 1)
    assert names[0] == "as recorded"
    assert names[-1] == "twice the NIC bandwidth"
    page.locator("#table-2 th button", has_text="calls").click()
    calls = [int(v.replace(",", "")) for v in column(page, 2, 3)]
    assert calls == sorted(
        calls, reverse=True
    )  # numbers, not words: 9 before 1,000 would be wrong


def test_long_tables_filter(visit):
    page = visit()
    assert page.locator("#table-1 .find").count() == 0
    page.fill("#table-2 .find", "flash_fwd")
    names = column(page, 2, 1)
    assert 0 < len(names) < 20
    assert all("flash_fwd" in name for name in names)
    assert f"{len(names)} of 120 rows" in page.locator("#table-2 .count").inner_text()
    page.fill("#table-2 .find", "")
    assert len(column(page, 2, 1)) == 120


def test_charts_answer_the_pointer(visit):
    page = visit()
    bar = page.locator(".wide svg.chart .bar").first
    bar.hover()
    tip = page.locator("#tip")
    assert tip.is_visible()
    assert "compute: 262 ms" in tip.inner_text()
    assert "on" in bar.get_attribute("class").split()
    page.mouse.move(5, 5)
    assert not tip.is_visible()


# A coarse picture of the canvas: the mean colour of each of 64 x 8 tiles.
PICTURE = """canvas => {
  const small = document.createElement("canvas");
  small.width = 64; small.height = 8;
  const g = small.getContext("2d");
  g.drawImage(canvas, 0, 0, 64, 8);
  return [...g.getImageData(0, 0, 64, 8).data];
}"""


def drawn(page):
    """Waits until what was asked for is on the canvas: it is drawn at the next frame."""
    page.evaluate("() => new Promise(d => requestAnimationFrame(() => requestAnimationFrame(d)))")


def picture(page):
    drawn(page)
    return page.locator(".timeline canvas").evaluate(PICTURE)


def test_the_timeline_draws_zooms_and_moves(visit):
    page = visit()
    canvas = page.locator(".timeline canvas")
    canvas.scroll_into_view_if_needed()
    whole = picture(page)
    assert len(set(whole)) > 40  # not one colour
    page.click("[data-do=in]")
    closer = picture(page)
    assert closer != whole
    page.click("[data-do=all]")
    assert picture(page) == whole
    box = canvas.bounding_box()
    middle = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    page.mouse.move(*middle)
    page.mouse.wheel(0, -60)  # not ours before a click: the page must scroll
    assert picture(page) == whole
    canvas.scroll_into_view_if_needed()
    canvas.click()
    page.mouse.move(5, 5)
    focused = picture(page)
    canvas.hover()
    page.mouse.wheel(0, -400)
    page.mouse.move(5, 5)
    zoomed = picture(page)
    assert zoomed != focused
    box = canvas.bounding_box()
    page.mouse.move(box["x"] + 500, box["y"] + 5)
    page.mouse.down()
    page.mouse.move(box["x"] + 300, box["y"] + 5, steps=4)
    page.mouse.up()
    page.mouse.move(5, 5)
    assert picture(page) != zoomed
    canvas.press("0")
    assert picture(page) == focused
    canvas.press("+")
    closer = picture(page)
    assert closer != focused
    canvas.press("ArrowRight")
    assert picture(page) != closer


def test_the_timeline_names_spans_and_dims(visit):
    page = visit()
    canvas = page.locator(".timeline canvas")
    canvas.scroll_into_view_if_needed()
    for _ in range(4):
        page.click("[data-do=in]")
    drawn(page)
    box = canvas.bounding_box()
    for dx in range(150, 900, 25):  # the second lane is dense
        page.mouse.move(box["x"] + dx, box["y"] + 26 + 45 + 12)
        if page.locator("#tip").is_visible():
            break
    text = page.locator("#tip").inner_text()
    assert "rank 0 compute" in text
    assert "µs" in text
    canvas.click(position={"x": dx, "y": 26 + 45 + 12})
    assert "rank 0 compute" in page.locator(".picked").inner_text()
    page.mouse.move(5, 5)
    plain = picture(page)
    page.click("[data-do=critical]")
    assert page.locator("[data-do=critical]").get_attribute("aria-pressed") == "true"
    critical = picture(page)
    assert critical != plain
    page.click("[data-do=critical]")
    page.fill(".timeline .find", "nccl")
    assert picture(page) != plain
    page.fill(".timeline .find", "")
    page.locator(".kinds button").first.click()
    assert picture(page) != plain


def test_pinch_zooms(visit):
    page = visit(width=390, touch=True)
    canvas = page.locator(".timeline canvas")
    canvas.scroll_into_view_if_needed()
    before = picture(page)
    canvas.evaluate(
        """canvas => {
          const box = canvas.getBoundingClientRect();
          canvas.setPointerCapture = () => {};
          const fire = (type, id, x) => canvas.dispatchEvent(new PointerEvent(type, {
            pointerId: id, clientX: box.left + x, clientY: box.top + 60, pointerType: "touch" }));
          fire("pointerdown", 1, 180); fire("pointerdown", 2, 220);
          for (let i = 5; i <= 50; i += 5) {
            fire("pointermove", 1, 180 - i);
            fire("pointermove", 2, 220 + i);
          }
          fire("pointerup", 1, 130); fire("pointerup", 2, 270);
        }"""
    )
    assert picture(page) != before


def test_light_and_dark(visit):
    light, dark = visit(scheme="light"), visit(scheme="dark")
    paper = "getComputedStyle(document.body).backgroundColor"
    assert light.evaluate(paper) == "rgb(252, 252, 251)"
    assert dark.evaluate(paper) == "rgb(20, 23, 26)"
    assert light.screenshot() != dark.screenshot()
    canvas = light.locator(".timeline canvas")
    canvas.scroll_into_view_if_needed()
    before = picture(light)
    light.click("#theme")
    assert light.evaluate(paper) == "rgb(20, 23, 26)"
    assert light.locator("#theme").inner_text() == "Light"
    assert picture(light) != before
    light.reload()
    assert light.evaluate(paper) == "rgb(20, 23, 26)"  # the choice is kept


@pytest.mark.parametrize("name", ["report.html", "site/index.html", "site/training-replay.html"])
@pytest.mark.parametrize("width", [320, 390, 768])
def test_nothing_overflows(visit, name, width):
    page = visit(name, width=width)
    if page.locator("summary").count():
        page.click("summary")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    charts = page.locator("svg.chart:visible")
    for chart in charts.all():
        box = chart.bounding_box()
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= width


def test_the_site_leads_there_and_back(visit):
    page = visit("site/index.html")
    assert page.locator(".card").count() == 2
    page.locator(".card").first.click()
    page.wait_for_selector(".figure")
    page.click("text=All results")
    page.wait_for_selector(".card")
    assert page.url.endswith("/site/index.html")


def test_a_prediction_shows_its_waterfall_and_both_timelines(visit):
    page = visit("prediction.html")
    assert page.get_by_text("From base to prediction").first.is_visible()
    bars = page.locator("svg rect.bar")
    assert bars.count() > 8
    assert page.locator("canvas").count() >= 2
    assert page.locator("td", has_text="tensor parallelism").first.is_visible()


def test_a_search_shows_its_front(visit):
    page = visit("search.html", width=390)
    assert page.get_by_text("Pareto front").first.is_visible()
    assert page.locator("svg circle").count() > 5
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
