"""Live carbon intensity: Electricity Maps, WattTime, Great Britain, a Carbon Aware SDK.

Answers are kept in the cache folder for some minutes. Where a service fails, its last good answer
is given with its age and the reason; where there is none, that is an error and never a zero.
Keys come from the environment and are neither kept nor printed.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import ClassVar
from urllib.parse import quote, urlencode

import msgspec

from gnomon.errors import InputError
from gnomon.ingest.cache import cache_folder
from gnomon.ingest.http_json import RequestFailed, get_bytes
from gnomon.ingest.intensity.files import intensity_from_json
from gnomon.ingest.moment import moment_of
from gnomon.series import Signal
from gnomon.series.intensity import Scope
from gnomon.table import atomic_file
from gnomon.units import DAY_NS


class LiveAnswer(msgspec.Struct, frozen=True, eq=False):
    """The answer of a service; stale where it is an earlier one, because the service failed."""

    signal: Signal
    age_s: float
    is_stale: bool
    reason: str = ""
    notes: tuple[str, ...] = ()


class _CachedAnswer(msgspec.Struct, frozen=True):
    """An answer in the cache."""

    fetched_ns: int
    text: str


class Provider(ABC):
    """A live service; subclasses say what it is asked, and with which key.

    Args:
        base_url: In place of the service's own.
        fresh_s: So long an answer is taken from the cache without asking.
    """

    name: ClassVar[str]
    home: ClassVar[str]
    #: Environment variables that are needed.
    keys: ClassVar[tuple[str, ...]] = ()

    def __init__(
        self,
        *,
        base_url: str | None = None,
        scope: Scope = "lifecycle",
        timeout_s: float = 10.0,
        fresh_s: float = 300.0,
        environ: Mapping[str, str] | None = None,
        now_ns: Callable[[], int] = time.time_ns,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.environ = os.environ if environ is None else environ
        self.base_url = (base_url or self._home()).rstrip("/")
        self.scope, self.timeout_s, self.fresh_s = scope, timeout_s, fresh_s
        self.now_ns, self.sleep = now_ns, sleep

    @abstractmethod
    def latest(self, zone: str) -> LiveAnswer:
        """The newest value."""

    @abstractmethod
    def history(
        self, zone: str, start_ns: int | None = None, end_ns: int | None = None
    ) -> LiveAnswer:
        """What was; the last day unless given."""

    @abstractmethod
    def forecast(self, zone: str) -> LiveAnswer:
        """What is to come."""

    def _home(self) -> str:
        return self.home

    def _headers(self) -> dict[str, str]:
        return {}

    def _key(self, name: str) -> str:
        value = self.environ.get(name, "").strip()
        if not value:
            raise RequestFailed(f"{name} is not set")
        return value

    def _history_key(self, zone: str, start_ns: int | None, end_ns: int | None) -> str | None:
        """What the last day is kept as: whenever it is asked for, it is the same question."""
        return f"history {zone}" if start_ns is None and end_ns is None else None

    def _span(self, start_ns: int | None, end_ns: int | None) -> tuple[int, int]:
        end = self.now_ns() if end_ns is None else end_ns
        start = end - DAY_NS if start_ns is None else start_ns
        if start >= end:
            raise InputError("the span ends before it begins", where=self.name)
        return start, end

    def _ask(
        self, path: str, query: Mapping[str, str], zone: str | None, kept_as: str | None = None
    ) -> LiveAnswer:
        """The answer, from the cache (as `kept_as`) while fresh, with its age on failure."""
        url = f"{self.base_url}{path}" + (f"?{urlencode(query)}" if query else "")
        place = self._place(url if kept_as is None else f"{self.base_url} {kept_as}")
        kept = _load(place)
        if kept is not None and 0 <= self._age_s(kept) < self.fresh_s:
            with contextlib.suppress(InputError):
                return self._read(kept, zone)
        try:
            fetched = self._fetch(url)
            answer = self._read(fetched, zone)
        except (RequestFailed, InputError) as error:
            reason = self._plain(error)
        else:
            _save(place, fetched)
            return answer
        if kept is not None:
            with contextlib.suppress(InputError):
                return self._read(kept, zone, reason)
        hint = f"set {' and '.join(self.keys)}" if self.keys else "try again later"
        raise InputError(reason, where=self.name, hint=f"{hint}; there is no earlier answer")

    def _fetch(self, url: str) -> _CachedAnswer:
        text = get_bytes(url, self._headers(), timeout_s=self.timeout_s, sleep=self.sleep)
        try:
            return _CachedAnswer(self.now_ns(), text.decode())
        except UnicodeDecodeError:
            raise RequestFailed("the answer is no text") from None

    def _read(self, kept: _CachedAnswer, zone: str | None, reason: str = "") -> LiveAnswer:
        found = intensity_from_json(kept.text.encode(), self.name, zone=zone, scope=self.scope)
        return LiveAnswer(found.signal, self._age_s(kept), bool(reason), reason, found.notes)

    def _age_s(self, kept: _CachedAnswer) -> float:
        return (self.now_ns() - kept.fetched_ns) / 1e9

    def _plain(self, error: Exception) -> str:
        text = error.what if isinstance(error, InputError) else str(error)
        for name in self.keys:
            secret = self.environ.get(name, "").strip()
            if len(secret) > 3:
                text = text.replace(secret, "***")
        return " ".join(text.split())[:200]

    def _place(self, url: str) -> Path | None:
        folder = cache_folder()
        if folder is None:
            return None
        digest = hashlib.sha256(f"{self.name} {url}".encode()).hexdigest()[:40]
        return folder / "live" / f"{digest}.json"


class ElectricityMaps(Provider):
    """Average intensity by zone, life-cycle or direct; a token is needed."""

    name = "electricitymaps"
    home = "https://api.electricitymaps.com"
    keys = ("ELECTRICITYMAPS_TOKEN",)

    def latest(self, zone: str) -> LiveAnswer:
        return self._intensity("latest", zone)

    def history(
        self, zone: str, start_ns: int | None = None, end_ns: int | None = None
    ) -> LiveAnswer:
        if start_ns is None and end_ns is None:
            return self._intensity("history", zone)
        start, end = self._span(start_ns, end_ns)
        return self._intensity("past-range", zone, start=_iso(start), end=_iso(end))

    def forecast(self, zone: str) -> LiveAnswer:
        return self._intensity("forecast", zone)

    def _intensity(self, what: str, zone: str, **query: str) -> LiveAnswer:
        asked = {"zone": zone, "emissionFactorType": self.scope, **query}
        return self._ask(f"/v3/carbon-intensity/{what}", asked, zone)

    def _headers(self) -> dict[str, str]:
        return {"auth-token": self._key(self.keys[0])}


class WattTime(Provider):
    """Marginal intensity by region (CAISO_NORTH ...); user and password are needed."""

    name = "watttime"
    home = "https://api.watttime.org"
    keys = ("WATTTIME_USER", "WATTTIME_PASSWORD")
    #: A login is good for half an hour; a little less is safe.
    _TOKEN_S: ClassVar[float] = 1500.0
    _token: tuple[int, str] | None = None

    def latest(self, zone: str) -> LiveAnswer:
        """The value of the forecast that holds now."""
        answer = self.forecast(zone)
        first = answer.signal
        end_ns = int(first.time_ns[1]) if len(first) > 1 else first.end_ns
        return msgspec.structs.replace(answer, signal=first.slice(first.start_ns, end_ns))

    def history(
        self, zone: str, start_ns: int | None = None, end_ns: int | None = None
    ) -> LiveAnswer:
        start, end = self._span(start_ns, end_ns)
        key = self._history_key(zone, start_ns, end_ns)
        return self._moer("historical", zone, key, start=_iso(start), end=_iso(end))

    def forecast(self, zone: str) -> LiveAnswer:
        return self._moer("forecast", zone)

    def _moer(self, what: str, zone: str, kept_as: str | None = None, **query: str) -> LiveAnswer:
        asked = {"region": zone, "signal_type": "co2_moer", **query}
        return self._ask(f"/v3/{what}", asked, zone, kept_as)

    def _fetch(self, url: str) -> _CachedAnswer:
        try:
            return super()._fetch(url)
        except RequestFailed as error:
            if error.status != 401 or self._token is None:
                raise
        self._token = None  # it ran out before its time: log in once more
        return super()._fetch(url)

    def _headers(self) -> dict[str, str]:
        if self._token is None or self.now_ns() - self._token[0] > self._TOKEN_S * 1e9:
            self._token = (self.now_ns(), self._log_in())
        return {"Authorization": f"Bearer {self._token[1]}"}

    def _log_in(self) -> str:
        pair = ":".join(self._key(name) for name in self.keys)
        basic = {"Authorization": f"Basic {base64.b64encode(pair.encode()).decode()}"}
        text = get_bytes(
            f"{self.base_url}/login", basic, timeout_s=self.timeout_s, sleep=self.sleep
        )
        try:
            return msgspec.json.decode(text, type=_Login).token
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise RequestFailed("its login answers with no token") from None


class _Login(msgspec.Struct):
    token: str


class UkCarbonIntensity(Provider):
    """Great Britain by half-hours, as a whole (GB) or by region (1 to 17); no key is needed."""

    name = "uk"
    home = "https://api.carbonintensity.org.uk"

    def latest(self, zone: str) -> LiveAnswer:
        region = _region(zone)
        path = "/intensity" if region is None else f"/regional/regionid/{region}"
        return self._ask(path, {}, None)

    def history(
        self, zone: str, start_ns: int | None = None, end_ns: int | None = None
    ) -> LiveAnswer:
        start, end = self._span(start_ns, end_ns)
        key = self._history_key(zone, start_ns, end_ns)
        return self._between(zone, _minute(start), _minute(end), key)

    def forecast(self, zone: str) -> LiveAnswer:
        half_ns = 1800 * 10**9
        start = _minute(self.now_ns() // half_ns * half_ns)
        return self._between(zone, start, "fw48h", f"forecast {zone}")

    def _between(self, zone: str, start: str, end: str, kept_as: str | None) -> LiveAnswer:
        region = _region(zone)
        head, tail = ("", "") if region is None else ("/regional", f"/regionid/{region}")
        return self._ask(f"{head}/intensity/{start}/{end}{tail}", {}, None, kept_as)


class CarbonAwareSdk(Provider):
    """A Carbon Aware SDK that runs somewhere; CARBON_AWARE_URL says where."""

    name = "carbon-aware-sdk"
    home = ""
    keys = ("CARBON_AWARE_URL",)

    def latest(self, zone: str) -> LiveAnswer:
        return self._ask("/emissions/bylocation", {"location": zone}, None)

    def history(
        self, zone: str, start_ns: int | None = None, end_ns: int | None = None
    ) -> LiveAnswer:
        start, end = self._span(start_ns, end_ns)
        query = {"location": zone, "time": _iso(start), "toTime": _iso(end)}
        key = self._history_key(zone, start_ns, end_ns)
        return self._ask("/emissions/bylocation", query, None, key)

    def forecast(self, zone: str) -> LiveAnswer:
        return self._ask("/emissions/forecasts/current", {"location": zone}, None)

    def _home(self) -> str:
        return self.environ.get(self.keys[0], "")

    def _headers(self) -> dict[str, str]:
        if not self.base_url:
            raise RequestFailed(f"{self.keys[0]} is not set")
        return {}

    def _plain(self, error: Exception) -> str:
        return " ".join(str(error).split())[:200]  # its address is no secret


def _region(zone: str) -> str | None:
    """A region's number as the service has it; None for the country."""
    if zone.upper() in ("GB", "UK"):
        return None
    if zone.isdecimal() and 1 <= int(zone) <= 18:
        return quote(zone)
    hint = "GB, or the number of a region: 13 is London"
    raise InputError(f"{zone!r} is no part of Great Britain", where="uk", hint=hint)


def _iso(t_ns: int) -> str:
    return moment_of(t_ns).strftime("%Y-%m-%dT%H:%M:%SZ")


def _minute(t_ns: int) -> str:
    return moment_of(t_ns).strftime("%Y-%m-%dT%H:%MZ")


def _load(place: Path | None) -> _CachedAnswer | None:
    if place is None:
        return None
    try:
        return msgspec.json.decode(place.read_bytes(), type=_CachedAnswer)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return None


def _save(place: Path | None, kept: _CachedAnswer) -> None:
    if place is None:
        return
    with contextlib.suppress(InputError, OSError):
        place.parent.mkdir(parents=True, exist_ok=True)
        with atomic_file(place) as file:
            file.write(msgspec.json.encode(kept))


PROVIDERS: dict[str, type[Provider]] = {
    one.name: one for one in (ElectricityMaps, WattTime, UkCarbonIntensity, CarbonAwareSdk)
}
"""Every live service by its name."""


def provider(name: str, **options: object) -> Provider:
    """A live service by its name.

    >>> provider("uk").base_url
    'https://api.carbonintensity.org.uk'
    """
    if name not in PROVIDERS:
        hint = f"one of {', '.join(PROVIDERS)}"
        raise InputError(f"no live service is called {name!r}", hint=hint)
    return PROVIDERS[name](**options)  # type: ignore[arg-type]
