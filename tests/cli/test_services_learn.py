"""gnomon services collect, train and tune: promises to scripts, resuming, wrong input."""

from __future__ import annotations

import pytest
from tests.cli.refusal import answer, refused

from gnomon.cli import main

pytest.importorskip("torch")
pytest.importorskip("lightgbm")
pytest.importorskip("pyarrow")

TWO = """
name: two
rate: 60
services:
  web: {workers: 2, cpu_limit: 0.5, cpu_min: 0.05, cpu_max: 1}
  db: {workers: 2, cpu_limit: 0.5, cpu_min: 0.05, cpu_max: 1}
classes:
  get:
    sla: {bound_ms: 60}
    call: {service: web, cpu_ms: 1, then: [{service: db, cpu_ms: {mean: 2, cv: 1}}]}
"""


@pytest.fixture(scope="module")
def learned(tmp_path_factory):
    folder = tmp_path_factory.mktemp("learned")
    (folder / "two.yaml").write_text(TWO)
    assert (
        main(
            ["services", "collect", f"{folder}/two.yaml", "-o", f"{folder}/data", "--hours", "0.5"]
        )
        == 0
    )
    assert (
        main(["services", "train", f"{folder}/data", "-o", f"{folder}/model", "--epochs", "1"])
        == 0
    )
    return folder


def test_a_model_manages(learned, capsys):
    spec = f"sinan?model={learned}/model"
    got = answer(
        capsys,
        "services",
        "simulate",
        f"{learned}/two.yaml",
        "--manager",
        spec,
        "--duration",
        "60s",
    )
    found = got["managers"][spec]["constant"]
    assert found["failed"] == 0
    assert found["cpu_mean"] < 1.5  # of a cap of 2


def test_collecting_again_adds_what_is_missing(learned, capsys):
    files = sorted((learned / "data").iterdir())
    assert len(files) == 6
    kept = {file: file.stat().st_mtime_ns for file in files[1:]}
    files[0].unlink()
    answer(
        capsys,
        "services",
        "collect",
        f"{learned}/two.yaml",
        "-o",
        f"{learned}/data",
        "--hours",
        "0.5",
    )
    assert sorted((learned / "data").iterdir()) == files
    assert {file: file.stat().st_mtime_ns for file in files[1:]} == kept


def test_a_model_is_tuned(learned, capsys, tmp_path):
    answer(
        capsys,
        "services",
        "tune",
        f"{learned}/model",
        f"{learned}/data",
        "-o",
        tmp_path / "tuned",
        "--samples",
        "200",
    )
    assert (tmp_path / "tuned" / "model.json").exists()


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["train", "none", "-o", "m"], "no data files there"),
        (["train", "DATA", "-o", "m", "--epochs", "0"], "epochs"),
        (["collect", "APP", "-o", "d", "--hours", "0"], "over 0, at most"),
        (["collect", "APP", "-o", "d", "--hours", "nan"], "over 0, at most"),
        (["collect", "APP", "-o", "d", "--seed", "-1"], "seed"),
        (["collect", "APP", "-o", "d", "--html", "none/x.html"], "none"),
        (["collect", "bundled:nothing", "-o", "d"], "nothing"),
        (["tune", "none", "DATA", "-o", "m"], "no model there"),
        (["tune", "MODEL", "none", "-o", "m"], "no data files there"),
        (["tune", "MODEL", "DATA", "-o", "m", "--samples", "3"], "too few"),
    ],
)  # fmt: skip
def test_what_is_wrong_gets_a_line(learned, capsys, tmp_path, monkeypatch, args, says):
    monkeypatch.chdir(tmp_path)
    known = {"DATA": f"{learned}/data", "MODEL": f"{learned}/model", "APP": f"{learned}/two.yaml"}
    assert says in refused(capsys, "services", *(known.get(one, one) for one in args))
    assert not list(tmp_path.glob("*"))
