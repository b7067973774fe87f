"""Clone: can I hand over this service without handing over its code? (Ditto, ASPLOS 2023)

load = "redis-benchmark -p {} -t get -n 5000"
bundle = profile(["redis-server", "--port", "7001"], load.format(7001), protocol="resp")
write_project(bundle, Path("redis-clone"))
tune(bundle, Path("redis-clone"), load.format(7002), port=7002)
"""

from __future__ import annotations

from gnomon.systems.clone.bundle import Bundle, read_bundle, write_bundle
from gnomon.systems.clone.profile import profile
from gnomon.systems.clone.project import write_project
from gnomon.systems.clone.tune import compare, tune

__all__ = ["Bundle", "compare", "profile", "read_bundle", "tune", "write_bundle", "write_project"]
