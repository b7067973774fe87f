"""The process lab: an application runs as real processes of this machine.

`Lab` starts every replica in its own control group, changes limits, weights and replicas while
it runs, and reads its counters. `Lab.load` sends requests in an open loop. `clean_up_leftovers`
removes what a killed lab left behind. `MetricsServer` and `send_spans` show it to Prometheus and
OpenTelemetry.
"""

from gnomon.act.local.client import ERROR, OK, PENDING, TIMEOUT, OpenLoop
from gnomon.act.local.lab import Lab
from gnomon.act.local.leftovers import clean_up_leftovers
from gnomon.act.local.reading import Reading, bucket_edges_ns, percentiles_ms
from gnomon.act.local.telemetry import MetricsServer, send_spans, write_prometheus_config
from gnomon.act.local.tier import Sample

__all__ = [
    "ERROR",
    "OK",
    "PENDING",
    "TIMEOUT",
    "Lab",
    "MetricsServer",
    "OpenLoop",
    "Reading",
    "Sample",
    "bucket_edges_ns",
    "clean_up_leftovers",
    "percentiles_ms",
    "send_spans",
    "write_prometheus_config",
]
