"""Result and its parts: what is accepted, what is refused, what it costs to import."""

import hashlib
import subprocess
import sys

import numpy as np
import pytest

from gnomon.errors import InputError
from gnomon.estimate import Estimate
from gnomon.report import Figure, Manifest, Result, compare, hash_input
from gnomon.report.result import flat_figures
from gnomon.table import Table


def test_a_figure_takes_numpy_and_words():
    assert Figure("a", "A", np.int64(3)).value == 3
    assert type(Figure("a", "A", np.float32(0.5)).value) is float
    assert Figure("a", "A", np.bool_(True)).value == "yes"
    assert Figure("a", "A", "words").number is None
    assert Figure("a", "A", Estimate(1, 2, 3), "ms").text == "2 ms"
    assert Figure("a", "A", Estimate.exact(2.0)).range_text == ""


@pytest.mark.parametrize("value", [float("nan"), float("inf"), None, [1]])
def test_a_figure_refuses_what_is_no_value(value):
    with pytest.raises(InputError, match="figure 'a'"):
        Figure("a", "A", value)


@pytest.mark.parametrize("name", ["", "Step", "step-ms", "1st", "a b", 'a"'])
def test_a_figure_refuses_names_that_other_formats_cannot_hold(name):
    with pytest.raises(InputError, match="name"):
        Figure(name, "A", 1)


def test_names_are_unique_ranges_included():
    with pytest.raises(InputError, match="two figures are called 'a_low'"):
        Result("x", "y", "t", figures=[Figure("a", "", Estimate(1, 2, 3)), Figure("a_low", "", 1)])
    with pytest.raises(InputError, match="two tables are called 't'"):
        Result("x", "y", "t", tables=[Table("t", {}), Table("t", {})])
    with pytest.raises(InputError, match="no name of a system"):
        Result("../x", "y", "t")


def test_figures_and_tables_by_name(sample):
    assert sample.figure("step_ms").value == 412.1
    assert len(sample.table("kernels")) == 120
    with pytest.raises(InputError, match="there are: step_ms"):
        sample.figure("nope")
    with pytest.raises(InputError, match="there are: what_if, kernels"):
        sample.table("nope")
    assert flat_figures(sample)["carbon_g_high"] == 0.74


def test_frames_of_a_result(sample):
    pytest.importorskip("polars")
    assert sample.to_polars("kernels").height == 120
    pytest.importorskip("pandas")
    assert len(sample.to_pandas("what_if")) == 5


def test_notebook_fragment_escapes(sample, hostile):
    page = sample._repr_html_()
    assert "<script" not in page
    assert "<img" not in page
    assert "<svg" in page
    assert "Step time" in page


def test_config_is_what_json_gives_back():
    manifest = Manifest(config={"a": (1, 2), "b": {"c": None}})
    assert manifest.config == {"a": [1, 2], "b": {"c": None}}


def test_hash_of_files_and_folders(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "b").write_bytes(b"bb")
    (tmp_path / "run" / "a").write_bytes(b"a")
    one = hash_input(tmp_path / "run" / "b")
    assert (one.name, one.bytes) == ("b", 2)
    assert one.sha256 == hashlib.sha256(b"bb").hexdigest()
    whole = hash_input(tmp_path / "run")
    assert (whole.name, whole.bytes) == ("run", 3)
    (tmp_path / "run" / "a").rename(tmp_path / "run" / "c")
    assert hash_input(tmp_path / "run").sha256 != whole.sha256
    with pytest.raises(InputError, match="No such file"):
        hash_input(tmp_path / "absent")


def test_importing_is_light():
    code = (
        "import sys, gnomon.report as r; "
        "heavy = {'jinja2', 'rich', 'polars', 'pandas', 'pyarrow', 'nanoarrow'}; "
        "heavy &= set(sys.modules); "
        "assert not heavy, heavy; r.write_html; r.print_result; "
        "assert 'jinja2' not in sys.modules and 'rich' not in sys.modules; "
        "assert set(r.__all__) <= set(dir(r)); [getattr(r, n) for n in r.__all__]; "
        "import gnomon.report.compare; assert callable(r.compare)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_unknown_names_are_attribute_errors():
    import gnomon.report

    with pytest.raises(AttributeError, match="nope"):
        gnomon.report.nope  # noqa: B018


@pytest.mark.parametrize(
    ("before", "after", "unit", "change", "verdict"),
    [
        (-30.0, -28.0, "%", 0.02, "same"),  # points, not a fifteenth
        (-30.0, -26.0, "%", 0.04, "worse"),
        (0.0, -4.0, "%", -0.04, "better"),
        (-30.0, -28.0, "kg", 1 / 15, "worse"),
        (0.0, 1.0, "kg", None, "worse"),
    ],
)
def test_percentages_are_compared_by_points(before, after, unit, change, verdict):
    a, b = (
        Result("batch", "run", "t", figures=[Figure("x", "X", value, unit, better="lower")])
        for value in (before, after)
    )
    (found,) = compare(a, b, max_regress=0.03).changes
    assert found.change == (None if change is None else pytest.approx(change))
    assert found.verdict == verdict
