"""What the systems claim, measured again: the figures in each `claims.toml`."""

from __future__ import annotations

import importlib
import sys
import tomllib
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted((ROOT / "src" / "gnomon" / "systems").rglob("claims.toml"))
CLAIMS = [
    (file.parent.name, claim)
    for file in FILES
    for claim in tomllib.loads(file.read_text())["claim"]
]
#: A repeated measurement may differ by this share of the claim, or by this much of its unit.
NEAR, SMALL = 0.05, 0.1


@cache
def measured(script: str, part: str) -> dict[str, float]:
    # Benchmarks stand in one folder and import one another, as when they are run.
    path = ROOT / script
    if str(path.parent) not in sys.path:
        sys.path.insert(0, str(path.parent))
    return importlib.import_module(path.stem).measure([part])[part]


def within(claim: dict, value: float) -> bool:
    return claim.get("at_least", -1e9) <= value <= claim.get("at_most", 1e9)


@pytest.mark.parametrize(
    ("system", "claim"), CLAIMS, ids=lambda x: x["name"] if isinstance(x, dict) else x
)
def test_a_claim_keeps_its_own_bound(system, claim):
    """A figure that misses what it is meant to show must not be printed as if it did not."""
    assert within(claim, claim["ours"])
    assert (ROOT / claim["command"].split()[1]).is_file()
    assert len(claim["statement"]) > 10
    assert claim["theirs"]


@pytest.mark.data
@pytest.mark.slow
@pytest.mark.parametrize(
    ("system", "claim"),
    [(system, claim) for system, claim in CLAIMS if "measure" in claim],
    ids=lambda x: x["name"] if isinstance(x, dict) else x,
)
def test_a_claim_holds_when_measured_again(system, claim, public_data):
    script = claim.get("measured_by", claim["command"].split()[1])
    value = abs(measured(script, claim["measure"][0])[claim["measure"][1]])
    assert within(claim, value)
    assert value == pytest.approx(claim["ours"], rel=NEAR, abs=SMALL)
