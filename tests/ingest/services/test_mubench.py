from __future__ import annotations

import copy
import json

import pytest

from gnomon.errors import InputError
from gnomon.graph.application import Work, as_work
from gnomon.ingest.services.mubench import read_mubench
from tests.ingest.samples import MUBENCH, write_sample


def read(tmp_path, model, **options):
    (tmp_path / "model.json").write_text(json.dumps(model))
    return read_mubench(tmp_path / "model.json", **options)


def cell(*groups, **fields):
    return {
        "external_services": list(groups),
        "internal_service": {"compute_pi": {"range_complexity": [1, 1]}},
    } | fields


def group(*services, seq_len=100, **probabilities):
    return {"seq_len": seq_len, "services": list(services), "probabilities": probabilities}


def test_services_calls_and_limits(tmp_path):
    model = read_mubench(write_sample("mubench", tmp_path))
    app = model.app
    web = app.services["s0"]
    assert (web.replicas, web.workers, web.cpu_limit, web.cpu_request, web.blocking) == (
        2,
        4,
        0.5,
        0.5,
        False,
    )
    assert list(app.classes) == ["s0"]
    # Half of the first group; the second group draws one of two.
    assert app.visits()["s0"] == {"s0": 1.0, "s1": 1.0, "sdb": 0.5}
    assert [len(stage) for stage in app.classes["s0"].call.then] == [2, 1]
    assert model.notes == (
        "Groups that draw some of their services call each by chance.",
        "The n-th calls of all groups are made together, and waited for.",
    )


def test_groups_are_parallel_and_their_services_in_order(tmp_path):
    model = {"s0": cell(group("s1", "s2"), group("s3")), "s1": cell(), "s2": cell(), "s3": cell()}
    then = read(tmp_path, model).app.classes["s0"].call.then
    assert [[call.service for call in stage] for stage in then] == [["s1", "s3"], ["s2"]]


def test_loads_take_cpu_time_and_waiting(tmp_path):
    load = {"cpu_stress": {"run": True, "range_complexity": [100, 100], "thread_pool_size": 2, "trials": 5},
            "sleep_stress": {"run": True, "sleep_time": 0.02}, "mean_response_size": 0}  # fmt: skip
    call = read(tmp_path, {"s0": cell(internal_service={"loader": load})}).app.classes["s0"].call
    assert call.cpu_ms == pytest.approx(10 * (2.0e-3 * 100 + 4.1e-5 * 100**2))
    assert call.wait_ms == 20.0
    faster = read(tmp_path, {"s0": cell(internal_service={"loader": load})}, speed=2.0).app
    assert faster.classes["s0"].call.cpu_ms == pytest.approx(call.cpu_ms / 2)
    load["cpu_stress"]["range_complexity"] = [0, 200]
    spread = (
        read(tmp_path, {"s0": cell(internal_service={"loader": load})})
        .app.classes["s0"]
        .call.cpu_ms
    )
    assert isinstance(spread, Work)
    assert spread.cv > 0.5
    load = {
        "memory_stress": {"run": True},
        "disk_stress": {"run": True},
        "sleep_stress": {"run": False},
    }
    model = read(tmp_path, {"s0": cell(internal_service={"loader": load})})
    assert as_work(model.app.classes["s0"].call.cpu_ms).average > 9.4
    assert model.app.classes["s0"].call.wait_ms == 5.0
    assert model.notes == ("Writing to a disk waits for 5 ms, which is a guess.",)


def test_services_that_call_back_and_unknown_functions(tmp_path):
    model = {
        "a": cell(group("b")),
        "b": cell(group("a")),
        "c": cell(internal_service={"colosseum": {}}),
    }
    read_model = read(tmp_path, model)
    assert list(read_model.app.classes) == ["c"]  # nobody calls it
    assert read_model.notes == ("What 'colosseum' does is not known: it takes no time.",)
    only = {"a": cell(group("b")), "b": cell(group("a__1"))}
    read_model = read(tmp_path, only)
    assert read_model.app.visits() == {"a": {"a": 1.0, "b": 1.0}}
    assert read_model.notes == ("A call back to a service that waits for it is left out.",)


def test_the_first_version_names_a_function(tmp_path):
    model = {
        "s0": {
            "external_services": [],
            "internal_service": "compute_pi",
            "params": {"range_complexity": [9, 9]},
        }
    }
    assert read(tmp_path, model).app.classes["s0"].call.cpu_ms == pytest.approx(0.021, abs=1e-3)


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("s0", "workers"), "many", r"\$\.s0\.workers: Expected 'int', got 'str'"),
        (("s0", "workers"), 0, r"\$.services.s0.workers: 0 is out of range"),
        (("s0", "cpu-limits"), "500q", r"\$\.s0\.cpu-limits: '500q' is no number of cores"),
        (("s0", "external_services"), [{"services": ["s9"]}], "'s0' calls 's9', which is not there"),
        (("s0", "external_services"), 7, r"\$\.s0\.external_services: Expected 'array'"),
        (("s0", "internal_service"), {"loader": {"cpu_stress": {"run": True, "range_complexity": 7}}}, "not as muBench"),
        (("s0", "internal_service"), {"loader": {"cpu_stress": {"run": True, "trials": 1e308}}}, "is out of range"),
        (("s0", "internal_service"), {"loader": 7}, "not as muBench"),
        (("s1", "external_services"), [{"services": ["s1"], "probabilities": {"s1": 7}}], None),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(tmp_path, path, value, message):
    model = copy.deepcopy(MUBENCH)
    model[path[0]][path[1]] = value
    if message is None:
        read(tmp_path, model)
        return
    with pytest.raises(InputError, match=message):
        read(tmp_path, model)


def test_services_that_multiply_are_refused(tmp_path):
    model = {f"s{i}": cell(group(*[f"s{j}" for j in range(i + 1, 24)])) for i in range(24)}
    with pytest.raises(InputError, match="a request makes too many calls"):
        read(tmp_path, model)


@pytest.mark.data
def test_work_models_of_mubench(public_data):
    files = sorted((public_data / "services" / "mubench").rglob("*.json"))
    assert len(files) == 23
    apps = {file.name: read_mubench(file).app for file in files}
    assert len(apps["workmodelA.json"].services) == 20
    serial = apps["workmodel-serial-5services.json"].classes["s0"].call
    parallel = apps["workmodel-parallel-5services.json"].classes["s0"].call
    assert [len(stage) for stage in parallel.then] == [4]
    assert [len(stage) for stage in serial.then] == [1, 1, 1, 1]
    tea = apps["workmodel-teastore-emulation.json"]
    visits = tea.visits()["s0"]
    assert visits["s2"] == pytest.approx(0.55)
    assert visits["s3"] == pytest.approx(0.9, abs=0.01)
