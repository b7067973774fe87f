"""YAML of which nothing can surprise: one document, no aliases, no tags, no key twice.

Scalars follow YAML 1.2: `no` is a text, `1e3` is a number, `012` is twelve. Every value keeps its
line, so that whoever finds it wrong can say where it stands.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

import yaml

from gnomon.errors import InputError

_DEEPEST = 1000
#: Those of libyaml, where PyYAML has it, are ten times as fast.
_PARSER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_EMITTER = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
_INTEGER = re.compile(r"[-+]?\d{1,18}", re.ASCII)
_FLOAT = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?", re.ASCII)
_CONSTANTS: dict[str, bool | None] = {
    "": None, "~": None, "null": None, "true": True, "True": True, "false": False, "False": False,
}  # fmt: skip


class YamlDocument:
    """A YAML document, and the line that each of its values stands in.

    >>> document = YamlDocument("a:\\n  b: [1, yes]", "x.yaml")
    >>> document.data, str(document.wrong("is odd", "$.a.b[1]"))
    ({'a': {'b': [1, 'yes']}}, 'x.yaml line 2, $.a.b[1]: is odd')
    """

    def __init__(self, text: str, where: str) -> None:
        self.where = where
        #: For each table and list, by its identity: the lines of its keys or items.
        self._lines: dict[int, dict[str | int, int]] = {}
        try:
            self.data = self._build(text)
        except yaml.YAMLError as error:
            mark = getattr(error, "problem_mark", None)
            problem = getattr(error, "problem", None) or str(error).splitlines()[0]
            raise self._error(f"is no YAML: {problem}", mark.line + 1 if mark else 0) from None

    def wrong(self, what: str, at: str, hint: str | None = None) -> InputError:
        """An error at a path such as `$.services.web`, with the line of what is nearest to it."""
        return self._error(what, self._line(at), at, hint)

    def table(self, value: Any, at: str) -> dict[str, Any]:
        """A value that has to be a table."""
        if not isinstance(value, dict):
            raise self.wrong(f"expected a table of keys and values, got {kind_of(value)}", at)
        return value

    def _error(
        self, what: str, line: int = 0, at: str = "", hint: str | None = None
    ) -> InputError:
        place = f"{self.where} line {line}".lstrip() if line else self.where
        place = f"{place}, {at}" if at else place
        return InputError(_in_one_line(what), where=_in_one_line(place) or None, hint=hint)

    def _line(self, at: str) -> int:
        # Names may hold dots, so the path is followed from the root, along what there is.
        line, holder, rest = 1, self.data, at.removeprefix("$")
        while isinstance(holder, dict | list):
            keys = holder if isinstance(holder, dict) else range(len(holder))
            steps = ((f".{key}" if isinstance(holder, dict) else f"[{key}]", key) for key in keys)
            fits = [
                (step, key)
                for step, key in steps
                if rest.startswith(step) and rest[len(step) :][:1] in ("", ".", "[")
            ]
            if not fits:
                break
            step, key = max(fits, key=lambda fit: len(fit[0]))
            line, holder, rest = self._lines[id(holder)][key], holder[key], rest[len(step) :]
        return line

    def _build(self, text: str) -> Any:
        """The value of the only document; aliases, which could unfold without end, are refused."""
        open_: list[Any] = []  # tables and lists that have not ended
        keys: list[str | None] = []  # for each: the key whose value comes next
        root: list[Any] = []
        for event in yaml.parse(text, Loader=_PARSER):
            line = event.start_mark.line + 1
            if isinstance(event, yaml.DocumentStartEvent) and root:
                raise self._error("has more than one document", line)
            if isinstance(event, yaml.CollectionEndEvent):
                open_.pop()
                keys.pop()
            if not isinstance(event, yaml.NodeEvent):
                continue
            value = self._value(event, line)
            if not open_:
                root.append(value)
            elif isinstance(open_[-1], list):
                self._lines[id(open_[-1])][len(open_[-1])] = line
                open_[-1].append(value)
            elif (key := keys[-1]) is None:
                keys[-1] = self._key(event, open_[-1], line)
                continue
            else:
                open_[-1][key], keys[-1] = value, None
            if isinstance(value, dict | list):
                if len(open_) == _DEEPEST:
                    raise self._error("nests too deep", line)
                open_.append(value)
                keys.append(None)
                self._lines[id(value)] = {}
        if not root:
            raise self._error("is empty", hint="expected YAML")
        return root[0]

    def _value(self, event: yaml.NodeEvent, line: int) -> Any:
        if isinstance(event, yaml.AliasEvent) or event.anchor:
            hint = "write the value out"
            raise self._error("anchors and aliases are not supported", line, hint=hint)
        tag = getattr(event, "tag", None)
        if tag not in (None, "!"):
            raise self._error(f"the tag {tag[:60]!r} is not supported", line)
        if isinstance(event, yaml.ScalarEvent):
            return scalar(event.value) if event.implicit[0] else event.value
        return [] if isinstance(event, yaml.SequenceStartEvent) else {}

    def _key(self, event: yaml.NodeEvent, holder: dict[str, Any], line: int) -> str:
        if not isinstance(event, yaml.ScalarEvent):
            raise self._error("a key is not a text", line)
        key: str = event.value
        if key in holder:
            raise self._error(f"{key[:60]!r} is given twice", line)
        self._lines[id(holder)][key] = line
        return key


def scalar(text: str) -> Any:
    """What a plain scalar means in YAML 1.2; infinities, which nothing here takes, stay texts."""
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    if _INTEGER.fullmatch(text):
        return int(text)
    return float(text) if _FLOAT.fullmatch(text) else text


def _in_one_line(text: str) -> str:
    return re.sub(r"[\x00-\x1f\x7f\x85\u2028\u2029]", "?", text)[:1000]


def kind_of(value: Any) -> str:
    """What a value is, for a message that expected another."""
    names = {dict: "a table", list: "a list", str: "a text", type(None): "nothing"}
    return names.get(type(value)) or f"{value!r}"


def emit_yaml(value: Any) -> str:
    """Tables, lists and scalars as text; innermost tables and lists in one line."""
    events = [yaml.StreamStartEvent(), yaml.DocumentStartEvent(), *_events(value),
              yaml.DocumentEndEvent(), yaml.StreamEndEvent()]  # fmt: skip
    text: str = yaml.emit(events, Dumper=_EMITTER, allow_unicode=True, width=99)
    return text


def _events(value: Any) -> Iterator[yaml.Event]:
    """Events of a value; `yaml.dump` recurses several times a level, too often for deep calls."""
    if isinstance(value, dict):
        yield yaml.MappingStartEvent(None, None, True, flow_style=_is_flat(value.values()))
        for key, part in value.items():
            # Keys are texts to us, whatever they look like.
            yield yaml.ScalarEvent(None, None, (True, True), key)
            yield from _events(part)
        yield yaml.MappingEndEvent()
    elif isinstance(value, list):
        yield yaml.SequenceStartEvent(None, None, True, flow_style=_is_flat(value))
        for part in value:
            yield from _events(part)
        yield yaml.SequenceEndEvent()
    elif isinstance(value, str):
        # A text that would be read as a number or a constant is put into quotes.
        is_plain = scalar(value) == value
        yield yaml.ScalarEvent(
            None, None, (is_plain, True), value, style=None if is_plain else '"'
        )
    else:
        text = repr(value).lower() if value is not None else "null"  # True is written as true
        yield yaml.ScalarEvent(None, None, (True, False), text)


def _is_flat(parts: Iterable[Any]) -> bool:
    return not any(isinstance(part, dict | list) for part in parts)
