"""Things chosen by name: policies, readers, models, targets, outputs.

A spec is a name, perhaps parameters, perhaps what it wraps; left wraps right:

    fifo
    threshold?limit=300&slack_s=60
    cap?quota=0.5:pcaps:decima

`%3A`, `%26` and their like stand for `:` and `&` inside a value.
"""

from __future__ import annotations

import difflib
import importlib
import inspect
import pkgutil
import typing
from collections.abc import Callable, Iterable
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Generic, TypeVar, overload
from urllib.parse import unquote

import msgspec

from gnomon.errors import InputError

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

# The first parameter of a wrapper has this name. A naming rule, and not a flag of register(),
# because an entry point has no place for a flag.
_INNER = "inner"


class Parameter(msgspec.Struct, frozen=True):
    """One parameter of a registered thing; `default` is None where `is_required`.

    >>> str(Parameter("limit", int, 300))
    'limit: int = 300'
    """

    name: str
    type: Any
    default: Any = None
    is_required: bool = False

    def __str__(self) -> str:
        kind = self.type.__name__ if isinstance(self.type, type) else str(self.type)
        text = f"{self.name}: {kind.replace('typing.', '')}"
        return text if self.is_required else f"{text} = {self.default!r}"


class Description(msgspec.Struct, frozen=True):
    """What help shows of a registered thing.

    >>> print(Description("cap", "Hold back.", (Parameter("quota", float, 1.0),), is_wrapper=True))
    cap?quota=1.0:...
      Hold back.
      quota: float = 1.0
    """

    name: str
    doc: str
    parameters: tuple[Parameter, ...] = ()
    is_wrapper: bool = False
    details: str = ""

    def __str__(self) -> str:
        given = "&".join(
            f"{p.name}={'...' if p.is_required else p.default}" for p in self.parameters
        )
        head = self.name + (f"?{given}" if given else "") + (":..." if self.is_wrapper else "")
        details = [line for line in self.details.splitlines() if line.strip()]
        lines = [self.doc, *details, *map(str, self.parameters)]
        return "\n  ".join([head, *(line for line in lines if line)])


class Registry(Generic[T]):
    """Named factories of one kind of thing, ours and those that other packages bring.

    A factory is a class (best a frozen msgspec Struct: its fields are the parameters) or a
    function with annotated parameters. It is a wrapper if its first parameter is called `inner`.
    Modules of `package` are imported on first use: a new file there registers itself. Entry points
    of `group` are looked up on first use and imported when asked for, so that a broken plug-in
    troubles only those who want it. A registered name wins over an entry point.

    >>> shapes: Registry[object] = Registry("shape")
    >>> @shapes.register("square")
    ... class Square(msgspec.Struct, frozen=True):
    ...     "As wide as high."
    ...     side_mm: float = 1.0
    >>> shapes.create("square?side_mm=2")
    Square(side_mm=2.0)
    >>> shapes.create("sqare")
    Traceback (most recent call last):
        ...
    gnomon.errors.InputError: there is no shape 'sqare'; did you mean 'square'? There are: square
    """

    def __init__(self, noun: str, *, group: str | None = None, package: str | None = None) -> None:
        self.noun, self.group, self.package = noun, group, package
        self._factories: dict[str, Callable[..., T]] = {}
        self._plugins: dict[str, list[EntryPoint]] | None = None

    @overload
    def register(self, name: str) -> Callable[[F], F]: ...
    @overload
    def register(self, name: str, factory: F) -> F: ...
    def register(self, name: str, factory: F | None = None) -> F | Callable[[F], F]:
        if not name or set(name) & set(":?&=% \t\n"):
            raise InputError(f"{name!r} cannot name a {self.noun}: it would not read as a spec")

        def keep(made: F) -> F:
            if name in self._factories:
                raise InputError(f"there is already a {self.noun} called {name!r}")
            self._factories[name] = made
            return made

        return keep if factory is None else keep(factory)

    def names(self) -> tuple[str, ...]:
        self._load_package()
        return tuple(sorted({*self._factories, *self._found()}))

    def get(self, name: str) -> Callable[..., T]:
        self._load_package()
        if name in self._factories:
            return self._factories[name]
        points = self._found().get(name)
        if points is None:
            raise InputError(f"there is no {self.noun} {name!r}", hint=_advice(name, self.names()))
        if len(points) > 1:
            owners = " and ".join(sorted(_owner(point) for point in points))
            raise InputError(f"{owners} both bring a {self.noun} {name!r}", hint="remove one")
        factory = self._factories[name] = self._load(points[0])
        return factory

    def create(self, spec: str) -> T:
        made: T | None = None
        # Left wraps right, so the innermost comes last in the text and first in the making.
        for part in reversed(spec.split(":")):
            made = self._make(part, made, spec)
        assert made is not None
        return made

    def describe(self, name: str) -> Description:
        factory = self.get(name)
        parameters, is_wrapper, _ = _parameters(factory)
        doc, _, details = (inspect.getdoc(factory) or "").strip().partition("\n")
        return Description(name, doc, parameters, is_wrapper, details.strip())

    def schema(self, name: str) -> dict[str, Any]:
        about = self.describe(name)
        fields = [
            (p.name, p.type) if p.is_required else (p.name, p.type, _field_default(p.default))
            for p in sorted(about.parameters, key=lambda p: not p.is_required)
        ]
        struct = msgspec.defstruct(name, fields, forbid_unknown_fields=True, kw_only=True)
        struct.__doc__ = about.doc
        (root,), shared = msgspec.json.schema_components([struct], ref_template="#/$defs/{name}")
        own = root["$ref"].removeprefix("#/$defs/")
        schema: dict[str, Any] = shared.pop(own)
        return schema | ({"$defs": shared} if shared else {})

    def _make(self, part: str, inner: T | None, spec: str) -> T:
        name, _, query = part.partition("?")
        factory = self.get(name)
        parameters, is_wrapper, inner_required = _parameters(factory)
        if inner is not None and not is_wrapper:
            raise InputError(f"{self.noun} {name!r} does not wrap another", where=spec)
        if inner is None and is_wrapper and inner_required:
            what = f"{self.noun} {name!r} wraps another"
            raise InputError(what, where=spec, hint=f"write {name}:NAME")
        given = _convert(_split(query, spec), parameters, f"{self.noun} {name!r}", spec)
        try:
            return factory(**given) if inner is None else factory(inner, **given)
        except InputError:
            raise
        except (TypeError, ValueError) as error:
            raise InputError(f"{self.noun} {name!r}: {error}", where=spec) from error

    def _load_package(self) -> None:
        if self.package is not None:
            home = importlib.import_module(self.package)
            for module in pkgutil.iter_modules(home.__path__, f"{self.package}."):
                importlib.import_module(module.name)

    def _found(self) -> dict[str, list[EntryPoint]]:
        # Some 15 ms with a few hundred packages installed: not on import.
        if self._plugins is None:
            self._plugins = {}
            points = entry_points(group=self.group) if self.group else ()
            # A distribution may be seen twice on the path (once installed, once as source).
            for point in {(p.name, p.value, _owner(p)): p for p in points}.values():
                self._plugins.setdefault(point.name, []).append(point)
        return self._plugins

    def _load(self, point: EntryPoint) -> Callable[..., T]:
        try:
            factory = point.load()
        except Exception as error:
            raise InputError(
                f"{self.noun} {point.name!r} of {_owner(point)} cannot be loaded "
                f"({point.value}): {type(error).__name__}: {error}",
                hint="repair or remove that package",
            ) from error
        if not callable(factory):
            raise InputError(
                f"{self.noun} {point.name!r} of {_owner(point)} cannot be called ({point.value})"
            )
        return typing.cast("Callable[..., T]", factory)


def _owner(point: EntryPoint) -> str:
    return point.dist.name if point.dist is not None else "an unknown package"


def _advice(wrong: str, allowed: Iterable[str]) -> str:
    names = sorted(allowed)
    close = difflib.get_close_matches(wrong, names, n=1)
    listed = f"There are: {', '.join(names)}" if names else "there are none"
    return f"did you mean {close[0]!r}? {listed}" if close else listed[0].lower() + listed[1:]


def _split(query: str, spec: str) -> dict[str, str]:
    given: dict[str, str] = {}
    for pair in query.split("&") if query else ():
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise InputError(f"{pair!r} is no parameter", where=spec, hint="write name=value")
        if name in given:
            raise InputError(f"{name!r} is given twice", where=spec)
        given[name] = unquote(value)
    return given


def _convert(
    given: dict[str, str], parameters: tuple[Parameter, ...], who: str, spec: str
) -> dict[str, Any]:
    known = {parameter.name: parameter for parameter in parameters}
    takes = f"it takes {', '.join(map(str, parameters))}" if parameters else "it takes none"
    for name in given:
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {close[0]!r}? {takes[0].upper()}{takes[1:]}" if close else takes
            raise InputError(f"{who} has no parameter {name!r}", where=spec, hint=hint)
    for parameter in parameters:
        if parameter.is_required and parameter.name not in given:
            raise InputError(f"{who} needs {parameter.name!r}", where=spec, hint=takes)
    converted = {}
    for name, text in given.items():
        try:
            converted[name] = msgspec.convert(text, known[name].type, strict=False)
        except msgspec.ValidationError as error:
            raise InputError(f"{name}={text}: {error}", where=spec, hint=takes) from error
    return converted


def _parameters(factory: Callable[..., Any]) -> tuple[tuple[Parameter, ...], bool, bool]:
    """Its parameters without `inner`, whether it is a wrapper, and whether `inner` is needed."""
    if isinstance(factory, type) and issubclass(factory, msgspec.Struct):
        found = [_of_field(field) for field in msgspec.structs.fields(factory)]
    else:
        found = _of_signature(factory)
    if found and found[0].name == _INNER:
        return tuple(found[1:]), True, found[0].is_required
    return tuple(found), False, False


def _of_field(field: msgspec.structs.FieldInfo) -> Parameter:
    default = field.default
    if field.default_factory is not msgspec.NODEFAULT:
        default = typing.cast("Callable[[], Any]", field.default_factory)()
    return Parameter(
        field.name, field.type, None if field.required else default, is_required=field.required
    )


def _of_signature(factory: Callable[..., Any]) -> list[Parameter]:
    described = factory.__init__ if isinstance(factory, type) else factory  # type: ignore[misc]
    try:
        hints = typing.get_type_hints(described, include_extras=True)
    except (NameError, TypeError):
        hints = {}
    found = []
    for parameter in inspect.signature(factory).parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        is_required = parameter.default is parameter.empty
        default = None if is_required else parameter.default
        found.append(
            Parameter(parameter.name, hints.get(parameter.name, Any), default, is_required)
        )
    return found


def _field_default(default: Any) -> Any:
    """Structs refuse mutable defaults, so those come from a factory."""
    if isinstance(default, list | dict | set | bytearray):
        return msgspec.field(default_factory=lambda: default)
    return default
