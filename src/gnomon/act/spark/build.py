"""The driver plugin: a few Java classes, compiled against the Spark that is there.

The sources travel with gnomon. Compiled once per Spark, they are kept in `$GNOMON_CACHE`, or
`$XDG_CACHE_HOME/gnomon`, or `~/.cache/gnomon`.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import tempfile
import zipfile
from pathlib import Path

from gnomon.act.spark.home import SparkHome, find_java, find_spark
from gnomon.errors import ActuationError
from gnomon.ingest.cache import cache_folder

#: What `spark.plugins` names.
PLUGIN_CLASS = "gnomon.spark.GnomonPlugin"

_SOURCES = Path(__file__).parent / "plugin"
#: Extends an internal class of Spark that may change. Where it does not compile, the plugin works
#: without it, and no stage is ever held.
_OPTIONAL = "HoldingPool.java"
#: Of the three hundred libraries of a Spark those that the plugin uses.
_NEEDED = ("spark-", "scala-library", "jackson-", "slf4j-api")
_COMPILE_S = 120


def build_plugin(spark_home: Path | str | None = None, out: Path | str | None = None) -> Path:
    """The plugin's jar for a Spark, compiled unless it is in the cache.

    Args:
        spark_home: The Spark's folder; that of `$SPARK_HOME` or of pyspark otherwise.
        out: Path of the jar; in gnomon's cache otherwise.

    Raises:
        InputError: There is no Spark, or no Java compiler.
        MissingExtra: No Spark is named, and pyspark is not installed.
        ActuationError: The plugin does not compile against this Spark.
    """
    spark = find_spark(spark_home)
    place = Path(out) if out is not None else _place(spark)
    if out is None and place.is_file():
        return place
    place.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".gnomon-plugin-", dir=place.parent) as folder:
        classes = Path(folder) / "classes"
        _compile(spark, classes)
        fresh = Path(folder) / "plugin.jar"
        _pack(classes, fresh)
        os.replace(fresh, place)
    return place


def _place(spark: SparkHome) -> Path:
    digest = hashlib.sha256()
    for source in _sources():
        digest.update(source.name.encode() + b"\0" + source.read_bytes() + b"\0")
    name = f"gnomon-spark-{spark.version}_{spark.scala}-{digest.hexdigest()[:16]}.jar"
    folder = cache_folder() or Path(tempfile.mkdtemp(prefix="gnomon-plugin-"))
    return folder / name


def _sources() -> list[Path]:
    return sorted(_SOURCES.glob("*.java"))


def _compile(spark: SparkHome, classes: Path) -> None:
    classes.mkdir(parents=True)
    needed = [source for source in _sources() if source.name != _OPTIONAL]
    failed = _javac(spark, classes, needed)
    if failed:
        raise ActuationError(
            f"the driver plugin does not compile against Spark {spark.version}: {failed}"
        )
    _javac(spark, classes, [_SOURCES / _OPTIONAL])


def _javac(spark: SparkHome, classes: Path, sources: list[Path]) -> str:
    """The first error of the compiler; empty where it succeeds."""
    # The oldest Java that this Spark runs on: the compiler may be newer than the driver's.
    release = "17" if spark.major >= 4 else "8"
    jars = [str(jar) for prefix in _NEEDED for jar in sorted(spark.jars.glob(f"{prefix}*.jar"))]
    command = [
        str(find_java("javac")), "--release", release, "-nowarn", "-proc:none", "-Xlint:none",
        "-encoding", "UTF-8", "-cp", os.pathsep.join([*jars, str(classes)]), "-d", str(classes),
        *map(str, sources),
    ]  # fmt: skip
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_COMPILE_S, check=False
        )
    except subprocess.TimeoutExpired:
        return f"javac took longer than {_COMPILE_S} s"
    if done.returncode == 0:
        return ""
    errors = [line for line in done.stderr.splitlines() if "error:" in line]
    return errors[0].strip() if errors else f"javac ended with {done.returncode}"


def _pack(classes: Path, jar: Path) -> None:
    """The same classes give the same bytes."""
    with zipfile.ZipFile(jar, "w") as archive:
        archive.writestr(zipfile.ZipInfo("META-INF/MANIFEST.MF"), "Manifest-Version: 1.0\r\n\r\n")
        for path in sorted(classes.rglob("*.class")):
            entry = zipfile.ZipInfo(str(path.relative_to(classes)))
            archive.writestr(entry, path.read_bytes(), zipfile.ZIP_DEFLATED)
