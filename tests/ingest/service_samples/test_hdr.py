"""HdrHistograms: what libraries encode comes back, in every version; damage gets a line."""

from __future__ import annotations

import base64

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon.errors import InputError
from gnomon.ingest.samples.hdr_histogram import decode_histogram
from gnomon.ingest.samples.read import read_samples
from tests.ingest.service_samples.encode import as_log, bucket_of, encode

COUNTS = st.dictionaries(st.integers(0, 2**40), st.integers(1, 2**40), max_size=20)
BIMODAL = {5_000: 995, 500_000: 5}
HGRM = """  Detailed Percentile spectrum:
       Value   Percentile   TotalCount 1/(1-Percentile)

       1.000     0.000000            1         1.00
       2.000     0.500000           50         2.00
       2.000     0.750000           50         4.00
      50.000     0.990625          100       106.67
      50.000     1.000000          100          inf
#[Mean    =       25.990, StdDeviation   =       24.000]
#[Max     =       50.000, Total count    =          100]
#[Buckets =           27, SubBuckets     =         2048]
  100 requests in 1.00s
"""


@given(COUNTS, st.integers(0, 5), st.sampled_from([0, 0, 10]), st.booleans())
def test_prop_what_was_encoded_comes_back(values, digits, unit, is_packed):
    found = decode_histogram(encode(values, digits, unit=unit, is_packed=is_packed))
    wanted: dict[int, list[int]] = {}
    for value, count in values.items():
        place, low, high = bucket_of(value, digits, unit)
        wanted.setdefault(place, [low, high, 0])[2] += count
    assert found.counts.tolist() == [wanted[place][2] for place in sorted(wanted)]
    for place, middle, top in zip(sorted(wanted), found.value.tolist(), found.top.tolist()):
        low, high, _ = wanted[place]
        assert low <= middle <= high + 1
        assert top == high


@pytest.mark.parametrize(("version", "word"), [(0, 2), (0, 8), (1, 2), (1, 4), (1, 8)])
@pytest.mark.parametrize("is_packed", [True, False])
def test_older_versions(version, word, is_packed):
    found = decode_histogram(encode(BIMODAL, version=version, word=word, is_packed=is_packed))
    assert found.counts.tolist() == [995, 5]
    np.testing.assert_allclose(found.value, [5_000, 500_000], rtol=1e-3)


def test_floating_point_values():
    found = decode_histogram(encode(BIMODAL, ratio=0.25))
    np.testing.assert_allclose(found.value, [1_250, 125_000], rtol=1e-3)


@pytest.mark.parametrize("how", [{}, {"version": 1}, {"version": 0}, {"is_packed": False}])
def test_a_histogram_that_is_cut_short_is_refused(how):
    whole = encode(BIMODAL, **how)
    for size in (0, 3, 7, 30, len(whole) - 1):
        with pytest.raises(InputError, match=r"early|damaged|cookie"):
            decode_histogram(whole[:size])


def test_a_log_with_tags_and_a_hundred_million_counts(tmp_path):
    path = tmp_path / "a.hlog"
    path.write_text(
        as_log(("GET", {5_000: 10**8}), ("SCAN", {500_000: 7}), ("GET", {6_000: 1}), ("", {}))
    )
    samples = read_samples(path)
    assert len(samples) == 10**8 + 8
    assert samples.kinds == ("GET", "SCAN")
    assert samples.is_latency
    np.testing.assert_allclose(samples.time_ns, [5_000, 6_000, 500_000], rtol=1e-3)
    assert samples.counts.tolist() == [10**8, 1, 7]
    assert "4 intervals" in samples.notes[0]
    assert "in ns" in samples.notes[0]


def test_the_unit_of_a_log(tmp_path):
    path = tmp_path / "a.hlog"
    path.write_text(as_log(("", BIMODAL), shown=1e3))  # values in us, maxima in ms
    assert read_samples(path).time_ns[-1] == pytest.approx(500_000_000, rel=1e-3)
    path.write_text(as_log(("", BIMODAL), shown=1.0))
    with pytest.raises(InputError, match=r"nothing says the unit .*--unit ns, us, ms or s"):
        read_samples(path)
    assert read_samples(path, unit="us").time_ns[-1] == pytest.approx(500_000_000, rel=1e-3)
    path.write_text(as_log(("", BIMODAL), comment="#[Logging for: READ]"))
    assert read_samples(path).time_ns[-1] == pytest.approx(500_000_000, rel=1e-3)


def test_service_times_of_cassandra_stress_are_taken_alone(tmp_path):
    path = tmp_path / "a.hlog"
    parts = [("READ-st", {1_000: 9}), ("READ-rt", {90_000: 9}), ("READ-wt", {89_000: 9})]
    path.write_text(as_log(*parts))
    samples = read_samples(path)
    assert samples.kinds == ("READ",)
    assert not samples.is_latency
    assert len(samples) == 9
    path.write_text(as_log(("READ-st", {1_000: 9}), ("", {2_000: 1})))  # somebody else's tags
    assert read_samples(path).is_latency
    assert read_samples(path).kinds == ("READ-st", "(no name)")


LINE = as_log(("", BIMODAL)).splitlines()[-1]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (as_log(), "holds no time"),
        (as_log(("", {})), "holds no time"),
        (as_log(("", BIMODAL))[:-9], "line 6: "),
        (as_log(("", BIMODAL)).replace("HIST", "HISX"), "line 6: no encoded HdrHistogram"),
        (as_log(("", BIMODAL)) + "Ta=x" + LINE + "\n", "line 7: no interval"),
        (as_log(("", BIMODAL)) + LINE.replace("0.127", "0.1a7") + "\n", "line 7: no interval"),
        (as_log(("", BIMODAL)) + LINE.rpartition(",")[0] + "\n", "line 7: no interval"),
        (as_log(("", BIMODAL)) + LINE.replace(",HIST", ",=HIST") + "\n", "line 7: "),
        (as_log(("", {2**55: 1})), "more than a day"),
    ],
)  # fmt: skip
def test_damaged_logs_get_a_line(tmp_path, text, says):
    path = tmp_path / "a.hlog"
    path.write_text(text)
    with pytest.raises(InputError, match=says) as error:
        read_samples(path)
    assert "\n" not in str(error.value)


def test_damage_of_any_bit_is_refused_or_read(tmp_path):
    whole = bytearray(encode(BIMODAL))
    for at in range(8 * len(whole)):
        whole[at // 8] ^= 1 << at % 8
        try:
            decode_histogram(bytes(whole))
        except InputError as error:
            assert "\n" not in str(error)
        whole[at // 8] ^= 1 << at % 8
    assert decode_histogram(base64.b64decode(base64.b64encode(bytes(whole)))).counts.sum() == 1000


@pytest.mark.parametrize("separator", [" ", ","])
def test_percentile_distributions(tmp_path, separator):
    text = HGRM
    if separator == ",":  # as the libraries write CSV, without a footer
        rows = [
            "1.000,0.0,1,1.00",
            "2.000,0.5,50,2.00",
            "50.000,0.990625,100,106.67",
            "50.000,1.0,100,Infinity",
        ]
        text = '"Value","Percentile","TotalCount","1/(1-Percentile)"\n' + "\n".join(rows) + "\n"
    path = tmp_path / "a.hgrm"
    path.write_text(text)
    samples = read_samples(path)
    # Two modes: nothing is put between 2 and 50 ms.
    assert samples.time_ns.tolist() == [1_000_000, 2_000_000, 50_000_000]
    assert samples.counts.tolist() == [1, 49, 50]
    assert samples.is_latency
    assert read_samples(path, unit="us").time_ns.max() == 50_000
    assert "in ms (--unit" in samples.notes[0]


def test_times_between_near_lines_are_counted_in_the_middle(tmp_path):
    path = tmp_path / "a.hgrm"
    path.write_text(HGRM.replace("      50.000", "       2.400").replace("= 50", "= 2.4"))
    assert read_samples(path).time_ns.tolist() == [1_000_000, 2_000_000, 2_200_000]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (HGRM.partition("      50.000     1.0")[0], "ends early"),
        (HGRM.replace("          100]", "          200]"), "ends early"),
        (HGRM.replace("2.000     0.75", "1.500     0.75"), "line 6: values and counts have to rise"),
        (HGRM.partition("\n\n")[0] + "\n", "ends early"),
    ],
)  # fmt: skip
def test_damaged_distributions_get_a_line(tmp_path, text, says):
    path = tmp_path / "a.hgrm"
    path.write_text(text)
    with pytest.raises(InputError, match=says):
        read_samples(path)
