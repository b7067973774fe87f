"""Tables: built from rows, kept in files, handed to others."""

import csv
import io
import json
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gnomon.errors import InputError, MissingExtra
from gnomon.table import Dictionary, ListOf, Table, format_column, format_value, write_arrow


class Guess:
    low, mid, high = 1.0, 2.0, 4.0


@pytest.fixture
def table() -> Table:
    return Table(
        "ops",
        {
            "name": ["void k<int>", "b", "ü"],
            "kind": Dictionary.of(["gemm", "copy", "gemm"]),
            "calls": np.array([3, 1, 2], np.int32),
            "time_ms": np.array([1.5, np.nan, 20.25]),
            "hot": np.array([True, False, True]),
        },
        units={"time_ms": "ms"},
        descriptions={"calls": "how often"},
        caption="Operators",
    )


def test_from_rows_finds_types_and_fills_gaps():
    table = Table.from_rows(
        "t",
        [
            {"a": 1, "b": 1.5, "c": "x", "d": True, "e": 1},
            {"a": 2, "b": 2, "c": None, "d": False},
        ],
    )
    assert [table[n].dtype.kind for n in "abd"] == ["i", "f", "b"]
    assert table["c"] == ["x", ""]
    assert table["e"][0] == 1.0
    assert np.isnan(table["e"][1])
    assert table.is_number("a")
    assert not table.is_number("c")


def test_an_estimate_becomes_three_columns():
    table = Table.from_rows("t", [{"x": Guess(), "n": "a"}])
    assert list(table.columns) == ["x", "x_low", "x_high", "n"]
    bounds = table.bounds("x")
    assert bounds is not None
    assert (bounds[0][0], bounds[1][0]) == (1.0, 4.0)
    assert table.bounds("n") is None


def test_wrong_tables_are_refused():
    with pytest.raises(InputError, match="'b' has 3 rows, column 'a' has 2"):
        Table("t", {"a": np.zeros(2), "b": np.zeros(3)})
    with pytest.raises(InputError, match="mixes"):
        Table.from_rows("t", [{"a": 1}, {"a": "x"}])
    with pytest.raises(InputError, match="lists"):
        Table("t", {"a": ListOf(np.array([0]), np.zeros(0))})
    with pytest.raises(InputError, match="flat array"):
        Table("t", {"a": np.array([None])})
    with pytest.raises(InputError, match="no such column"):
        Table("t", {}, units={"a": "ms"})
    with pytest.raises(InputError, match="no column 'z'; there are: a"):
        _ = Table("t", {"a": np.zeros(2)})["z"]


def test_file_round_trip(tmp_path, table):
    table.write(tmp_path / "t.arrow")
    assert Table.read(tmp_path / "t.arrow") == table
    write_arrow(tmp_path / "plain.arrow", {"a": np.arange(2)})
    assert Table.read(tmp_path / "plain.arrow").name == "plain"
    write_arrow(tmp_path / "bad.arrow", {"a": np.arange(2)}, {"gnomon.table": "{"})
    with pytest.raises(InputError, match=r"bad.arrow: .*damaged"):
        Table.read(tmp_path / "bad.arrow")
    write_arrow(tmp_path / "l.arrow", {"a": ListOf(np.array([0, 1]), np.zeros(1))})
    with pytest.raises(InputError, match=r"l.arrow: .*lists"):
        Table.read(tmp_path / "l.arrow")


def test_others_take_it_through_the_capsule(table):
    pl = pytest.importorskip("polars")
    pa = pytest.importorskip("pyarrow")
    frame = pl.DataFrame(table)
    theirs = pa.table(table)
    for name in table.columns:
        ours = [row[name] for row in table.rows()]
        for other in (frame[name].to_list(), theirs[name].to_pylist()):
            np.testing.assert_array_equal(other, ours)
    empty = Table("e", {"a": np.zeros(0), "s": []})
    assert pl.DataFrame(empty).shape == (0, 2)
    assert pl.from_arrow(table).struct.field("calls").to_list() == [3, 1, 2]
    theirs.validate(full=True)


def test_frames(table):
    pytest.importorskip("polars")
    frame = table.to_polars()
    assert frame["kind"].to_list() == ["gemm", "copy", "gemm"]
    assert str(frame["kind"].dtype) == "Categorical"
    pytest.importorskip("pandas")
    frame = table.to_pandas()
    assert list(frame.columns) == list(table.columns)
    assert frame["kind"].tolist() == ["gemm", "copy", "gemm"]


@pytest.mark.parametrize("package", ["polars", "pandas"])
def test_a_missing_extra_gives_the_install_line(monkeypatch, table, package):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtra, match=r"pip install 'gnomon\[tables\]'"):
        getattr(table, f"to_{package}")()


def test_csv_and_json(tmp_path, table):
    rows = list(csv.DictReader(io.StringIO(table.to_csv())))
    assert rows[0]["name"] == "void k<int>"
    assert rows[1]["time_ms"] == ""
    table.write_csv(tmp_path / "t.csv")
    assert (tmp_path / "t.csv").read_text() == table.to_csv()
    assert json.loads(json.dumps(table.to_json_rows(), allow_nan=False))[1]["time_ms"] is None


def test_notebook_escapes_and_cuts(table):
    page = table._repr_html_()
    assert "void k&lt;int&gt;" in page
    assert "<small>ms</small>" in page
    long = Table("n", {"a": np.arange(1000)})._repr_html_()
    assert long.count("<tr>") == 51
    assert "1,000 rows" in long


def test_numbers_stand_in_line():
    assert format_column(np.array([0.5, 12.25, 100.0])) == ["0.50", "12.25", "100.00"]
    assert format_column(np.array([1.0, 1000.0])) == ["1", "1,000"]
    assert format_column(np.array([1e-9, 2e-9])) == ["1.00e-09", "2.00e-09"]
    assert format_column(np.array([0.0, np.inf, -np.inf])) == ["0", "∞", "−∞"]
    assert format_column(np.array([12345.678, 1.0])) == ["12,345.7", "1.0"]
    assert format_value(None) == "–"


@settings(max_examples=300, deadline=None)
@given(st.floats(-1e300, 1e300) | st.just(np.inf) | st.just(np.nan))
def test_prop_format_keeps_four_figures(value):
    text = format_value(value)
    assert len(text) < 25
    if np.isfinite(value) and value:
        assert float(text.replace(",", "")) == pytest.approx(value, rel=6e-3)


@settings(deadline=None)
@given(
    st.lists(
        st.fixed_dictionaries(
            {
                "a": st.integers(-(2**40), 2**40),
                "b": st.floats(allow_nan=False),
                "c": st.text("aé<"),
            }
        ),
        max_size=6,
    )
)
def test_prop_rows_come_back(rows):
    assert list(Table.from_rows("t", rows).rows()) == rows
