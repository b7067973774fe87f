"""Settings that put the plugin into an application."""

from __future__ import annotations

import os
from pathlib import Path

from gnomon.act.spark.build import PLUGIN_CLASS
from gnomon.errors import InputError

#: Executors leave gracefully, and what other stages still need moves to those that stay. Spark
#: looks for such blocks every 30 s by default, and an executor would not leave before.
_DECOMMISSION = {
    "spark.decommission.enabled": "true",
    "spark.storage.decommission.enabled": "true",
    "spark.storage.decommission.rddBlocks.enabled": "true",
    "spark.storage.decommission.shuffleBlocks.enabled": "true",
    "spark.storage.decommission.replicationReattemptInterval": "1s",
}


def spark_conf(
    *, handshake: Path | str, plugin: Path | str, lease_s: float = 10.0, port: int = 0,
    decommission: bool = True, disable: tuple[str, ...] = (), class_path: str = "",
    jars: str = "",
) -> dict[str, str]:  # fmt: skip
    """Settings for spark-submit or `SparkSession.builder.config(map=...)`.

    Args:
        handshake: A file in a folder that exists; the driver writes port and token into it.
        plugin: The jar that `build_plugin` made.
        lease_s: After that long without a heartbeat the driver releases everything.
        port: The port on loopback; 0 takes a free one.
        decommission: Executors above a quota leave gracefully, with their blocks moved away.
        disable: Capabilities to do without.
        class_path: Your own `spark.driver.extraClassPath`, which this would replace.
        jars: Your own `spark.jars`, which this would replace.

    >>> spark_conf(handshake="h.json", plugin="p.jar", decommission=False)["spark.gnomon.lease"]
    '10000ms'
    """
    if not 0.5 <= lease_s <= 3600:
        raise InputError("lasts from 0.5 to 3600 seconds", where="lease_s")
    jar = str(Path(plugin).resolve())
    settings = {
        "spark.plugins": PLUGIN_CLASS,
        "spark.driver.extraClassPath": os.pathsep.join(filter(None, (jar, class_path))),
        # Executors load the class of every plugin, also of one for the driver only.
        "spark.jars": ",".join(filter(None, (jar, jars))),
        "spark.gnomon.handshake": str(Path(handshake).resolve()),
        "spark.gnomon.lease": f"{lease_s * 1000:.0f}ms",
        "spark.gnomon.port": str(port),
    }
    if disable:
        settings["spark.gnomon.disable"] = ",".join(disable)
    return settings | (_DECOMMISSION if decommission else {})
