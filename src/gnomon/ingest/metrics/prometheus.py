"""Prometheus over HTTP: queries now and over time, and the answers it gives or has saved.

    prometheus = Prometheus("http://127.0.0.1:9090")
    prometheus.query("up").series

Credentials come from the environment: `PROMETHEUS_TOKEN`, or `PROMETHEUS_USERNAME` with
`PROMETHEUS_PASSWORD`. They travel over TLS or loopback alone and are never part of an error.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Mapping
from urllib.parse import urlencode, urlsplit

import msgspec
import numpy as np

from gnomon.errors import InputError
from gnomon.ingest.http_json import RequestFailed, get_bytes, is_private
from gnomon.ingest.text import BAD_JSON
from gnomon.series import Signal

#: Addresses longer than this are refused on the way; such a query is posted.
_LONGEST_URL = 2000


class PrometheusSeries(msgspec.Struct, frozen=True):
    """One series of an answer: samples with labels.

    Attributes:
        metric: Its name; empty after most functions of PromQL.
        labels: All but the name.
        times_s: When, since 1970.
        values: As sent: NaN and infinities included.

    >>> up = PrometheusSeries("up", {"job": "lab"}, [10.0, 11.0, 14.0], [1.0, 1.0, float("inf")])
    >>> up.signal("1", step_s=1.0).values.tolist()
    [1.0, 1.0, nan, nan]
    """

    metric: str
    labels: dict[str, str]
    times_s: list[float]
    values: list[float]

    def signal(self, unit: str, *, step_s: float) -> Signal:
        """The series as a signal: what is infinite, or missing for over a step, is a gap."""
        values = np.asarray(self.values)
        return Signal.from_samples(
            [round(time_s * 1e3) * 10**6 for time_s in self.times_s],
            np.where(np.isfinite(values), values, np.nan),
            step_ns=round(step_s * 1e9), unit=unit, kind=self.metric or "query",
        )  # fmt: skip


class PrometheusAnswer(msgspec.Struct, frozen=True):
    """What a query answered.

    Attributes:
        series: One sample each from `query`, many from `query_range`; none is an answer too.
        kind: `matrix`, `vector` or `scalar`.
        warnings: What the server says about the answer: parts that did not respond, for one.
    """

    series: tuple[PrometheusSeries, ...]
    kind: str
    warnings: tuple[str, ...] = ()


class Prometheus:
    """A server that answers PromQL: Prometheus, Thanos, Mimir, VictoriaMetrics.

    >>> Prometheus("ftp://metrics")
    Traceback (most recent call last):
        ...
    gnomon.errors.InputError: 'ftp://metrics' is no address of Prometheus; it begins with http
    """

    def __init__(self, url: str, *, environ: Mapping[str, str] = os.environ) -> None:
        parts = urlsplit(url)
        if parts.username or parts.password:
            raise InputError("the address of Prometheus holds a password",
                             hint="set PROMETHEUS_USERNAME and PROMETHEUS_PASSWORD")  # fmt: skip
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise InputError(f"{url!r} is no address of Prometheus", hint="it begins with http")
        self.host = parts.netloc
        self._url = url.rstrip("/")
        self._headers = _credentials(environ)
        if self._headers and not is_private(url):
            raise InputError("credentials would travel to Prometheus in plain text",
                             where=self.host, hint="use https")  # fmt: skip

    def query(
        self, promql: str, at_s: float | None = None, *, timeout_s: float = 10.0
    ) -> PrometheusAnswer:
        """The value of an expression at a time since 1970; at the server's now without one.

        Raises:
            RequestFailed: No answer, or a refusal.
        """
        at = {} if at_s is None else {"time": f"{at_s:.3f}"}
        return self._ask("query", {"query": promql} | at, timeout_s)

    def query_range(
        self, promql: str, start_s: float, end_s: float, step_s: float, *, timeout_s: float = 10.0
    ) -> PrometheusAnswer:
        """The values of an expression from a time to another, in steps.

        Raises:
            RequestFailed: No answer, or a refusal.
        """
        form = {"start": f"{start_s:.3f}", "end": f"{end_s:.3f}", "step": f"{step_s:.3f}"}
        return self._ask("query_range", {"query": promql} | form, timeout_s)

    def _ask(self, what: str, form: dict[str, str], timeout_s: float) -> PrometheusAnswer:
        url, text = f"{self._url}/api/v1/{what}", urlencode(form)
        data = text.encode() if len(url) + len(text) > _LONGEST_URL else None
        if data is None:
            url += f"?{text}"
        try:
            # Whoever asks in a loop asks again soon enough.
            raw = get_bytes(url, self._headers, data=data, timeout_s=timeout_s, attempts=1)
        except RequestFailed as failure:
            raise RequestFailed(_refusal(failure), failure.status) from None
        try:
            return parse_answer(raw, self.host)
        except InputError as error:
            raise RequestFailed(str(error)) from None


def _credentials(environ: Mapping[str, str]) -> dict[str, str]:
    if token := environ.get("PROMETHEUS_TOKEN", "").strip():
        return {"Authorization": f"Bearer {token}"}
    if user := environ.get("PROMETHEUS_USERNAME"):
        pair = f"{user}:{environ.get('PROMETHEUS_PASSWORD', '')}".encode()
        return {"Authorization": f"Basic {base64.b64encode(pair).decode()}"}
    return {}


def _refusal(failure: RequestFailed) -> str:
    """The failure with what the server says about it; a proxy in between says nothing of use."""
    try:
        said = msgspec.json.decode(failure.body, type=_Answer, strict=False).error
    except BAD_JSON:
        said = ""
    return f"{failure}: {' '.join(said.split())[:300]}" if said else str(failure)


class _Row(msgspec.Struct):
    metric: dict[str, str] = {}
    values: list[tuple[float, str]] | None = None
    value: tuple[float, str] | None = None


class _Data(msgspec.Struct, rename="camel"):
    result: msgspec.Raw
    result_type: str = "matrix"


class _Answer(msgspec.Struct):
    data: _Data | None = None
    status: str = "success"
    error: str = ""
    warnings: list[str] | None = None


def parse_answer(raw: bytes, where: str) -> PrometheusAnswer:
    """The answer of `/api/v1/query` or `/api/v1/query_range`, from the server or from a file.

    Raises:
        InputError: It is none, or says that the query failed.
    """
    rows: list[_Row] = []
    try:
        answer = msgspec.json.decode(raw, type=_Answer, strict=False)
        if answer.data is not None:
            rows = _rows(answer.data)
    except BAD_JSON as error:
        hint = "expected the answer of /api/v1/query_range"
        raise InputError(f"is no answer of Prometheus: {error}", where=where, hint=hint) from None
    if answer.status != "success" or answer.data is None:
        raise InputError(f"Prometheus refused: {answer.error or answer.status}", where=where)
    series = tuple(
        _series(row, f"{where} $.data.result[{index}]") for index, row in enumerate(rows)
    )
    return PrometheusAnswer(series, answer.data.result_type, tuple(answer.warnings or ()))


def _rows(data: _Data) -> list[_Row]:
    if data.result_type == "scalar":
        return [_Row(value=msgspec.json.decode(data.result, type=tuple[float, str]))]
    return msgspec.json.decode(data.result, type=list[_Row], strict=False)


def _series(row: _Row, at: str) -> PrometheusSeries:
    labels = dict(row.metric)
    metric = labels.pop("__name__", "")
    samples = row.values if row.value is None else [row.value]
    try:
        values = [float(value) for _, value in samples or ()]
    except ValueError as error:
        raise InputError(f"a sample is no number: {error}", where=at) from None
    return PrometheusSeries(metric, labels, [time_s for time_s, _ in samples or ()], values)
