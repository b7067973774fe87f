"""What was measured of services elsewhere: Cilantro's client logs and Nezha's pods."""

from __future__ import annotations

import tarfile

import numpy as np
import pytest

from gnomon.errors import InputError
from gnomon.ingest.services.cilantro import read_cilantro
from gnomon.ingest.services.pod_metrics import read_pod_metrics
from tests.ingest.samples import TEXTS, write_sample


def test_cilantro(tmp_path):
    log = read_cilantro(write_sample("cilantro", tmp_path))
    assert log.services == ("geo", "rate")
    assert log.rate.tolist() == pytest.approx([3335 / 30, 100])
    assert log.cores[0].tolist() == [5.7, 10.0]
    assert np.isnan(log.cores[1, 1])
    assert np.isnan(log.p99_ms).tolist() == [False, True]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("allocs", "alocs", "there is no column 'allocs'"),
        ("{'root--geo': 5.0}", "5.0", "line 3: '5.0' is no table of cores"),
        ("'root--geo': 5.0", "'root--geo': five", "line 3: .* is no service with its cores"),
        (",37.5,67.5", ",67.5,37.5", "line 3: the interval has no length"),
        ("3335.0", "many", "line 2: 'many' in column 'load' is not a number"),
    ],
)
def test_cilantro_that_is_wrong_is_refused(tmp_path, old, new, message):
    assert old in TEXTS["cilantro"]
    (tmp_path / "a.csv").write_text(TEXTS["cilantro"].replace(old, new))
    with pytest.raises(InputError, match=message):
        read_cilantro(tmp_path / "a.csv")


def test_pods_are_summed_by_service(tmp_path):
    one = TEXTS["pod-metrics"]
    (tmp_path / "a.csv").write_text(one)
    (tmp_path / "b.csv").write_text(one.replace("web-579b9bff58-t2dbm", "web-579b9bff58-xxxxx"))
    (tmp_path / "other.csv").write_text("a,b\n1,2\n")
    found = read_pod_metrics(tmp_path)
    assert found.cores == {"web": pytest.approx(0.03)}
    assert (found.pods, found.rows) == (2, 4)
    with pytest.raises(InputError, match="there is no column 'PodName'"):
        read_pod_metrics(tmp_path / "other.csv")
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="there is no use of CPU time"):
        read_pod_metrics(tmp_path / "empty")


@pytest.mark.data
@pytest.mark.parametrize(
    ("name", "rows", "p99_ms"),
    [
        ("msevoopt", 1063, 113.8),
        ("mssile", 2812, 117.4),
        ("propfair", 1408, 2330.0),
        ("ucbopt", 1314, 111.7),
    ],
)
def test_cilantro_as_published(public_data, name, rows, p99_ms):
    (path,) = (public_data / "services" / "cilantro").glob(f"{name}_*.csv.gz")
    log = read_cilantro(path)
    assert (len(log), len(log.services)) == (rows, 19)
    assert np.median(log.p99_ms) == pytest.approx(p99_ms, abs=0.1)
    assert 2800 < np.median(log.rate) < 3000
    assert not np.isnan(log.cores).any()


@pytest.mark.data
def test_nezha_as_published(public_data, tmp_path):
    with tarfile.open(public_data / "services" / "nezha" / "2022-08-22.tar.xz") as archive:
        names = [name for name in archive.getnames() if "/metric/" in name]
        archive.extractall(tmp_path, names, filter="data")
    found = read_pod_metrics(tmp_path / "2022-08-22" / "metric")
    assert (found.pods, found.rows) == (10, 12090)
    assert max(found.cores, key=found.cores.get) == "currencyservice"
    assert found.cores["currencyservice"] == pytest.approx(0.0126, abs=1e-4)
