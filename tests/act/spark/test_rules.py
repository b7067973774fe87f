"""The rules inside the driver, on a scheduler made of lists: compiled and run by a real Java."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from gnomon.act.spark.build import _NEEDED
from gnomon.act.spark.home import find_java, find_spark

pytestmark = [pytest.mark.spark]

SOURCE = Path(__file__).with_name("RulesTrial.java")
TRIALS = re.findall(r"^  void (\w+)\(\) \{", SOURCE.read_text(), re.MULTILINE)


@pytest.fixture(scope="module")
def outcomes(plugin, tmp_path_factory):
    folder = tmp_path_factory.mktemp("rules")
    jars = find_spark().jars
    path = ":".join(
        [str(plugin), str(folder)]
        + [
            str(jar)
            for prefix in (*_NEEDED, "log4j-")
            for jar in sorted(jars.glob(f"{prefix}*.jar"))
        ]
    )
    compiled = subprocess.run(
        [str(find_java("javac")), "-proc:none", "-Xlint:none", "-cp", path, "-d", str(folder), str(SOURCE)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert compiled.returncode == 0, compiled.stderr
    done = subprocess.run(
        [str(find_java()), "-XX:TieredStopAtLevel=1", "-cp", path, "gnomon.spark.RulesTrial"],
        capture_output=True, text=True, check=False, timeout=240,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return dict(line.split("\t") for line in done.stdout.splitlines() if "\t" in line)


def test_every_trial_ran(outcomes):
    assert sorted(outcomes) == sorted(TRIALS)
    assert len(TRIALS) >= 20


@pytest.mark.parametrize("trial", TRIALS)
def test_rule(outcomes, trial):
    assert outcomes[trial] == ""
