"""Folder, JSON, Prometheus, CSV, terminal, comparison."""

import io
import json
import re

import msgspec
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rich.console import Console

from gnomon.errors import InputError
from gnomon.estimate import Estimate
from gnomon.report import (
    BarChart,
    Bars,
    Figure,
    InputFile,
    Line,
    LineChart,
    Manifest,
    Result,
    ScatterChart,
    TimelineView,
    compare,
    load,
    print_result,
    save,
    to_json,
    to_prometheus,
    write_csv,
    write_json,
)
from gnomon.table import Dictionary, Table, read_arrow

# --- folder -------------------------------------------------------------------------------------


def test_a_saved_result_loads_equal(sample, tmp_path):
    save(sample, tmp_path / "run")
    assert load(tmp_path / "run") == sample
    files = sorted(p.relative_to(tmp_path / "run").as_posix() for p in tmp_path.rglob("*.*"))
    assert files == [
        "manifest.json",
        "result.json",
        "tables/00-what-if.arrow",
        "tables/01-kernels.arrow",
        "timelines/00-one-step-on-4-ranks.arrow",
    ]
    assert [p.name for p in tmp_path.iterdir()] == ["run"]
    spans = read_arrow(tmp_path / "run" / files[-1])
    assert spans["lane"][0].startswith("rank")


def test_saving_twice_gives_the_same_bytes_and_replaces(sample, tmp_path):
    def contents():
        files = sorted((tmp_path / "run").rglob("*.*"))
        return [(p.name, p.read_bytes()) for p in files]

    save(sample, tmp_path / "run")
    first = contents()
    with pytest.raises(InputError, match="holds a result already"):
        save(Result("a", "b", "other"), tmp_path / "run")
    assert contents() == first
    save(Result("a", "b", "other"), tmp_path / "run", overwrite=True)
    assert load(tmp_path / "run").title == "other"
    save(sample, tmp_path / "run", overwrite=True)
    assert contents() == first


def test_other_folders_are_not_overwritten(sample, tmp_path):
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "thesis.tex").write_text("dear")
    with pytest.raises(InputError, match=r"not a result folder \(thesis.tex\)"):
        save(sample, tmp_path / "home")
    assert (tmp_path / "home" / "thesis.tex").read_text() == "dear"
    with pytest.raises(InputError, match="not a result folder"):
        save(sample, tmp_path / "home", overwrite=True)  # not even on purpose
    save(sample, tmp_path / "kept")
    (tmp_path / "kept" / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match=r"notes\.txt"):
        save(sample, tmp_path / "kept", overwrite=True)
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="is a file"):
        save(sample, tmp_path / "file", overwrite=True)
    (tmp_path / "empty").mkdir()
    save(sample, tmp_path / "empty")
    save(sample, tmp_path / "deep" / "er")
    assert {p.name for p in tmp_path.iterdir()} == {"home", "kept", "file", "empty", "deep"}


def test_a_failed_save_leaves_the_old_result(tmp_path):
    save(Result("a", "b", "old"), tmp_path / "run")
    bad = Result("a", "b", "new", tables=[Table("t", {"a": ["\ud800"]})])
    with pytest.raises(InputError, match="surrogate"):
        save(bad, tmp_path / "run", overwrite=True)
    with pytest.raises(InputError, match="surrogate"):
        save(Result("a", "b", "\ud800"), tmp_path / "run", overwrite=True)
    assert load(tmp_path / "run").title == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["run"]


def test_bad_folders_give_one_line(sample, tmp_path):
    run = tmp_path / "run"

    def refused(words):
        with pytest.raises(InputError, match=words) as error:
            load(run)
        assert "\n" not in str(error.value)

    refused("is not a folder")
    run.mkdir()
    refused(r"manifest.json: cannot be read.*is this a saved result")
    for name, words in (("manifest.json", "manifest.json"), ("result.json", "result.json")):
        save(sample, run, overwrite=True)
        sound = (run / name).read_bytes()
        for data in (b"", b"{", b"[]", b'{"schema": 3}', b"\xff\xfe", b"[" * 100_000):
            (run / name).write_bytes(data)
            refused(words)
        (run / name).write_bytes(sound.replace(b"gnomon.result/1", b"gnomon.result/9"))
        refused("unknown schema 'gnomon.result/9'")
    save(sample, run, overwrite=True)
    index = json.loads((run / "result.json").read_bytes())
    for name in ("../../etc/passwd", "/etc/passwd", "sub/x.arrow", "..", ""):
        index["tables"] = [name]
        (run / "result.json").write_text(json.dumps(index))
        refused("not a name inside|cannot be read|Is a directory")
    save(sample, run, overwrite=True)
    (run / "tables" / "00-what-if.arrow").unlink()
    refused("00-what-if.arrow: cannot be read")
    save(sample, run, overwrite=True)
    view = run / "timelines" / "00-one-step-on-4-ranks.arrow"
    view.unlink()
    view.write_bytes((run / "tables" / "01-kernels.arrow").read_bytes())
    refused("is not a timeline")


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=10)
floats = st.floats(allow_nan=False, allow_infinity=False, width=32)
names = st.from_regex(r"[a-z][a-z0-9]{0,8}", fullmatch=True)
estimates = st.lists(floats, min_size=3, max_size=3).map(lambda v: Estimate(*sorted(v)))
figures = st.builds(
    Figure,
    names,
    texts,
    st.one_of(st.integers(-(2**60), 2**60), floats, texts, estimates),
    texts,
    st.sampled_from([None, "lower", "higher"]),
    texts,
)
gaps = st.none() | st.floats(width=32)
charts = st.one_of(
    st.builds(
        lambda t, v: LineChart(t, [Line(t, list(range(len(v))), v)]),
        texts,
        st.lists(gaps, max_size=4),
    ),
    st.builds(
        lambda t, v: BarChart(t, ["c"] * len(v), [Bars("s", v)]), texts, st.lists(gaps, max_size=4)
    ),
    st.builds(lambda t, v: ScatterChart(t, v, v), texts, st.lists(gaps, max_size=4)),
)
tables = st.builds(
    lambda name, words, caption: Table(
        name,
        {"w": words, "d": Dictionary.of(words), "n": np.arange(len(words)) / 3},
        {"n": "ms"},
        caption=caption,
    ),
    texts,
    st.lists(texts, max_size=4),
    texts,
)
views = st.builds(
    lambda title, starts, crit: TimelineView(
        title, ["l"], ["k"], ["n", "unused"], [0] * len(starts), [0] * len(starts),
        [0] * len(starts), starts, starts, [True] * len(starts) if crit else None,
    ),
    texts,
    st.lists(st.integers(0, 2**60), max_size=4),
    st.booleans(),
)  # fmt: skip
results = st.builds(
    Result,
    names,
    names,
    texts,
    texts,
    st.lists(figures, max_size=3, unique_by=lambda f: f.name),
    st.lists(tables, max_size=2, unique_by=lambda t: t.name),
    st.lists(charts, max_size=2),
    st.lists(views, max_size=2),
    st.lists(texts, max_size=2),
    st.lists(texts, max_size=2),
    st.builds(
        Manifest,
        texts,
        st.dictionaries(texts, st.one_of(texts, floats, st.booleans(), st.none()), max_size=2),
        st.none() | st.integers(0, 2**60),
        texts,
        st.lists(st.builds(InputFile, texts, st.integers(0, 2**60), texts), max_size=2),
    ),
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(result=results)
def test_prop_folders_give_back_what_was_saved(tmp_path_factory, result):
    folder = tmp_path_factory.getbasetemp() / "prop-run"
    save(result, folder, overwrite=True)
    assert load(folder) == result
    json.loads(to_json(result))
    to_prometheus(result)


# --- JSON, CSV, Prometheus --------------------------------------------------------------------


def test_json_is_flat_and_finite(sample, tmp_path):
    data = json.loads(to_json(sample), parse_constant=lambda c: pytest.fail(c))
    assert data["figures"]["step_ms"] == 412.1
    assert data["figures"]["predicted_step_ms_low"] == 405.2
    assert data["units"]["step_ms"] == "ms"
    assert data["better"]["mfu"] == "higher"
    assert len(data["tables"]["kernels"]["columns"]["total_ms"]) == 120
    assert data["manifest"]["seed"] == 7
    rows = json.loads(to_json(sample, tables="rows"))["tables"]["what_if"]["rows"]
    assert rows[1]["change"] == "twice the NIC bandwidth"
    write_json(sample, tmp_path / "r.json")
    assert (tmp_path / "r.json").read_text() == to_json(sample)
    gap = Result("a", "b", "t", tables=[Table("t", {"a": np.array([np.nan, 1])})])
    assert json.loads(to_json(gap))["tables"]["t"]["columns"]["a"] == [None, 1.0]


def test_json_begins_with_what_a_command_promises(sample):
    found = json.loads(to_json(sample, extra={"ranks": 8, "steps": [{"step": "1"}]}))
    assert list(found)[:3] == ["ranks", "steps", "schema"]
    assert found["steps"] == [{"step": "1"}]
    assert {k: v for k, v in found.items() if k not in ("ranks", "steps")} == json.loads(
        to_json(sample)
    )
    with pytest.raises(InputError, match="'figures' is a key that every result has"):
        to_json(sample, extra={"figures": 1, "ranks": 8})


def test_csv_per_table(sample, tmp_path):
    paths = write_csv(sample, tmp_path / "csv")
    assert [p.name for p in paths] == ["what-if.csv", "kernels.csv"]
    assert paths[0].read_text().splitlines()[0].startswith("change,step_ms,step_ms_low")
    clash = Result("a", "b", "t", tables=[Table("x y", {}), Table("x-y", {})])
    assert [p.name for p in write_csv(clash, tmp_path)] == ["x-y.csv", "x-y-2.csv"]


UNESCAPE = {"\\\\": "\\", "\\n": "\n", '\\"': '"'}


def parse_exposition(text: str) -> dict:
    """A small reader of the text format, strict about what it accepts."""
    samples = {}
    for line in text.splitlines():
        if line.startswith("#"):
            assert re.fullmatch(r"# (HELP|TYPE) [a-z_0-9]+ .*", line)
            continue
        match = re.fullmatch(
            r'([a-zA-Z_:][a-zA-Z0-9_:]*)\{((?:[a-zA-Z_]\w*="(?:[^"\\\n]|\\[\\n"])*",?)*)\} (\S+)',
            line,
        )
        assert match, line
        labels = re.findall(r'([a-zA-Z_]\w*)="((?:[^"\\]|\\.)*)"', match[2])
        samples[match[1]] = (
            {k: re.sub(r'\\[\\n"]', lambda m: UNESCAPE[m[0]], v) for k, v in labels},
            float(match[3]),
        )
    return samples


def test_prometheus_text(sample, hostile):
    samples = parse_exposition(to_prometheus(sample, {"run": 'a"b\\c\nd'}))
    labels, value = samples["gnomon_training_step_ms"]
    assert value == 412.1
    assert labels == {"verb": "replay", "run": 'a"b\\c\nd'}
    assert samples["gnomon_training_carbon_g_low"][1] == 0.51
    words, one = samples["gnomon_training_bottleneck_info"]
    assert (words["value"], one) == ("all-reduce of layer 31 on rank 2", 1)
    odd = Result("a-b", "c", "t", figures=[Figure("f", "two\nlines \\", hostile[0])])
    assert parse_exposition(to_prometheus(odd))["gnomon_a_b_f_info"][0]["value"] == hostile[0]
    for label in ("a-b", "__name__", "1", ""):
        with pytest.raises(InputError, match="label"):
            to_prometheus(sample, {label: "x"})


# --- terminal -----------------------------------------------------------------------------------


def printed(result, **options) -> str:
    out = io.StringIO()
    print_result(result, Console(file=out, highlight=False, **options))
    return out.getvalue()


def test_terminal_is_plain_when_piped(sample):
    text = printed(sample, width=160)
    assert "\x1b" not in text
    assert text.index("412.1 ms") < text.index("twice the NIC bandwidth") < text.index("! 3 of")
    assert "(405.2 – 419.8)" in text
    assert "… 80 more rows" in text
    assert "step_ms_low" not in text
    assert "held-out kernels" in text
    assert "`" not in text


@pytest.mark.parametrize("width", [20, 40, 80])
def test_narrow_terminals(sample, width):
    text = printed(sample, width=width)
    assert max(len(line) for line in text.splitlines()) <= width


def test_colours_and_brackets_on_a_terminal():
    result = Result(
        "a", "b", "op[bold]x[/]", figures=[Figure("f", "[red]", "[/nope]")], notes=["[link]"],
        tables=[Table("t", {"[b]": ["[/i]"]}, {"[b]": "[u]"})],
    )  # fmt: skip
    text = printed(result, force_terminal=True, width=100)
    assert "\x1b[" in text
    for word in ("op[bold]x[/]", "[red]", "[/nope]", "[link]", "[/i]"):
        assert word in text


def test_standard_output_by_default(sample, capsys, monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    print_result(sample)
    out = capsys.readouterr().out
    assert "twice the NIC bandwidth" in out
    assert "\x1b" not in out


# --- comparison ---------------------------------------------------------------------------------


def result_of(**values) -> Result:
    better = {"low": "lower", "high": "higher"}
    return Result(
        "training", "replay", "run",
        figures=[Figure(n, n.title(), v, "ms", better.get(n)) for n, v in values.items()],
    )  # fmt: skip


@pytest.mark.parametrize(
    ("name", "before", "after", "verdict"),
    [
        ("low", 100, 103, "same"),
        ("low", 100, 103.1, "worse"),
        ("low", 100, 90, "better"),
        ("high", 100, 96, "worse"),
        ("high", 100, 104, "better"),
        ("low", -100, -90, "worse"),
        ("low", 0, 0, "same"),
        ("low", 0, 1, "worse"),
        ("high", 0, 1, "better"),
        ("plain", 1, 2, "changed"),
        ("plain", "a", "a", "same"),
        ("plain", "a", "b", "changed"),
        ("low", Estimate(90, 100, 110), Estimate(95, 108, 120), "worse"),
    ],
)
def test_verdicts(name, before, after, verdict):
    comparison = compare(result_of(**{name: before}), result_of(**{name: after}), 0.03)
    assert comparison.changes[0].verdict == verdict
    assert comparison.regressed == (verdict == "worse")


def test_new_missing_and_as_a_result(tmp_path):
    before, after = (
        result_of(low=Estimate(90, 100, 110), plain=1),
        result_of(low=Estimate(95, 108, 120), high=2),
    )
    comparison = compare(before, after, 0.03)
    assert {c.name: c.verdict for c in comparison.changes} == {
        "low": "worse", "plain": "missing", "high": "new"
    }  # fmt: skip
    result = comparison.to_result()
    assert result.figure("regressed").value == "yes"
    assert any("ranges overlap" in note for note in result.notes)
    assert result.table("changes")["verdict"] == ["worse", "missing", "new"]
    save(result, tmp_path / "c")
    assert load(tmp_path / "c") == result
    compare(result_of(), result_of(), 0.0).to_result()
    compare(result_of(plain="a"), result_of(plain="b"), 0.0).to_result()


def test_comparisons_that_make_no_sense():
    other = Result("carbon", "account", "t")
    with pytest.raises(InputError, match="'training' cannot be compared"):
        compare(result_of(), other, 0.1)
    for limit in (-0.1, float("nan")):
        with pytest.raises(InputError, match="at least 0"):
            compare(other, other, limit)
    a = Result("x", "y", "t", figures=[Figure("f", "F", 1, "ms")])
    b = msgspec.structs.replace(a, figures=[Figure("f", "F", 1, "s")])
    with pytest.raises(InputError, match="was in 'ms' and is in 's'"):
        compare(a, b, 0.1)


def test_a_result_equals_itself_under_comparison(sample):
    comparison = compare(sample, sample, 0.0)
    assert {c.verdict for c in comparison.changes} == {"same"}
    assert not comparison.regressed
