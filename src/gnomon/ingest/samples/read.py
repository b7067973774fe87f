"""Reading measured times of requests: one door for every format that holds some."""

from __future__ import annotations

import os
from pathlib import Path

from gnomon.errors import InputError
from gnomon.ingest.formats import identify
from gnomon.ingest.samples.hdr_log import read_hdr_log
from gnomon.ingest.samples.percentiles import read_percentiles
from gnomon.ingest.samples.samples import UNITS_NS, Samples
from gnomon.ingest.samples.span_times import read_span_times
from gnomon.ingest.samples.table import read_sample_table

_SPANS = ("otlp", "jaeger", "zipkin", "otlp-protobuf", "span-table")
_HISTOGRAMS = {"hdr-log": read_hdr_log, "percentiles": read_percentiles}


def read_samples(
    path: str | os.PathLike[str], *, unit: str | None = None, service: str | None = None
) -> Samples:
    """Times of requests: of a table, a load tester, an HdrHistogram, or spans.

    Args:
        unit: ns, us, ms or s, where the file does not say it or says it wrong.
        service: Whose own times, in traces of several.
    """
    where = os.fspath(path)
    if unit is not None and unit not in UNITS_NS:
        raise InputError(f"there is no unit {unit!r}", hint=f"{', '.join(UNITS_NS)}")
    format = identify(path).format
    is_spans = format in _SPANS or Path(path).is_dir()
    if service is not None and not is_spans:
        raise InputError("a service is chosen in traces alone", where=where, hint="no --service")
    if unit is not None and is_spans:
        raise InputError("the times of spans have their unit", where=where, hint="no --unit")
    if is_spans:
        return read_span_times(path, service)
    return _HISTOGRAMS.get(format, read_sample_table)(path, unit)
