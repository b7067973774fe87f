"""Which PromQL measures what: a YAML file that users can edit.

    extends: istio
    variables: {namespace: shop}
    services: {web: frontend}          # what the labels call a service
    metrics:
      queue: sum by (service) (avg_over_time(my_queue_length[$window]))

`lab`, `kubernetes`, `istio` and `opentelemetry` come with gnomon.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec

from gnomon.errors import InputError
from gnomon.ingest.services.strict_yaml import YamlDocument
from gnomon.ingest.text import read_whole

Quantity = Literal[
    "cpu_limit", "replicas", "usage", "throttled", "queue", "rate", "service_ms",
    "class_rate", "class_ms", "class_errors", "class_buckets",
]  # fmt: skip
T = TypeVar("T")
_FOLDER = Path(__file__).parent / "profiles"
_MOST_BYTES = 1 << 20
_VARIABLE = re.compile(r"\$([A-Za-z_]\w*)")
#: A gauge may be minutes old before Prometheus itself drops it.
_FRESH = re.compile(r"\$fresh\(([^()]*)\)")
#: Set for each query: the interval, and the share of requests.
_BUILT_IN = {"window", "quantile"}


class Metric(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How one quantity of a window is measured.

    Attributes:
        query: PromQL with `$window`, `$quantile` and the profile's variables. `$fresh(gauge{...})`
            is the gauge where its last sample is not stale.
        service: The label that names the service.
        class_: The label that names the class; empty where the metric does not tell them apart.
        le_ms: Milliseconds of one unit of the label `le`.
    """

    query: str
    service: str = "service"
    class_: str = msgspec.field(default="class", name="class")
    le_ms: float = 1000.0


class Profile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How a window is measured.

    Attributes:
        metrics: By quantity; what is not listed is not measured.
        stale_s: Samples older than this do not count.
        slice_s: Length of the slices of a window, at least two scrapes; 0: no slices.
        variables: Texts for `$name` in the queries.
        services: What the labels call a service, where it is not its name.
        classes: What the labels call a class, where it is not its name.

    >>> profile = read_profile("lab")
    >>> profile.text("rate", 30.0)
    'sum by (service) (rate(gnomon_requests_total[30000ms]))'
    """

    metrics: dict[Quantity, Metric]
    stale_s: float = 30.0
    slice_s: float = 0.0
    variables: dict[str, str] = {}
    services: dict[str, str] = {}
    classes: dict[str, str] = {}

    def text(self, quantity: Quantity, window_s: float, quantile: float = 0.5) -> str:
        """The query of a quantity over a window."""
        window = f"{max(round(window_s * 1e3), 1)}ms"
        values = self.variables | {"window": window, "quantile": f"{quantile:g}"}
        fresh = rf"(\1 and timestamp(\1) >= time() - {self.stale_s:g})"
        text = _FRESH.sub(fresh, self.metrics[quantity].query)
        return _VARIABLE.sub(lambda match: values[match[1]], text)


def bundled_profiles() -> tuple[str, ...]:
    """The profiles that come with gnomon.

    >>> bundled_profiles()
    ('istio', 'kubernetes', 'lab', 'opentelemetry')
    """
    return tuple(sorted(file.stem for file in _FOLDER.glob("*.yaml")))


def read_profile(path: str | os.PathLike[str]) -> Profile:
    """A profile that comes with gnomon, by its name, or one from a file."""
    name = os.fspath(path)
    file = _FOLDER / f"{name}.yaml" if name in bundled_profiles() else Path(name)
    if not file.exists():
        known = ", ".join(bundled_profiles())
        raise InputError("there is no such profile", where=name, hint=f"a file, or one of {known}")
    content = read_whole(file, _MOST_BYTES, "is it a profile of metrics?")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InputError("is not a text file", where=name, hint="expected YAML") from None
    return parse_profile(text, where=name)


def parse_profile(text: str, *, where: str = "") -> Profile:
    """A profile from the text of its file."""
    document = YamlDocument(text, where)
    root = dict(document.table(document.data, "$"))
    metrics = document.table(root.get("metrics", {}), "$.metrics")
    root["metrics"] = {
        name: Metric(metric)
        if isinstance(metric, str)
        else converted(document, metric, Metric, f"$.metrics.{name}")
        for name, metric in metrics.items()
    }
    base = root.pop("extends", None)
    if base is not None:
        if base not in bundled_profiles():
            known = ", ".join(bundled_profiles())
            raise document.wrong(f"there is no profile {base!r}", "$.extends", f"one of {known}")
        root = _over(msgspec.structs.asdict(read_profile(base)), root)
    profile = converted(document, root, Profile, "$")
    _check(profile, document)
    return profile


def converted(document: YamlDocument, value: Any, kind: type[T], at: str) -> T:
    """A part of a document as a struct; an error names its line."""
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        what, _, inside = str(error).partition(" - at `$")
        raise document.wrong(what, at + inside.rstrip("`").replace("[...]", "")) from None


def _over(base: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """Tables are merged by key, everything else is replaced; a metric is replaced whole."""
    tables = {key for key, value in given.items() if isinstance(value, dict)}
    return base | given | {key: base.get(key, {}) | given[key] for key in tables}


def _check(profile: Profile, document: YamlDocument) -> None:
    for name, seconds in (("stale_s", profile.stale_s), ("slice_s", profile.slice_s)):
        if not 0 <= seconds <= 1e6:
            raise document.wrong(f"{seconds:g} is out of range", f"$.{name}", "0 to 1e6 seconds")
    for name, value in profile.variables.items():
        if not re.fullmatch(r'[^"\\\n]*', value):
            raise document.wrong("holds a quote or a line break", f"$.variables.{name}")
    for quantity, metric in profile.metrics.items():
        used = set(_VARIABLE.findall(_FRESH.sub(r"\1", metric.query)))
        unknown = used - _BUILT_IN - set(profile.variables)
        if unknown:
            what = f"${sorted(unknown)[0]} is no variable"
            raise document.wrong(what, f"$.metrics.{quantity}", "list it under variables")
