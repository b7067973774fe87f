"""Tables of times: load testers' own, anyone's with a header, bare numbers."""

from __future__ import annotations

import gzip

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon.errors import InputError
from gnomon.ingest.samples.read import read_samples
from gnomon.ingest.samples.samples import SampleRows

JMETER = (
    "timeStamp,elapsed,label,responseCode,responseMessage,success,bytes,Latency\n"
    "1662749136019,170,get page,200,OK,true,1430,162\n"
    '1662749136192,44,get page,200,"OK, then",true,1430,44\n'
    "1662749136237,0,post,200,OK,true,1430,43\n"
    "1662749136281,3,post,Non HTTP response code: Timeout,gone,false,0,0\n"
)
HEY = (
    "response-time,DNS+dialup,DNS,Request-write,Response-delay,Response-read,status-code,offset\n"
    "0.0087,0.0047,0.0042,0.0001,0.0019,0.0001,200,0.0016\n0.0100,0,0,0,0,0,500,0.1\n"
)
K6 = (
    "metric_name,timestamp,metric_value,check,error,method,name,status,url\n"
    "http_reqs,1641298536,1.000000,,,POST,post,200,http://a/\n"
    "http_req_duration,1641298536,114.365000,,,POST,post,200,http://a/\n"
    "http_req_waiting,1641298536,114.010000,,,POST,post,200,http://a/\n"
    "http_req_duration,1641298537,2.5,,,GET,get?x=1,200,http://a/\n"
    "vus,1641298536,2.000000,,,,,,\n"
)
AB = (
    "starttime\tseconds\tctime\tdtime\tttime\twait\n"
    "Tue Jun 14 15:39:59 2016\t1465886399\t100\t80\t180\t80\n"
    "Tue Jun 14 15:39:59 2016\t1465886399\t102\t100\t201\t100\n"
)
VEGETA = (
    "1513700000000000000,200,5000000,0,27,,Ym9keQ==,attack,0,GET,http://a/,SGVhZGVy\n"
    "1513700000100000000,503,7000000,0,27,503 Service Unavailable,,attack,1,GET,http://a/,\n"
    "1513700000200000000,200,6000000,0,27,,,attack,2,GET,http://b/,\n"
)


def read(tmp_path, text, **how):
    path = tmp_path / "times"
    path.write_text(text)
    return read_samples(path, **how)


def times_of(samples):
    """By class: times in ns, rising."""
    return {
        name: sorted(
            time
            for time, count, kind in zip(samples.time_ns.tolist(), samples.counts, samples.kind)
            if kind == code
            for _ in range(count)
        )
        for code, name in enumerate(samples.kinds)
    }


@pytest.mark.parametrize(
    ("text", "found", "by"),
    [
        (JMETER, {"get page": [44_000_000, 170_000_000], "post": [22_000_000]}, "success"),
        (HEY, {"": [8_700_000]}, "status-code"),
        (K6, {"post": [114_365_000], "get": [2_500_000]}, ""),
        (AB, {"": [180_000_000, 201_000_000]}, ""),
        (JMETER.partition("\n")[2], {"get page": [44_000_000, 170_000_000], "post": [22_000_000]}, "success"),
        ("Percentage served,Time in ms\n0,1.5\n1,1.6\n", {"": [1_500_000, 1_600_000]}, ""),
        (VEGETA, {"http://a/": [5_000_000], "http://b/": [6_000_000]}, "code"),
    ],
    ids=["JMeter", "hey", "k6", "ab", "JMeter bare", "ab -e", "vegeta"],
)  # fmt: skip
def test_load_testers(tmp_path, text, found, by):
    samples = read(tmp_path, text)
    assert times_of(samples) == found
    assert samples.is_latency
    skipped = [note for note in samples.notes if note.startswith("Left out")]
    others = ["Left out: 3 rows of other metrics."] if text is K6 else []
    assert skipped == ([f"Left out: 1 requests that failed (by '{by}')."] if by else others)


@pytest.mark.parametrize(
    ("column", "done", "failed"),
    [
        ("status", ["0", "0"], ["1", "14", "-9", "137"]),  # gRPC, or how programs exit
        ("code", ["0", "0.0"], ["1.0", "255"]),
        ("Status Code", ["200", "200 OK", "HTTP/1.1 302 Found", "100"], ["0", "404", "503 Busy"]),
        ("status", ["OK", "Success", "done", "", "NOERROR"],
         ["ERROR", "FAILED", "timeout", "Timed out", "DEADLINE_EXCEEDED", "NOT_FOUND", "ko"]),
        ("success", ["True", "Y", "t", "1"], ["False", "N", "f", "0", "no"]),
        ("error", ["", "0", "false", "None", "-"], ["connection reset", "1", "true", "EOF"]),
        ("error_code", ["", "0"], ["1404"]),
    ],
)  # fmt: skip
def test_requests_that_failed_are_told_by_a_column(tmp_path, column, done, failed):
    cells = [*((one, 5) for one in done), *((one, 600) for one in failed)]
    for order in (cells, cells[::-1]):
        rows = "".join(f"Get,{cell},{time}\n" for cell, time in order)
        samples = read(tmp_path, f"op,{column},latency_ms\n{rows}")
        assert times_of(samples) == {"Get": [5_000_000] * len(done)}
        assert samples.notes[1].startswith(f"Which requests failed is taken from '{column}'")
        left_out = f"Left out: {len(failed)} requests that failed (by '{column}')."
        assert samples.notes[-1] == left_out


def test_what_a_code_of_0_means_and_unknown_words_are_said(tmp_path):
    only_zero = read(tmp_path, "op,status,latency_ms\nGet,0,5\nGet,0,6\n")
    assert len(only_zero) == 2
    assert only_zero.notes[1].endswith("taken from 'status', where 0 is success.")
    http = read(tmp_path, "op,status,latency_ms\nGet,0,5\nGet,200,6\n")
    assert http.time_ns.tolist() == [6_000_000]
    assert "'status', where 0 is no answer" in http.notes[1]
    strange = read(tmp_path, "op,status,latency_ms\nGet,warm,5\nGet,cold,6\nGet,failed,6\n")
    assert len(strange) == 2
    assert (
        "2 requests with words in 'status' that are not known, such as 'warm'" in strange.notes[2]
    )
    unit = read(tmp_path, "op,error_us,latency_us\nGet,3,5\n")  # a time, no error
    assert len(unit) == 1


def test_a_damaged_first_row_does_not_hide_the_column(tmp_path):
    samples = read(tmp_path, "op,service_us\nGET,\nGET,6\n")
    assert samples.time_ns.tolist() == [6_000]
    assert samples.notes[-1] == "Left out: 1 rows without a time."
    beside = read(tmp_path, "service,service_us,wait_us\na,,1\na,6,1\n")
    assert beside.time_ns.tolist() == [6_000]
    named = read(tmp_path, "service,latency_us\nfront,5\n")  # a name, no time
    assert named.time_ns.tolist() == [5_000]


@pytest.mark.parametrize(
    ("header", "scale", "is_latency"),
    [
        ("service_us", 1e3, False), ("Service Time (ms)", 1e6, False), ("execution_seconds", 1e9, False),
        ("duration_ns", 1, True), ("Latency [µs]", 1e3, True), ("responseTimeMs", 1e6, True),
        ("time_ms", 1e6, True), ("Time in ms", 1e6, True), ("rpc_us", 1e3, True),
    ],
)  # fmt: skip
def test_units_are_in_names(tmp_path, header, scale, is_latency):
    samples = read(tmp_path, f"{header}\n4\n5\n")
    assert samples.time_ns.tolist() == [4 * scale, 5 * scale]
    assert samples.is_latency is is_latency
    beside = read(tmp_path, f"timestamp,host,{header}\n1441812279,a,4\n1441812280,b,5\n")
    assert beside.time_ns.tolist() == [4 * scale, 5 * scale]


def test_classes_separators_and_packing(tmp_path):
    wanted = {"GET": [5_000, 5_500], "SCAN": [400_000]}
    comma = "op,service_us,size\nGET,5,1\nSCAN,400,2\nGET,5.5,1\n"
    assert times_of(read(tmp_path, comma)) == wanted
    assert times_of(read(tmp_path, comma.replace(",", "\t"))) == wanted
    assert times_of(read(tmp_path, comma.replace(",", "   "))) == wanted
    assert times_of(read(tmp_path, comma.replace(",", ";").replace("5.5", "5,5"))) == wanted
    assert times_of(read(tmp_path, "# of May\n" + comma)) == wanted
    assert times_of(read(tmp_path, comma + comma)) == {
        kind: sorted(of * 2) for kind, of in wanted.items()
    }
    bare = "GET 5\nSCAN 400\nGET 5.5\n"
    assert times_of(read(tmp_path, bare, unit="us")) == wanted
    (tmp_path / "packed").write_bytes(gzip.compress(b"\xef\xbb\xbf" + comma.encode()))
    assert times_of(read_samples(tmp_path / "packed")) == wanted


def test_bare_numbers_need_a_unit(tmp_path):
    with pytest.raises(InputError, match=r"unit of its numbers; say it: --unit ns, us, ms or s$"):
        read(tmp_path, "5\n6\n5\n")
    samples = read(tmp_path, "5\n6\n5\n", unit="ms")
    assert (samples.time_ns.tolist(), samples.counts.tolist()) == ([5_000_000, 6_000_000], [2, 1])
    assert samples.labels is None
    with pytest.raises(InputError, match=r"unit of column 'latency'; .*in its name: latency_ms"):
        read(tmp_path, "latency\n5\n")
    assert read(tmp_path, "latency\n5\n", unit="s").time_ns.tolist() == [5 * 10**9]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("latency_ms\n", "a header and nothing below"),
        ("latency_ms\n5\n-3\n", "line 3: a time of -3 is negative"),
        ("latency_ms\n5\nnan\n", "line 3: 'nan' is no time"),
        ("latency_ms\n5\ninf\n", "line 3: 'inf' is no time"),
        ("latency_ms\n5\n1e999\n", "line 3: '1e999' is no time"),
        ("latency_ms\n5\nabc\n", "line 3: 'abc' is no time"),
        ("a,latency_ms\n1,5\n2\n", "line 3: 1 cells where the header has 2"),
        ("latency_ms\n0\n0\n", "all times are zero"),
        ("latency_s\n90000\n", "takes more than a day; is the unit right"),
        ("latency_ms,status\n5,500\n6,404\n", "there is no time in it; 2 requests that failed"),
        ("left,right\nup,down\n", "no column says how long"),
        ("op,service_us\nGET,NaN\nGET,5\n", "line 2: 'NaN' is no time"),
        ("op,service_us\nGET,abc\n", "line 2: 'abc' is no time"),
        ('op,service_us\nGET,"5,5"\nGET,6\n', "line 2: '5,5' is no time"),
        ('op,service_us\n"GET,5\nGET,6\n', "line 2: a quote that is not closed"),
        ('op,service_us\nGET,4\nGET,"5\nGET,6\n', "line 3: a quote that is not closed"),
        ("op,service_us\nGET,\n", "there is no time in it; 1 rows without a time"),
        ("Running 30s test @ http://a/\n  12 threads and 400 connections\n", "output of wrk"),
        ('{"code":200,"latency":15}\n{"code":200,"latency":16}\n', "JSON lines; vegeta: encode --to"),
        ('10.0.0.0 - - [13/Nov/2023:10:00:00 +0000] "GET / HTTP/1.1" 502 1 0.01\n', "an access log"),
        ("Type,Name,Request Count,Requests/s,Failures/s\nGET,/,5,9,1\n", "a summary of Locust"),
        ("Name,Requests/s,Failures per second\nGET,9,1\n", "no column says how long"),
        ("read_us,write_us\n1,2\n", "more than one column may be the time; call one service_us"),
        ("1,2,3\n4,5,6\n", "3 columns and no header"),
        ("Type,Name,Median Response Time,99%\nGET,/,5,9\n", "no column says how long"),
        ("\n\n", "empty"),
        ("Time (s),cpu_pct\n0,5\n5,7\n10,6\n", r"column 'Time \(s\)' only rises: it is a clock"),
        ('<?xml version="1.0"?>\n<testResults>\n', "this is JMeter's XML; save results as CSV"),
        ("<html>\n<body>\n", "this is XML"),
        ("metric_name,timestamp,metric_value\nvus,1,2\n", "no time in it; 1 rows of other metrics"),
        ('{"a": 1}\n', "this is JSON of no known kind; write the times as"),
    ],
)  # fmt: skip
def test_what_is_wrong_gets_a_line(tmp_path, text, says):
    with pytest.raises(InputError, match=says) as error:
        read(tmp_path, text)
    assert "\n" not in str(error.value)


def test_a_name_is_a_class_and_a_moment_is_none(tmp_path):
    samples = read(
        tmp_path,
        '"2020-04-23T16:03:52.000+00:00","1.5"\n"2020-04-23T16:03:53Z","1.2"\n',
        unit="ms",
    )
    assert times_of(samples) == {"": [1_200_000, 1_500_000]}
    rising = read(tmp_path, "op,latency_ms\na,1\na,2\nb,3\n")  # sorted by somebody
    assert len(rising) == 3


def test_an_empty_cell_is_left_out_and_counted(tmp_path):
    samples = read(tmp_path, "class,latency_ms\na,5\na,\n")
    assert len(samples) == 1
    assert "1 rows without a time" in samples.notes[-1]


def test_many_classes_are_gathered_by_the_time_they_took():
    rows = SampleRows("x")
    for number in range(100):
        rows.add(f"class {number}", 1e3 * (1 + (number == 42)))
    samples = rows.build(is_latency=False)
    assert len(samples.kinds) == 8
    assert "class 42" in samples.kinds
    assert samples.kinds[-1] == "(others)"
    assert len(samples) == 100
    assert any(note.startswith("100 classes") for note in samples.notes)


@given(
    st.lists(
        st.tuples(st.sampled_from("abc"), st.integers(1, 10**12), st.integers(1, 10**9)),
        min_size=1,
    )
)
def test_prop_nothing_is_lost_in_columns(measured):
    rows = SampleRows("x")
    for kind, time_ns, count in measured:
        rows.add(kind, time_ns, count)
    samples = rows.build(is_latency=False)
    found = {
        (samples.kinds[kind], time): count
        for kind, time, count in zip(
            samples.kind, samples.time_ns.tolist(), samples.counts.tolist()
        )
    }
    wanted: dict[tuple[str, int], int] = {}
    for kind, time_ns, count in measured:
        wanted[kind, time_ns] = wanted.get((kind, time_ns), 0) + count
    assert found == wanted


def test_millions_of_values_are_rounded_to_four_digits():
    rows = SampleRows("x")
    for number in range(150_000):
        rows.add("", 1_000_000 + number)
    samples = rows.build(is_latency=False)
    assert len(samples) == 150_000
    assert len(samples.time_ns) < 200
    mean = float(samples.time_ns @ samples.counts) / len(samples)
    assert mean == pytest.approx(1_000_000 + 75_000, rel=1e-4)
