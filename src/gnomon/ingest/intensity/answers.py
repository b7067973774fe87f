"""Intensity as services answer it in JSON: Electricity Maps, WattTime, Great Britain, the
Carbon Aware SDK."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from gnomon.errors import InputError
from gnomon.ingest.intensity.rows import POUNDS_PER_MWH, Rows
from gnomon.ingest.moment import parse_clock, parse_instant
from gnomon.ingest.text import BAD_JSON
from gnomon.series.intensity import Scope
from gnomon.units import HOUR_NS, MINUTE_NS, SECOND_NS

_KNOWN = "Electricity Maps, WattTime, the Carbon Intensity API of Great Britain, Carbon Aware SDK"
_GRANULARITY_NS = {
    "hourly": HOUR_NS,
    "5_minutes": 5 * MINUTE_NS,
    "15_minutes": 15 * MINUTE_NS,
    "30_minutes": 30 * MINUTE_NS,
    "daily": 24 * HOUR_NS,
}
#: Keys of the services' answers, all of a row in one.
_SERVICES = (
    (b'"carbonIntensity"',), (b'"point_time"', b'"value"'), (b'"intensity"', b'"from"'),
    (b'"forecastData"',), (b'"rating"', b'"time"'), (b'"Rating"', b'"Time"'),
)  # fmt: skip
_FACTORS: dict[str, Scope] = {"lifecycle": "lifecycle", "direct": "direct"}


def looks_like_intensity(head: bytes) -> bool:
    """Whether a file begins as one of the services answers.

    >>> looks_like_intensity(b'{"zone": "DE", "history": [{"carbonIntensity": 302')
    True
    """
    if head.lstrip()[:1] not in (b"{", b"["):
        return False
    return any(all(key in head for key in keys) for keys in _SERVICES)


def read_json_rows(text: bytes, where: str) -> Rows:
    """The rows of an answer of one of the services that are known, by its shape."""
    try:
        answer = msgspec.json.decode(text)
    except BAD_JSON as error:
        hint = "was it cut short?" if "truncated" in str(error) else None
        raise InputError(f"not JSON: {error}", where=where, hint=hint) from None
    for recognise in (_electricity_maps, _watttime, _great_britain, _carbon_aware):
        if (rows := recognise(answer, where)) is not None:
            return rows
    reason = ""
    if isinstance(answer, dict):
        given = next((answer[k] for k in ("error", "message", "detail") if k in answer), None)
        reason = f"; it says {str(given)[:80]!r}" if given is not None else ""
    raise InputError(f"no intensity that is known{reason}", where=where, hint=f"known: {_KNOWN}")


def _entries(answer: Any, *names: str, holding: str) -> tuple[str, list[Any]] | None:
    """The list of rows under one of some names, if its first row has a certain field."""
    for name in names:
        found = answer.get(name) if isinstance(answer, dict) else None
        if isinstance(found, list) and (not found or _has(found[0], holding)):
            return name, found
    return None


def _has(entry: Any, *names: str) -> bool:
    return isinstance(entry, dict) and all(name in entry for name in names)


def _take(rows: Rows, number: int, entry: Any, time_name: str, value: Any, **more: Any) -> int:
    if not isinstance(entry, Mapping):
        raise rows.error(number, "is no object")
    time_ns = _time(rows, number, entry.get(time_name), time_name)
    rows.add(number, time_ns, _number(rows, number, value), **more)
    return time_ns


def _time(rows: Rows, number: int, cell: Any, name: str) -> int:
    if not isinstance(cell, str):
        raise rows.error(number, f"no time in {name!r}", "was it cut short?")
    try:
        return parse_instant(cell)
    except InputError as error:
        raise rows.error(number, error.what, error.hint) from None


def _number(rows: Rows, number: int, value: Any) -> float:
    if value is None:
        return math.nan
    if isinstance(value, bool) or not isinstance(value, int | float) or abs(value) > 1e300:
        raise rows.error(number, f"{str(value)[:40]!r} is not a number")
    return float(value)


def _electricity_maps(answer: Any, where: str) -> Rows | None:
    """`latest` is an object of its own; `history`, `past-range` and `forecast` are lists."""
    found = _entries(answer, "history", "forecast", "data", holding="carbonIntensity")
    if found is not None and not found[1] and "zone" not in answer:
        return None  # an empty list says nothing of whose it is
    if found is None:
        if not _has(answer, "carbonIntensity", "datetime"):
            return None
        rows = Rows(where, "electricitymaps-json", label="entry {}")
        entries: Sequence[Any] = [answer]
    else:
        rows = Rows(where, "electricitymaps-json", label=f"{found[0]}[{{}}]")
        entries = found[1]
    rows.attribution = "Electricity Maps"
    rows.basis = "average"
    factors: set[str] = set()
    grains: set[str] = set()
    for number, entry in enumerate(entries):
        value = entry.get("carbonIntensity") if isinstance(entry, dict) else None
        _take(rows, number, entry, "datetime", value)
        rows.estimated.append(entry.get("isEstimated") is True)
        for values, name in ((factors, "emissionFactorType"), (grains, "temporalGranularity")):
            given = entry.get(name, answer.get(name))
            if isinstance(given, str):
                values.add(given)
    if len(factors) > 1:
        shown = ", ".join(sorted(factors))
        raise InputError(f"rows of several emission factors: {shown}", where=where)
    if factors:
        rows.scope = _FACTORS.get(factors.pop())
    if len(grains) == 1:
        rows.step_ns = _GRANULARITY_NS.get(grains.pop())
    if isinstance(answer.get("zone"), str):
        rows.zone = answer["zone"]
    return rows


def _watttime(answer: Any, where: str) -> Rows | None:
    """v3 answers with `data` and `meta`; v2 with a bare list."""
    meta: dict[str, Any] = {}
    if isinstance(answer, list) and answer and _has(answer[0], "point_time", "value"):
        rows = Rows(where, "watttime-json", label="entry {}")
        entries = answer
    else:
        found = _entries(answer, "data", holding="point_time")
        nested = _entries(answer, "data", holding="forecast")
        if found is None and nested is None:
            return None
        meta = answer["meta"] if isinstance(answer.get("meta"), dict) else {}
        if found is not None and not found[1] and "signal_type" not in meta:
            return None  # an empty list says nothing of whose it is
        rows = Rows(where, "watttime-json", label="data[{}]")
        entries = found[1] if found is not None else []
        if found is None and nested is not None:
            entries = nested[1]
            if len(entries) != 1 or not isinstance(entries[0]["forecast"], list):
                what = f"{len(entries)} forecasts are in it"
                raise InputError(what, where=where, hint="keep the one that is meant")
            entries, rows.label = entries[0]["forecast"], "data[0].forecast[{}]"
    _watttime_meta(rows, meta)
    for number, entry in enumerate(entries):
        pounds = entry.get("value") if isinstance(entry, dict) else None
        _take(rows, number, entry, "point_time", pounds)
        region = entry.get("ba") or entry.get("region")
        if isinstance(region, str):
            rows.zones.append(region)
    if len(rows.zones) != len(rows.times):
        rows.zones = []
    rows.values = [value * POUNDS_PER_MWH for value in rows.values]
    return rows


def _watttime_meta(rows: Rows, meta: Mapping[str, Any]) -> None:
    kind = str(meta.get("signal_type", "co2_moer"))
    unit = str(meta.get("units", "lbs_co2_per_mwh"))
    if kind not in ("co2_moer", "co2_aoer") or unit != "lbs_co2_per_mwh":
        what = f"{kind} in {unit}"
        hint = "co2_moer or co2_aoer in lbs_co2_per_mwh can be read"
        raise InputError(what, where=rows.where, hint=hint)
    rows.basis = "marginal" if kind == "co2_moer" else "average"
    rows.scope = "direct"
    rows.attribution = "WattTime"
    if isinstance(meta.get("region"), str):
        rows.zone = meta["region"]
    period = meta.get("data_point_period_seconds")
    if isinstance(period, int) and 0 < period <= 86400:
        rows.step_ns = period * SECOND_NS


def _great_britain(answer: Any, where: str) -> Rows | None:
    """Half-hours: of the country, of one region, or of all regions."""
    data: Any = answer.get("data") if isinstance(answer, dict) else None
    if _has(answer, "regionid", "data"):
        data = answer
    if isinstance(data, list) and len(data) == 1 and _has(data[0], "regionid", "data"):
        data = data[0]
    zone = "GB"
    label = "data[{}]"
    if _has(data, "regionid", "data"):
        zone = str(data.get("shortname") or data["regionid"])
        data, label = data["data"], "data.data[{}]"
    if not isinstance(data, list) or not data or not _has(data[0], "from"):
        return None
    rows = Rows(where, "uk-carbon-intensity-json", label=label, basis="average", scope="direct")
    rows.attribution = "Carbon Intensity API, Great Britain"
    has_regions = _has(data[0], "regions")
    rows.zone = None if has_regions else zone
    expected = 0
    for number, entry in enumerate(data):
        regions = entry.get("regions") if isinstance(entry, dict) else None
        if not has_regions:
            expected += _half_hour(rows, number, entry, entry)
        elif isinstance(regions, list):
            for region in regions:
                name = region.get("shortname") if isinstance(region, dict) else None
                expected += _half_hour(rows, number, entry, region, zone=str(name))
        else:
            raise rows.error(number, "no regions", "was it cut short?")
    if expected:
        rows.notes.append(
            f"{expected:,} of {len(rows.times):,} half-hours are forecasts: not measured."
        )
    return rows


def _half_hour(rows: Rows, number: int, entry: Any, holder: Any, **more: Any) -> bool:
    """One half-hour into the rows; whether it is a forecast."""
    intensity = holder.get("intensity") if isinstance(holder, dict) else None
    if not isinstance(intensity, dict):
        raise rows.error(number, "no intensity", "was it cut short?")
    actual = intensity.get("actual")
    value = intensity.get("forecast") if actual is None else actual
    start_ns = _take(rows, number, entry, "from", value, **more)
    end_ns = _time(rows, number, entry.get("to"), "to")
    if not 0 < end_ns - start_ns <= 24 * HOUR_NS:
        raise rows.error(number, "ends before it begins, or more than a day after")
    rows.step_ns = rows.step_ns or end_ns - start_ns
    return actual is None and value is not None


def _carbon_aware(answer: Any, where: str) -> Rows | None:
    """Emissions, or one forecast for each place; names in either case."""
    entries = [_lowered(entry) for entry in answer] if isinstance(answer, list) else [answer]
    if not entries or not isinstance(entries[0], dict):
        return None
    rows = Rows(where, "carbon-aware-sdk-json", label="entry {}")
    rows.attribution = "Carbon Aware SDK"
    if _has(entries[0], "forecastdata"):
        rows.label = "forecastData[{}]"
        for forecast in entries:
            points = forecast.get("forecastdata") if isinstance(forecast, dict) else None
            if not isinstance(points, list):
                raise InputError("a forecast without data", where=where)
            _sdk_points(rows, [_lowered(p) for p in points], "timestamp", "value",
                        forecast.get("location"))  # fmt: skip
    elif _has(entries[0], "rating", "time"):
        _sdk_points(rows, entries, "time", "rating", None)
    else:
        return None
    if len(rows.zones) != len(rows.times):
        rows.zones = []
    return rows


def _lowered(entry: Any) -> Any:
    return {str(k).lower(): v for k, v in entry.items()} if isinstance(entry, dict) else entry


def _sdk_points(
    rows: Rows, points: Sequence[Any], time_name: str, value_name: str, place: Any
) -> None:
    for number, point in enumerate(points):
        value = point.get(value_name) if isinstance(point, dict) else None
        _take(rows, number, point, time_name, value)
        zone = place or point.get("location")
        if isinstance(zone, str):
            rows.zones.append(zone)
        rows.step_ns = rows.step_ns or _duration_ns(rows, number, point.get("duration"))


def _duration_ns(rows: Rows, number: int, given: Any) -> int | None:
    if given is None:
        return None
    dur_ns = 0
    if isinstance(given, str):
        try:
            dur_ns = parse_clock(given)
        except InputError as error:
            raise rows.error(number, error.what, error.hint) from None
    elif isinstance(given, int | float) and 0 < given <= 10080:
        dur_ns = round(given * MINUTE_NS)
    if not 0 < dur_ns <= 7 * 24 * HOUR_NS:
        raise rows.error(number, f"a duration of {str(given)[:40]!r} minutes")
    return dur_ns
