from __future__ import annotations

import pytest

from gnomon.errors import InputError
from gnomon.estimate import Estimate
from gnomon.model.machines.machine_file import bundled_fleets, read_fleet

GOOD = """\
name: my cluster
pue: [1.1, 1.3, 1.5]
fleet:
  - {machine: Silver-4216, count: 59, bought: 2020, embodied_kg: [20, 24, 30]}
  - name: own-server
    count: 10
    bought: 2023
    cores: 64
    threads: 128
    idle_w: 120
    peak_w: [400, 450, 520]
    embodied_kg: [900, 1300, 2000]
    life_years: 6
    score: 80000
  - {machine: server, count: 3, cores: 32}
  - {machine: h100, count: 8}
"""


def write(tmp_path, text):
    file = tmp_path / "fleet.yaml"
    file.write_text(text)
    return file


def test_a_fleet_as_people_write_it(tmp_path):
    fleet = read_fleet(write(tmp_path, GOOD))
    silver, own, server, gpu = fleet.groups
    assert (fleet.name, fleet.pue) == ("my cluster", Estimate(1.1, 1.3, 1.5))
    assert silver.machine.embodied_kg == Estimate(20, 24, 30)
    assert silver.machine.source_of("embodied_kg") == "given by the fleet file"
    assert "TDP" in silver.machine.source_of("peak_w")
    assert own.machine.points_per_thread == 625
    assert own.machine.kind == "server"
    assert own.machine.life_years == 6
    assert (server.machine.cores, server.machine.threads) == (32, 32)
    assert gpu.machine.kind == "accelerator"
    assert fleet.accelerators == 8


def test_bundled_fleets():
    assert bundled_fleets() == ("mit-740", "two-servers")
    fleet = read_fleet("bundled:mit-740")
    assert (fleet.servers, fleet.cores, fleet.threads) == (740, 6204, 11956)
    assert fleet.embodied_kg.mid == pytest.approx(17633, abs=1)
    assert fleet.score == 8261198
    with pytest.raises(InputError, match="known are mit-740"):
        read_fleet("bundled:mit")


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("count: 10", "count: 0", r"line 6, \$\.fleet\[1\]\.count: a count of 0; it is 1 or more"),
        ("count: 10", "cuont: 10", r"line 6, \$\.fleet\[1\]\.cuont: unknown key 'cuont'; did you mean 'count'"),
        ("count: 59", "count: 1.5", r"line 4, \$\.fleet\[0\]\.count: expected 'int'"),
        ("count: 59", "count: 59, count: 60", r"line 4, \$\.fleet\[0\]\.count: 'count' is given twice"),
        ("Silver-4216", "Silver-4217", r"\$\.fleet\[0\]\.machine: no machine is called 'Silver-4217'; did you mean"),
        ("peak_w: [400, 450, 520]", "peak_w: 100", r"line 11, \$\.fleet\[1\]\.peak_w: peak_w of 100 W is below idle_w of 120 W"),
        ("[900, 1300, 2000]", "[900, 1300]", r"line 12, \$\.fleet\[1\]\.embodied_kg: .* is no figure"),
        ("[900, 1300, 2000]", "[2000, 1300, 900]", r"\$\.fleet\[1\]\.embodied_kg: an estimate needs"),
        ("    idle_w: 120\n", "", r"line 5, \$\.fleet\[1\]: a machine of its own needs idle_w too"),
        ("bought: 2020", "bought: 202", r"\$\.fleet\[0\]\.bought: 202 is no year"),
        ("pue: [1.1, 1.3, 1.5]", "pue: 0.9", r"line 2, \$\.pue: a PUE of 0\.9"),
        ("cores: 32", "bought: 2021", r"line 15, \$\.fleet\[2\]: 'server' does not say how many cores"),
        ("threads: 128", "threads: 12", r"line 9, \$\.fleet\[1\]\.threads: 12 threads on 64 cores"),
        ("fleet:", "fleets:", r"line 3, \$\.fleets: unknown key 'fleets'; did you mean 'fleet'"),
        ("1.5]", "1.5", r"fleet\.yaml line \d+: is no YAML"),
        (GOOD, "", "is empty"),
        (GOOD, "fleet: []", "no machine in it"),
        (GOOD, "- 1", "expected a table"),
        (GOOD, "!!python/object:os.system {}", "is no YAML"),
    ],
    ids=[
        "count", "key", "type", "twice", "unknown", "peak", "pair", "order", "missing", "year",
        "pue", "cores", "threads", "top-key", "syntax", "empty", "none", "list", "tag",
    ],
)  # fmt: skip
def test_what_is_wrong_is_named_by_line_and_path(tmp_path, old, new, words):
    assert old in GOOD
    with pytest.raises(InputError, match=words) as caught:
        read_fleet(write(tmp_path, GOOD.replace(old, new, 1)))
    assert "fleet.yaml" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(InputError, match="check the path"):
        read_fleet(tmp_path / "none.yaml")
    with pytest.raises(InputError, match="cannot be read"):
        read_fleet(tmp_path)
    binary = tmp_path / "x.yaml"
    binary.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="not a text file"):
        read_fleet(binary)


def test_anchors_are_followed_once(tmp_path):
    nested = "a: &a [1]\n" + "".join(
        f"b{i}: &b{i} [*{'a' if i == 0 else f'b{i - 1}'}, *{'a' if i == 0 else f'b{i - 1}'}]\n"
        for i in range(40)
    )
    with pytest.raises(InputError):
        read_fleet(write(tmp_path, nested))
