"""Applications as people write them down: a YAML file of services and request classes.

    name: shop
    rate: 200
    services:
      web: {workers: 4, cpu_limit: 1}
      cart: {pools: {store: 8}}
      store: {server: redis}
    classes:
      browse:
        share: 3
        sla: {bound_ms: 100}
        call:
          service: web
          cpu_ms: {mean: 1, cv: 0.5}
          then:
            - {service: store, cpu_ms: 0.05}
            - parallel:
                - {service: cart, cpu_ms: 2}
                - {service: store, cpu_ms: 0.05}

Fields are those of `gnomon.graph.application`. An item of `then` is a call, or `parallel` with the
calls that are made at once. `bundled:starter` names an application that comes with gnomon.
"""

from __future__ import annotations

import difflib
import functools
import os
import re
from pathlib import Path
from typing import Any, TypeVar, get_args, get_type_hints

import msgspec

from gnomon.errors import InputError
from gnomon.graph.application import Application, Call, Host, RequestClass, Service
from gnomon.ingest.services.strict_yaml import YamlDocument, emit_yaml, kind_of
from gnomon.ingest.text import read_whole

_BUNDLED = "bundled:"
_FOLDER = Path(__file__).parents[2] / "datasets" / "applications"
_MOST_BYTES = 10 << 20
_DEEPEST_CALLS = 200
#: What msgspec says, in our words.
_WORDS = {
    "Object contains unknown field": "unknown key",
    "Object missing required field": "there is no",
    "`float | object`": "a number of milliseconds or a table",
    "`object`": "a table of keys and values",
    "`array`": "a list",
    "`int`": "a whole number",
    "`float`": "a number",
    "`str`": "a text",
    "`null`": "nothing",
    "`bool`": "true or false",
    "Invalid enum value": "cannot be",
}
_T = TypeVar("_T")


def bundled_applications() -> tuple[str, ...]:
    """The applications that come with gnomon.

    >>> "starter" in bundled_applications()
    True
    """
    return tuple(sorted(file.stem for file in _FOLDER.glob("*.yaml")))


def application_path(path: str | os.PathLike[str]) -> Path:
    """Where an application lies; `bundled:NAME` is one that comes with gnomon."""
    text = os.fspath(path)
    if not text.startswith(_BUNDLED):
        return Path(text)
    name = text.removeprefix(_BUNDLED)
    if name not in bundled_applications():
        known = ", ".join(bundled_applications())
        raise InputError(f"no bundled application is called {name!r}", hint=f"there are: {known}")
    return _FOLDER / f"{name}.yaml"


def read_application(path: str | os.PathLike[str]) -> Application:
    """Read an application from YAML (or JSON, which is YAML).

    >>> starter = read_application("bundled:starter")
    >>> list(starter.services), starter.rate
    (['web', 'logic', 'cache', 'store'], 100.0)
    """
    file = application_path(path)
    where = os.fspath(path)
    content = read_whole(file, _MOST_BYTES, "is it a file of an application?")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InputError("is not a text file", where=where, hint="expected YAML") from None
    return parse_application(text, where=where, name=file.stem)


def parse_application(text: str, *, where: str = "", name: str = "application") -> Application:
    """An application from the text of its file.

    Args:
        where: What errors call the file.
        name: What the application is called where the text does not say.
    """
    document = YamlDocument(text, where)
    root = dict(document.table(document.data, "$"))
    for key, kind in (("services", Service), ("hosts", Host)):
        if key in root:
            table = document.table(root[key], f"$.{key}")
            root[key] = {  # `web:` with nothing behind it is a service with all by default
                one: _convert(document, {} if value is None else value, kind, f"$.{key}.{one}")
                for one, value in table.items()
            }
    if "classes" in root:
        table = document.table(root["classes"], "$.classes")
        root["classes"] = {
            one: _request_class(document, value, f"$.classes.{one}")
            for one, value in table.items()
        }
    return _convert(document, {"name": name} | root, Application, "$")


def looks_like_application(head: bytes) -> bool:
    """Whether a file begins as an application does: YAML or JSON with services and classes.

    >>> looks_like_application(b"name: a\\nservices:\\n  web: {}\\nclasses:\\n")
    True
    """
    if head.lstrip()[:1] == b"{":
        return re.search(rb'"services"\s*:\s*\{', head) is not None and (
            re.search(rb'"classes"\s*:\s*\{', head) is not None
        )
    top = set(re.findall(rb"^[\"']?(services|classes)[\"']?\s*:", head, re.MULTILINE))
    return len(top) == 2 or (top == {b"services"} and b"\nname:" in b"\n" + head)


def _request_class(document: YamlDocument, value: Any, at: str) -> RequestClass:
    table = dict(document.table(value, at))
    if "call" in table:
        table["call"] = _call(document, table["call"], f"{at}.call", 1)
    return _convert(document, table, RequestClass, at)


def _call(document: YamlDocument, value: Any, at: str, depth: int) -> Call:
    if depth > _DEEPEST_CALLS:
        raise document.wrong(f"calls nest deeper than {_DEEPEST_CALLS}", at)
    table = dict(document.table(value, at))
    items = table.pop("then", [])
    if not isinstance(items, list):
        raise document.wrong(f"expected a list of calls, got {kind_of(items)}", f"{at}.then")
    stages = []
    for i, item in enumerate(items):
        place = f"{at}.then[{i}]"
        if isinstance(item, dict) and "parallel" in item:
            if extra := next((key for key in item if key != "parallel"), None):
                raise document.wrong("stands beside 'parallel'", f"{place}.{extra}",
                                     "give it to each of the calls")  # fmt: skip
            calls, place = item["parallel"], f"{place}.parallel"
            if not isinstance(calls, list):
                raise document.wrong(f"expected a list of calls, got {kind_of(calls)}", place)
            stage = [
                _call(document, one, f"{place}[{j}]", depth + 1) for j, one in enumerate(calls)
            ]
            stages.append(tuple(stage))
        else:
            stages.append((_call(document, item, place, depth + 1),))
    call = _convert(document, table, Call, at)
    return msgspec.structs.replace(call, then=tuple(stages)) if stages else call


def _convert(document: YamlDocument, value: Any, kind: type[_T], at: str) -> _T:
    try:
        return msgspec.convert(value, kind, str_keys=True)
    except msgspec.ValidationError as error:
        if isinstance(error.__cause__, InputError):  # a check of the whole, with its own place
            # It knows stages only; the file says `parallel` where one has several calls.
            place = error.__cause__.where or at
            place = re.sub(r"(\.then\[\d+\])\[(\d+)\]", r"\1.parallel[\2]", place)
            raise document.wrong(error.__cause__.what, place, error.__cause__.hint) from None
        what, inside = re.fullmatch(
            r"(.*?)(?: - at (?:`key` in )?`\$(.*)`)?", str(error), re.DOTALL
        ).groups("")  # type: ignore[union-attr]
        place = at + inside.replace("[...]", "")
        raise document.wrong(_plainly(what), place, _hint(what, kind, inside)) from None


def _plainly(what: str) -> str:
    """A complaint of msgspec in our words."""
    for theirs, ours in _WORDS.items():
        what = what.replace(theirs, ours)
    return what[:1].lower() + what[1:].replace("`", "'")


def _hint(what: str, kind: type[Any], inside: str) -> str | None:
    """What the key or the value may be instead."""
    if "enum" in what:
        field = get_type_hints(kind).get(inside.removeprefix("."))
        return f"it is {' or '.join(get_args(field))}" if field is not None else None
    if (unknown := re.search("unknown field `(.*)`", what)) is None or inside:
        return None
    keys = kind.__struct_fields__
    close = difflib.get_close_matches(unknown[1], keys, n=1)
    return f"did you mean {close[0]!r}?" if close else f"there are: {', '.join(keys)}"


def write_application(app: Application, path: str | os.PathLike[str]) -> None:
    """Write an application as `read_application` reads it; a comment at its top is not kept."""
    try:
        Path(path).write_text(to_yaml(app), encoding="utf-8")
    except OSError as error:
        what = f"cannot be written: {error.strerror or error}"
        raise InputError(what, where=os.fspath(path)) from None


def to_yaml(app: Application) -> str:
    """The text of an application's file, without what is as by default.

    >>> text = "services: {web: }\\nclasses: {get: {call: {service: web, cpu_ms: 2.0}}}"
    >>> print(to_yaml(parse_application(text, name="one")), end="")
    name: one
    services:
      web: {}
    classes:
      get:
        call: {service: web, cpu_ms: 2}
    """
    return emit_yaml(_plain(app))


def _plain(value: Any) -> Any:
    """Tables, lists and scalars; of a struct only what differs from its defaults."""
    if isinstance(value, msgspec.Struct):
        fields = _fields(type(value))
        if isinstance(value, Call):  # the long part last
            fields = tuple(sorted(fields, key=lambda field: field.name == "then"))
        table = {}
        for field in fields:
            default = field.default
            if field.default_factory is not msgspec.NODEFAULT:
                default = field.default_factory()
            if (own := getattr(value, field.name)) != default:
                table[field.name] = _stages(own) if field.name == "then" else _plain(own)
        return table
    if isinstance(value, dict):
        return {str(_plain(key)): _plain(one) for key, one in value.items()}
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return int(value)
    return value


#: Looked up once a type: msgspec evaluates the annotations anew each time.
_fields = functools.cache(msgspec.structs.fields)


def _stages(then: tuple[tuple[Call, ...], ...]) -> list[Any]:
    return [
        _plain(stage[0]) if len(stage) == 1 else {"parallel": [_plain(call) for call in stage]}
        for stage in then
    ]
