"""gnomon carbon signal: what a kilowatt-hour emits, hour by hour, and what comes next."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from gnomon.cli.carbon.grid import files_of, own_file
from gnomon.cli.output import Output, show
from gnomon.cli.typed import typed_command
from gnomon.errors import InputError
from gnomon.ingest.formats import check_input
from gnomon.units import HOUR_NS

if TYPE_CHECKING:
    from gnomon.series import Signal

#: History of generated hours that a forecast gets to learn from.
_HISTORY_NS = 2 * 8766 * HOUR_NS
_GENERATED = "These hours are generated from a profile; --file and --provider show real ones."


def signal(
    zone: str | None = None,
    /,
    *,
    from_: Annotated[str | None, Parameter(name="--from")] = None,
    to: str | None = None,
    forecast: Annotated[str | None, Parameter(allow_leading_hyphen=True)] = None,
    method: Literal["persistence", "seasonal", "fitted"] = "fitted",
    file: Path | None = None,
    provider: str | None = None,
    fill: Literal["hold", "interpolate"] | None = None,
    scope: Literal["lifecycle", "direct"] = "lifecycle",
    seed: int = 0,
    output: Output = Output(),  # noqa: B008
) -> None:
    """What does a kilowatt-hour emit in a grid, when is it cleanest, and what comes next?

    `gnomon carbon signal DE --from 2024-01-01 --to 2024-01-08 --forecast 48h`. Without a file,
    hours are generated from the zone's bundled profile; the answer says so.

    Args:
        zone: The grid: DE, SE, CAISO ...; with a file, what it is of.
        from_: First day or time, in UTC: 2024-01-01, 2024-01-01T06:00Z. Unless given, the newest
            year of the profile, or all of the file.
        to: Where the span ends, and the forecast begins.
        forecast: How far ahead to forecast from the end of the span: 24h, 3d.
        method: How: fitted (a regression), seasonal or persistence.
        file: Real hours in place of the profile; see also GNOMON_CARBON.
        provider: A live service's forecast: electricitymaps, watttime, uk, carbon-aware-sdk. Keys
            come from the environment.
        fill: How gaps of the file are filled: hold the last value, or interpolate.
        scope: Life-cycle or direct.
        seed: Of the generated hours.
        output: Where the answer goes.
    """
    from gnomon.ingest.intensity.grid import check_covers, read_grid_file
    from gnomon.systems.carbon.signal_result import see, to_result, to_script

    check_input(file, "carbon signal --file")
    start_ns, end_ns = _instant("--from", from_), _instant("--to", to)
    if start_ns is not None and end_ns is not None and end_ns <= start_ns:
        raise InputError(f"--to {to} is not after --from {from_}")
    horizon_ns = None if forecast is None else _horizon(forecast)
    if provider is not None and (file is not None or forecast is not None or fill is not None):
        raise InputError("--provider has its own hours: leave --file, --forecast and --fill out")
    file = file or (own_file(zone) if provider is None else None)
    where = provider or (None if file is None else str(file))
    if where is None:
        known, start_ns, end_ns, far = _generated(zone, start_ns, end_ns, scope, seed, fill)
        notes = [_GENERATED, *far]
    else:
        known, notes = (
            _live(provider, zone, scope)
            if provider is not None
            else read_grid_file(where, zone=zone, scope=scope, fill=fill)
        )
        start_ns = known.start_ns if start_ns is None else start_ns
        end_ns = known.end_ns if end_ns is None else end_ns
        check_covers(known, start_ns, max(end_ns, start_ns + 1), where, "what is asked for")
    seen = see(
        known, start_ns, end_ns, horizon_ns=horizon_ns, method=method, notes=notes,
        seed=seed if where is None else None, where=where,
    )  # fmt: skip
    result = to_result(seen, typed_command(), sources=files_of(file))
    show(result, output, extra=to_script(seen) if output.json else None)


def _live(
    name: str, zone: str | None, scope: Literal["lifecycle", "direct"]
) -> tuple[Signal, list[str]]:
    from gnomon.ingest.intensity.live import provider
    from gnomon.units import format_duration

    if zone is None:
        raise InputError("which grid?", hint="a zone as the service calls it")
    answer = provider(name, scope=scope).forecast(zone)
    notes = [f"A forecast of {name}, {format_duration(answer.age_s * 1e9)} old.", *answer.notes]
    if answer.is_stale:
        notes.append(
            f"The service did not answer ({answer.reason}): this is its last good answer."
        )
    return answer.signal, notes


def _instant(option: str, text: str | None) -> int | None:
    from gnomon.ingest.moment import parse_instant

    if text is None:
        return None
    try:
        return parse_instant(text)
    except InputError as error:
        raise InputError(error.what, where=option, hint=error.hint) from None


def _horizon(text: str) -> int:
    from gnomon.units import parse_duration

    plain = text.strip()
    is_back = plain.startswith("-") and plain[1:2].isdigit()
    horizon_ns = 0 if is_back else parse_duration(plain)
    if horizon_ns <= 0:
        raise InputError(
            f"--forecast {text} has to be more than nothing", hint="such as 24h or 3d"
        )
    return horizon_ns


def _generated(
    zone: str | None,
    start_ns: int | None,
    end_ns: int | None,
    scope: Literal["lifecycle", "direct"],
    seed: int,
    fill: str | None,
) -> tuple[Signal, int, int, list[str]]:
    """Generated hours to the end of the span, with a history to learn from, and notes."""
    from gnomon.ingest.intensity.grid import is_number, notes_on_distance
    from gnomon.series.zones import zone_names, zone_profile, zone_signal

    if zone is None:
        raise InputError("which grid?", hint=f"one of {', '.join(zone_names())}, or --file FILE")
    if is_number(zone):
        raise InputError(f"{zone}: a number is the same at all hours; give a zone")
    if fill is not None:
        raise InputError("--fill: there is nothing to fill in a zone's profile")
    newest_ns = zone_profile(zone, scope=scope).end_ns
    if end_ns is None:
        end_ns = newest_ns if start_ns is None else max(newest_ns, _years_later(start_ns, 1))
    if start_ns is None:
        start_ns = _years_later(end_ns, -1)
    if end_ns - start_ns < HOUR_NS:
        raise InputError("the span is shorter than an hour")
    known = zone_signal(zone, start_ns - _HISTORY_NS, end_ns, scope=scope, seed=seed)
    return known, start_ns, end_ns, notes_on_distance(zone, start_ns, end_ns, scope=scope)


def _years_later(t_ns: int, years: int) -> int:
    """The same month, day and time of another year; 1 March where that has no 29 February."""
    from gnomon.ingest.moment import moment_of

    moment = moment_of(t_ns)
    is_leap_day = (moment.month, moment.day) == (2, 29)
    if is_leap_day:
        moment += timedelta(days=1)
    later = moment.replace(year=moment.year + years)
    return t_ns + (later - moment) // timedelta(microseconds=1) * 1000 + is_leap_day * 24 * HOUR_NS
