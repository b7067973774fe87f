"""Where Spark is on this machine, and which one it is."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
from pathlib import Path

import msgspec

from gnomon.errors import InputError, MissingExtra

_CORE_JAR = re.compile(r"spark-core_(\d+\.\d+)-(.+)\.jar")


class SparkHome(msgspec.Struct, frozen=True):
    """An installed Spark.

    Attributes:
        path: Its folder, with `jars` and `bin` in it.
        version: Its version, as its core library is named.
        scala: The version of Scala it was built with.
    """

    path: Path
    version: str
    scala: str

    @property
    def jars(self) -> Path:
        """The folder of its libraries."""
        return self.path / "jars"

    @property
    def major(self) -> int:
        """The first number of its version."""
        return int(self.version.split(".")[0])


def find_spark(home: Path | str | None = None) -> SparkHome:
    """The Spark in a folder; without one that of `$SPARK_HOME`, then the one of pyspark.

    Raises:
        InputError: The folder holds no Spark.
        MissingExtra: No folder is named, and pyspark is not installed.
    """
    chosen = home or os.environ.get("SPARK_HOME") or _folder_of_pyspark()
    folder = Path(chosen).resolve()
    for jar in sorted((folder / "jars").glob("spark-core_*.jar")):
        if found := _CORE_JAR.fullmatch(jar.name):
            return SparkHome(folder, version=found[2], scala=found[1])
    raise InputError(
        "no Spark is here: jars/spark-core_*.jar is missing", where=str(folder),
        hint="name a Spark's folder, or pip install 'gnomon[spark]'",
    )  # fmt: skip


def _folder_of_pyspark() -> Path:
    # Found, not imported: importing pyspark takes most of a second.
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise MissingExtra("pyspark", "spark", "a local Spark")
    return Path(spec.origin).parent


def find_java(program: str = "java") -> Path:
    """`java` or `javac`: that of `$JAVA_HOME`, else the one on the path.

    Raises:
        InputError: There is none.
    """
    java_home = os.environ.get("JAVA_HOME")
    if java_home and (inside := Path(java_home) / "bin" / program).is_file():
        return inside
    if found := shutil.which(program):
        return Path(found)
    part = "JDK" if program == "javac" else "Java"
    raise InputError(
        f"there is no {program} on this machine",
        hint=f"install a {part} (Spark 4 needs 17 or newer), or set JAVA_HOME",
    )
