"""Damaged files: every reader of the list answers or refuses; it never fails in another way."""

from __future__ import annotations

import gzip
import random
import zlib
from pathlib import Path

import pytest

from gnomon.cli.contents import contents_of
from gnomon.errors import GnomonError
from gnomon.ingest.formats import FORMATS, identify
from tests.ingest.mutate import mutate
from tests.ingest.samples import FILES, FOLDERS, write_sample

SHORT, LONG = 30, 10_000
CODECS = Path(__file__).resolve().parents[1] / "data" / "spark"
BY_NAME = {format.name: format for format in FORMATS}
FOLDER_FILES = {"result": "result.json", "benchmark": "program.json.gz"}


def _parquet(folder: Path) -> Path:
    pyarrow = pytest.importorskip("pyarrow", reason="the 'tables' extra is absent")
    parquet = pytest.importorskip("pyarrow.parquet", reason="the 'tables' extra is absent")
    csv = pytest.importorskip("pyarrow.csv", reason="the 'tables' extra is absent")
    path = write_sample("operation-log", folder)
    table = csv.read_csv(path)
    parquet.write_table(pyarrow.table(table), path)
    return path


def _codec(name: str):
    def write(folder: Path) -> Path:
        if name == "zstd":
            pytest.importorskip("zstandard", reason="the 'zstd' extra is absent")
        (folder / "sample").write_bytes((CODECS / f"codec.{name}").read_bytes())
        return folder / "sample"

    return write


def _gz(name: str):
    def write(folder: Path) -> Path:
        path = write_sample(name, folder)
        path.write_bytes(gzip.compress(path.read_bytes()))
        return path

    return write


#: What is damaged: a case, its format, and what writes it.
CASES = {
    **{name: (name, lambda folder, name=name: write_sample(name, folder))
       for name in (*FILES, *FOLDER_FILES)},
    "operation-log parquet": ("operation-log", _parquet),
    **{f"spark-log {codec}": ("spark-log", _codec(codec))
       for codec in ("lz4", "lzf", "snappy", "zstd")},
    "kineto gz": ("kineto", _gz("kineto")),
    "job-table gz": ("job-table", _gz("job-table")),
}  # fmt: skip


def survive(name: str, folder: Path, count: int) -> int:
    """Damages a sample so many times; how often it could still be read."""
    format, write = CASES[name]
    path = write(folder)
    target = path / FOLDER_FILES[format] if format in FOLDER_FILES else path
    whole = target.read_bytes()
    is_packed = target.name.endswith(".gz")
    plain = gzip.decompress(whole) if is_packed else whole
    rng = random.Random(zlib.crc32(name.encode()))
    reader = BY_NAME[format].load_reader() if BY_NAME[format].reader else None
    looks = [identify, lambda path: contents_of(path, format), *([reader] if reader else [])]
    read = 0
    for number in range(count):
        damaged = mutate(plain, rng)
        target.write_bytes(gzip.compress(damaged, 1) if is_packed else damaged)
        for look in looks:
            try:
                look(path)
                read += look is reader
            except GnomonError as error:
                assert "\n" not in str(error), (number, str(error))
            except Exception as error:
                keep = damaged if len(damaged) < 5000 else damaged[:5000]
                raise AssertionError(f"{name} {number}: {error!r} for {keep!r}") from error
    return read


@pytest.mark.parametrize("name", CASES)
def test_damaged_files_are_read_or_refused(tmp_path, monkeypatch, name):
    monkeypatch.setenv("GNOMON_CACHE", "off")
    survive(name, tmp_path, SHORT)


@pytest.mark.slow
@pytest.mark.timeout(1700)
@pytest.mark.parametrize("name", CASES)
def test_many_damaged_files_are_read_or_refused(tmp_path, monkeypatch, name):
    monkeypatch.setenv("GNOMON_CACHE", "off")
    read = survive(name, tmp_path, LONG)
    assert read or not BY_NAME[CASES[name][0]].reader  # some survive: the damage is not too much


def test_a_number_of_twenty_digits_in_a_spark_log(tmp_path):
    path = write_sample("spark-log", tmp_path)
    text = path.read_text()
    for field in ("1794766704520", '"Index": 0', '"Stage ID": 0', '"Number of Tasks": 1'):
        path.write_text(text.replace(field, field.rpartition(" ")[0] + " 99999999999999999999"))
        try:
            log = BY_NAME["spark-log"].load_reader()(path)
        except GnomonError:
            continue
        assert sum(log.dropped.values()) > 0


def test_all_samples_are_fuzzed():
    assert {format for format, _ in CASES.values()} >= (set(FILES) | set(FOLDERS)) - {
        "recording", "folder",
    }  # fmt: skip
