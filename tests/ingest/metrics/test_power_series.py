from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon.errors import InputError
from gnomon.ingest.metrics.power_series import (
    is_power_series,
    read_power_series,
)

T0 = 1709251200


def series(name, labels, values, step=60, times=None):
    at = times or [T0 + i * step for i in range(len(values))]
    metric = ({"__name__": name} if name else {}) | labels
    return {"metric": metric, "values": [[t, str(v)] for t, v in zip(at, values)]}


def write(tmp_path, *found, name="p.json"):
    file = tmp_path / name
    file.write_text(
        json.dumps({"status": "success", "data": {"resultType": "matrix", "result": list(found)}})
    )
    return file


def test_a_kepler_counter_becomes_power_and_resets_count_from_zero(tmp_path):
    labels = {"pod_name": "web-1", "container_namespace": "shop", "mode": "dynamic"}
    (one,) = read_power_series(
        write(tmp_path, series("kepler_container_joules_total", labels, [0, 600, 1200, 60, 660]))
    )
    assert one.signal.values.tolist() == [10, 10, 1, 10]
    assert one.signal.end_ns == (T0 + 240) * 10**9
    assert (one.resets, one.is_host, one.name) == (1, False, "shop/web-1")
    assert one.labels["mode"] == "dynamic"
    assert one.signal.integrate(unit="kWh") == pytest.approx(1860 / 3.6e6)


@pytest.mark.parametrize(
    ("name", "values", "watts"),
    [
        ("kepler_node_platform_joules_total", [0, 6000], 100),
        ("kepler_node_cpu_joules_total", [0, 6000], 100),
        ("kepler_node_cpu_watts", [100, 100], 100),
        ("kepler_pod_cpu_watts", [100, 100], 100),
        ("scaph_host_power_microwatts", [1e8, 1e8], 100),
        ("scaph_process_power_consumption_microwatts", [1e8, 1e8], 100),
        ("scaph_host_energy_microjoules", [0, 6e9], 100),
        ("kepler_node_package_energy_millijoule", [0, 6e6], 100),
    ],
)
def test_names_tell_units(tmp_path, name, values, watts):
    (one,) = read_power_series(write(tmp_path, series(name, {"instance": "n1"}, values)))
    assert one.signal.values[0] == pytest.approx(watts)
    assert one.is_host == ("node" in name or "host" in name)


def test_a_series_without_a_name_needs_its_unit(tmp_path):
    file = write(tmp_path, series("", {"pod": "a"}, [5, 5]))
    with pytest.raises(InputError, match="say the unit"):
        read_power_series(file)
    assert read_power_series(file, unit="W")[0].signal.values.tolist() == [5, 5]
    with pytest.raises(InputError, match="W, kW, mW or J"):
        read_power_series(file, unit="hp")


def test_several_metrics_need_a_choice(tmp_path):
    file = write(
        tmp_path,
        series("kepler_node_cpu_watts", {"instance": "n"}, [1, 1]),
        series("kepler_node_cpu_joules_total", {"instance": "n"}, [0, 60]),
        series("up", {}, [1, 1]),
    )
    with pytest.raises(
        InputError, match="2 metrics speak of power; name one of kepler_node_cpu_watts"
    ):
        read_power_series(file)
    assert len(read_power_series(file, metric="kepler_node_cpu_watts")) == 1
    with pytest.raises(InputError, match="no series of 'nope'"):
        read_power_series(file, metric="nope")
    with pytest.raises(InputError, match="'up' does not say whether it is watts or joules; say"):
        read_power_series(file, metric="up")
    assert read_power_series(file, metric="up", unit="kW")[0].signal.values.tolist() == [1e3, 1e3]


def test_domains_inside_others_are_not_counted_twice(tmp_path):
    zones = [
        series("kepler_node_cpu_watts", {"instance": "n", "zone": z}, [10, 10])
        for z in ("package", "core", "dram")
    ]
    kept = read_power_series(write(tmp_path, *zones))
    assert [one.labels["zone"] for one in kept] == ["package", "dram"]
    whole = read_power_series(
        write(
            tmp_path,
            *zones,
            series("kepler_node_cpu_watts", {"instance": "n", "zone": "psys"}, [50, 50]),
        )
    )
    assert [one.labels["zone"] for one in whole] == ["psys"]


def test_text_with_time_stamps_and_a_missed_scrape(tmp_path):
    file = tmp_path / "p.prom"
    lines = ["# HELP scaph_host_power_microwatts x", "# TYPE scaph_host_power_microwatts gauge"]
    for i in (0, 1, 2, 4):
        lines.append(
            f'scaph_host_power_microwatts{{instance="a\\"b,c",x=""}} 1.5e8 {(T0 + 30 * i) * 1000}'
        )
    file.write_text("\n".join(lines))
    (one,) = read_power_series(file)
    assert one.labels["instance"] == 'a"b,c'
    (gap,) = one.signal.gaps()
    assert (gap.end_ns - gap.start_ns) == 30 * 10**9
    assert one.signal.integrate(gaps="skip") == pytest.approx(150 * 120)
    assert is_power_series(file.read_bytes())
    assert is_power_series(b'node_power_watts{a="b"} 3 1709251200')
    assert not is_power_series(b"id,start,end")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"status": "error", "error": "bad query"}', "Prometheus refused: bad query"),
        ('{"status": "success", "data": {"resultType": "vector", "result": [{"metric": {}, "value": [1, "2"]}]}}', "query_range"),
        ('{"status": "success", "data": {"resultType": "matrix", "result": []}}', "no series"),
        ('{"status": "succ', "is no answer of Prometheus"),
        ("x_watts 5", "line 1: the sample has no time"),
        ("x_watts five 1", "line 1: no sample"),
        ("x_watts{a=b} 5 1", "labels"),
        ("# TYPE x gauge", "no sample in it"),
        ("x_watts 5 1\nx_watts 5 1", "repeats the time"),
        ("x_watts 5 2\nx_watts 5 1", "goes back in time"),
        ("x_watts -5 1\nx_watts 5 2", "a power of -5 W"),
        ("x_watts 5 1", "one sample"),
        ("x_joules_total 5 1", "two samples"),
        ("temperature 5 1\ntemperature 5 2", "no series of watts or joules"),
        ("x_watts 5 1\nx_watts 5 nan", "line 2: nan is no time"),
        ("x_watts 5 1\nx_watts 5 inf", "line 2: inf is no time"),
        ("x_watts 5 1e10\nx_watts 5 1e30", "line 1: 1e10 is no time"),
        ("x_watts 5 1\nx_watts 5 1e30", "line 2: 1e30 is no time within 146 years"),
        ('{"data": {"result": [{"metric": {"__name__": "x_watts"}, "values": [[1, "5"], [1e30, "5"]]}]}}', r"result\[0\]: sample 1: 1e\+30 is no time"),
        ("x_joules_total -9 1\nx_joules_total -5 2\nx_joules_total -8 3", "a counter of -9, below zero"),
    ],
    ids=[
        "refused", "vector", "none", "cut", "time", "number", "labels", "comment", "repeat", "back",
        "negative", "single", "counter", "other", "nan", "inf", "far", "farther", "json", "below",
    ],
)  # fmt: skip
def test_what_is_wrong_is_one_line(tmp_path, text, words):
    file = tmp_path / "p"
    file.write_text(text)
    with pytest.raises(InputError, match=words) as caught:
        read_power_series(file)
    assert "\n" not in str(caught.value)


@given(st.lists(st.integers(0, 10**6), min_size=2, max_size=20))
def test_prop_energy_of_a_counter_is_what_it_counted(tmp_path_factory, steps):
    counted, at = [], 0
    for step in steps:
        at += step
        counted.append(at)
    file = write(tmp_path_factory.mktemp("p"), series("x_joules_total", {}, counted))
    (one,) = read_power_series(file)
    assert one.resets == 0
    assert one.signal.integrate() == pytest.approx(counted[-1] - counted[0])
