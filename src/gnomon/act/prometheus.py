"""What Prometheus says about an application in one interval, as managers of services see it.

    seen = observe_window(Prometheus(url), app, read_profile("istio"), now_s=time.time())
    seen.window.usage, seen.missing

It never raises for what is wrong with the measurements: a figure that is missing, stale, not a
number or not answered in time is NaN, and `missing` says why.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np

from gnomon.act.metric_profile import Profile, Quantity
from gnomon.decide.services.state import PERCENTILES, Floats, Window
from gnomon.graph.application import Application
from gnomon.ingest.http_json import RequestFailed
from gnomon.ingest.metrics.prometheus import Prometheus, PrometheusAnswer, PrometheusSeries

_PERCENTILE = "percentile"
#: Quantities for which infinity means something: no limit.
_UNLIMITED: tuple[Quantity, ...] = ("cpu_limit",)


class Observation(NamedTuple):
    """A window, and why figures of it are NaN.

    Attributes:
        window: The measurements; where `replicas` is unknown it is -1, and `cpu_limit` NaN.
        missing: A line for each figure that could not be measured.
        warnings: What Prometheus said about its answers.
    """

    window: Window
    missing: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def is_empty(self) -> bool:
        """True where neither the CPU time nor the requests of any service are known."""
        known = np.isfinite(np.concatenate([self.window.usage, self.window.class_rate]))
        return not known.any()


def observe_window(
    client: Prometheus, app: Application, profile: Profile, now_s: float, *,
    duration_s: float = 30.0, timeout_s: float = 10.0,
    clock: Callable[[], float] = time.monotonic,
) -> Observation:  # fmt: skip
    """The last interval of an application.

    Args:
        now_s: The end of the interval, since 1970.
        duration_s: Its length; at least two scrapes, else rates are not known.
        timeout_s: For all queries together; those that do not get their turn are missing.
        clock: Seconds, for the time-out.
    """
    asking = _Asking(client, profile, now_s, duration_s, clock() + timeout_s, clock)
    reading = _Reading(app, profile, now_s)
    by_service = {
        quantity: reading.by_service(quantity, asking.now(quantity))
        for quantity in _SERVICE_QUANTITIES
    }
    by_class = {
        quantity: reading.by_class(quantity, asking.now(quantity))
        for quantity in _CLASS_QUANTITIES
    }
    samples = {
        quantity: reading.slices(quantity, asking.slices(quantity), by_service[quantity])
        for quantity in _SLICED
    }
    replicas = by_service["replicas"][0]
    # Without the number of replicas nobody knows what a service may use: guards hold then.
    limit = np.where(np.isfinite(replicas), by_service["cpu_limit"][0], np.nan)
    window = Window(
        now_s=now_s,
        duration_s=duration_s,
        cpu_limit=limit,
        replicas=np.where(np.isfinite(replicas), replicas, -1).astype(np.int64),
        usage=by_service["usage"][0],
        usage_samples=samples["usage"],
        throttled=by_service["throttled"][0],
        throttled_samples=samples["throttled"],
        queue=by_service["queue"][0],
        rate=by_service["rate"][0],
        service_ms=by_service["service_ms"],
        class_rate=by_class["class_rate"][0],
        class_ms=by_class["class_ms"],
        class_errors=by_class["class_errors"][0],
        class_violations=reading.violations(asking.now("class_buckets")),
        foreign_cores=float("nan"),
    )
    return Observation(window, tuple(reading.missing), tuple(dict.fromkeys(asking.warnings)))


_SERVICE_QUANTITIES: tuple[Quantity, ...] = (
    "cpu_limit", "replicas", "usage", "throttled", "queue", "rate", "service_ms",
)  # fmt: skip
_CLASS_QUANTITIES: tuple[Quantity, ...] = ("class_rate", "class_ms", "class_errors")
_SLICED: tuple[Quantity, ...] = ("usage", "throttled")
_WITH_PERCENTILES: tuple[Quantity, ...] = ("service_ms", "class_ms")

#: Series, or why there are none.
_Answered = Sequence[PrometheusSeries] | str


class _Asking:
    """Queries, until the time is up."""

    def __init__(
        self, client: Prometheus, profile: Profile, now_s: float, duration_s: float,
        deadline_s: float, clock: Callable[[], float],
    ) -> None:  # fmt: skip
        self._client, self._profile = client, profile
        self._now_s, self._duration_s = now_s, duration_s
        self._deadline_s, self._clock = deadline_s, clock
        self.warnings: list[str] = []

    def now(self, quantity: Quantity) -> _Answered:
        if quantity not in self._profile.metrics:
            return "the profile has no query"
        text = self._profile.text(quantity, self._duration_s)
        if quantity in _WITH_PERCENTILES:
            text = " or ".join(
                f"label_replace({self._profile.text(quantity, self._duration_s, p / 100)}, "
                f'"{_PERCENTILE}", "{p:g}", "", "")'
                for p in PERCENTILES
            )
        return self._series(lambda left_s: self._client.query(text, self._now_s, timeout_s=left_s))

    def slices(self, quantity: Quantity) -> _Answered:
        slice_s = self._profile.slice_s
        if not slice_s or slice_s > self._duration_s or quantity not in self._profile.metrics:
            return ()
        text = self._profile.text(quantity, slice_s)
        first_s = self._now_s - slice_s * (round(self._duration_s / slice_s) - 1)
        return self._series(
            lambda left_s: self._client.query_range(
                text, first_s, self._now_s, slice_s, timeout_s=left_s
            )
        )

    def _series(self, ask: Callable[[float], PrometheusAnswer]) -> _Answered:
        left_s = self._deadline_s - self._clock()
        if left_s <= 0:
            return "out of time"
        try:
            answer = ask(left_s)
        except RequestFailed as failure:
            return str(failure)
        self.warnings += answer.warnings
        return answer.series or "the answer is empty"


class _Reading:
    """Answers as arrays in the order of the application, and a line for what is missing."""

    def __init__(self, app: Application, profile: Profile, now_s: float) -> None:
        self._app, self._profile, self._now_s = app, profile, now_s
        self._service_labels = [profile.services.get(name, name) for name in app.services]
        self.missing: list[str] = []

    def by_service(self, quantity: Quantity, answered: _Answered) -> Floats:
        keys = [(label,) for label in self._service_labels]
        return self._table(quantity, answered, list(self._app.services), keys)

    def by_class(self, quantity: Quantity, answered: _Answered) -> Floats:
        return self._table(quantity, answered, list(self._app.classes), self._class_keys(quantity))

    def violations(self, answered: _Answered) -> Floats:
        """Share of requests over the bound of their class, with straight lines inside a bucket."""
        found = np.full(len(self._app.classes), np.nan)
        bounded = [i for i, one in enumerate(self._app.classes.values()) if one.sla is not None]
        if not bounded or isinstance(answered, str):
            if bounded:
                self.missing.append(f"class_violations: {answered}")
            return found
        scale = self._profile.metrics["class_buckets"].le_ms
        keys = self._class_keys("class_buckets")
        names, classes = list(self._app.classes), list(self._app.classes.values())
        for i in bounded:
            sla, key = classes[i].sla, keys[i]
            assert sla is not None
            rows = [one for one in answered if key and self._key("class_buckets", one) == key]
            found[i] = _share_above(rows, sla.bound_ms / scale)
            if np.isnan(found[i]):
                self.missing.append(f"class_violations of {names[i]}: no requests in its buckets")
        return found

    def slices(self, quantity: Quantity, answered: _Answered, whole: Floats) -> Floats:
        """A row a slice; without slices, the whole window is one."""
        if not answered:
            return whole
        if isinstance(answered, str):
            self.missing.append(f"slices of {quantity}: {answered}")
            return whole
        times = sorted({time_s for one in answered for time_s in one.times_s})
        found = np.full((len(times), len(self._service_labels)), np.nan)
        row = {time_s: index for index, time_s in enumerate(times)}
        for one in answered:
            label = self._key(quantity, one)[0]
            if label in self._service_labels:
                column = self._service_labels.index(label)
                for time_s, value in zip(one.times_s, one.values):
                    found[row[time_s], column] = value if 0 <= value < np.inf else np.nan
        return found

    def _table(
        self, quantity: Quantity, answered: _Answered, names: list[str],
        keys: Sequence[tuple[str, ...]],
    ) -> Floats:  # fmt: skip
        """One row; for percentiles, a row each."""
        labels = [f"{p:g}" for p in PERCENTILES] if quantity in _WITH_PERCENTILES else [""]
        found = np.full((len(labels), len(names)), np.nan)
        if isinstance(answered, str):
            self.missing.append(f"{quantity}: {answered}")
            return found
        rows: dict[tuple[tuple[str, ...], str], list[PrometheusSeries]] = {}
        for one in answered:
            at = (self._key(quantity, one), one.labels.get(_PERCENTILE, ""))
            rows.setdefault(at, []).append(one)
        for i, label in enumerate(labels):
            for j, (name, key) in enumerate(zip(names, keys)):
                what = f"p{label} {quantity} of {name}" if label else f"{quantity} of {name}"
                if key:
                    found[i, j] = self._value(quantity, what, rows.get((key, label), ()))
                elif i == 0:
                    self.missing.append(f"{what}: other classes enter there too")
        return found

    def _value(self, quantity: Quantity, what: str, rows: Sequence[PrometheusSeries]) -> float:
        """The number of the only series; NaN with a reason where it is none of use."""
        if len(rows) != 1 or not rows[0].values:
            problem = f"{len(rows)} series: the query must aggregate" if rows else "no series"
        else:
            value, age_s = rows[0].values[-1], self._now_s - rows[0].times_s[-1]
            if abs(age_s) > self._profile.stale_s:
                problem = f"the sample is {age_s:.0f} s old"
            elif 0 <= value < np.inf or (value == np.inf and quantity in _UNLIMITED):
                return value
            else:
                problem = f"the value is {value:g}"
        self.missing.append(f"{what}: {problem}")
        return float("nan")

    def _class_keys(self, quantity: Quantity) -> list[tuple[str, ...]]:
        """The labels of each class; empty where the metric cannot tell it from others."""
        metric = self._profile.metrics.get(quantity)
        entries = [one.call.service for one in self._app.classes.values()]
        services = [self._profile.services.get(name, name) for name in entries]
        if metric is not None and not metric.class_:
            return [
                (label,) if entries.count(entry) == 1 else ()
                for label, entry in zip(services, entries)
            ]
        classes = (self._profile.classes.get(name, name) for name in self._app.classes)
        return list(zip(services, classes))

    def _key(self, quantity: Quantity, series: PrometheusSeries) -> tuple[str, ...]:
        metric = self._profile.metrics[quantity]
        is_of_class = quantity.startswith("class_") and metric.class_
        names = (metric.service, metric.class_) if is_of_class else (metric.service,)
        return tuple(series.labels.get(name, "") for name in names)


def _share_above(buckets: Iterable[PrometheusSeries], bound: float) -> float:
    """Of a cumulative histogram; what lies above its last finite edge counts as above."""
    points = sorted(
        (edge, one.values[-1])
        for one in buckets
        if one.values and (edge := _number(one.labels.get("le", ""))) is not None
    )
    if not points or points[-1][0] != np.inf or not 0 < points[-1][1] < np.inf:
        return float("nan")
    edges, counts = zip((0.0, 0.0), *points[:-1])
    below = float(np.interp(bound, edges, counts))
    return min(max(1.0 - below / points[-1][1], 0.0), 1.0)


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
