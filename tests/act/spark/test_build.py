"""The plugin's jar: where it is kept, and the errors when something is missing."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from gnomon.act.spark import build_plugin, find_spark
from gnomon.act.spark import home as spark_home
from gnomon.errors import ActuationError, InputError, MissingExtra
from tests.act.spark.standalone import standalone


def pretend_spark(folder: Path, version: str = "9.9.9") -> Path:
    (folder / "jars").mkdir(parents=True)
    (folder / "jars" / f"spark-core_2.13-{version}.jar").touch()
    return folder


def test_a_spark_is_found_by_its_library(tmp_path, monkeypatch):
    found = find_spark(pretend_spark(tmp_path / "s", "3.5.1-amzn-0"))
    assert (found.version, found.scala, found.major) == ("3.5.1-amzn-0", "2.13", 3)
    monkeypatch.setenv("SPARK_HOME", str(tmp_path / "s"))
    assert find_spark() == found
    with pytest.raises(InputError, match="no Spark is here"):
        find_spark(tmp_path)


def test_without_pyspark(monkeypatch):
    monkeypatch.delenv("SPARK_HOME", raising=False)
    monkeypatch.setattr(spark_home.importlib.util, "find_spec", lambda _: None)
    with pytest.raises(MissingExtra, match=r"pip install 'gnomon\[spark\]'"):
        build_plugin()


def test_without_a_compiler(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(InputError, match=r"no javac.*install a JDK"):
        build_plugin(pretend_spark(tmp_path / "s"), tmp_path / "p.jar")
    with (
        pytest.raises(InputError, match="no java on this machine"),
        standalone(1, home=tmp_path / "s"),
    ):
        pass


def test_java_home_comes_first(tmp_path, monkeypatch):
    program = tmp_path / "bin" / "javac"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho 'x.java:1: error: no such class' >&2; exit 1\n")
    program.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    place = tmp_path / "out" / "p.jar"
    with pytest.raises(ActuationError, match=r"compile against Spark 9\.9\.9: .*no such class"):
        build_plugin(pretend_spark(tmp_path / "s"), place)
    assert list(place.parent.iterdir()) == []  # nothing half done is left


@pytest.mark.spark
def test_the_plugin_is_built_once(plugin):
    assert find_spark().version in plugin.name
    with zipfile.ZipFile(plugin) as archive:
        names = archive.namelist()
    assert "gnomon/spark/GnomonPlugin.class" in names
    assert "gnomon/spark/HoldingPool.class" in names
    written = plugin.stat().st_mtime_ns
    assert build_plugin() == plugin
    assert plugin.stat().st_mtime_ns == written
    assert not list(plugin.parent.glob(".gnomon-plugin-*"))
