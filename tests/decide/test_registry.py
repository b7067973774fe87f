"""Specs, plug-ins, and what people are told when they mistype."""

import contextlib
import importlib
import sys
from typing import Annotated, Literal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon.decide.cluster import cluster_policies
from gnomon.decide.cluster.policies.cap import Cap as RealCap
from gnomon.decide.cluster.policies.orders import Fifo
from gnomon.errors import InputError
from gnomon.registry import Parameter, Registry


class Plain(msgspec.Struct, frozen=True):
    """Does little."""


class Threshold(msgspec.Struct, frozen=True):
    """Wait while it is dirty.

    More about it.
    """

    limit: float = 300.0
    slack_s: int = 60
    mode: Literal["soft", "hard"] = "soft"
    is_on: bool = True
    name: str | None = None
    share: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.5


class Cap(msgspec.Struct, frozen=True):
    """Hold back a share."""

    inner: object
    quota: float = 1.0


class Needy(msgspec.Struct, frozen=True):
    depth: int


class Fussy(msgspec.Struct, frozen=True):
    size: int = 1

    def __post_init__(self):
        if self.size > 9:
            raise ValueError("size is at most 9")


def by_hand(width: int, colour: str = "red") -> tuple[int, str]:
    """Made by a function."""
    return width, colour


@pytest.fixture
def things():
    registry = Registry("thing")
    for name, factory in [
        ("plain", Plain),
        ("threshold", Threshold),
        ("cap", Cap),
        ("needy", Needy),
        ("fussy", Fussy),
        ("by-hand", by_hand),
    ]:
        registry.register(name, factory)
    return registry


@pytest.mark.parametrize(
    ("spec", "made"),
    [
        ("plain", Plain()),
        ("threshold", Threshold()),
        ("threshold?limit=250&slack_s=5", Threshold(limit=250.0, slack_s=5)),
        (
            "threshold?limit=1e+3&mode=hard&is_on=false",
            Threshold(1000.0, mode="hard", is_on=False),
        ),
        ("threshold?name=a%3Ab%26c", Threshold(name="a:b&c")),
        ("cap:plain", Cap(Plain())),
        ("cap?quota=0.5:cap:threshold?limit=1", Cap(Cap(Threshold(limit=1.0)), quota=0.5)),
        ("needy?depth=3", Needy(3)),
        ("by-hand?width=4", (4, "red")),
    ],
)
def test_create(things, spec, made):
    assert things.create(spec) == made


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("plane", "there is no thing 'plane'; did you mean 'plain'? There are: by-hand, cap, "),
        (
            "zzz",
            "there is no thing 'zzz'; there are: by-hand, cap, fussy, needy, plain, threshold",
        ),
        ("", "there is no thing ''"),
        ("cap:", "there is no thing ''"),
        (
            "threshold?limt=3",
            "threshold?limt=3: thing 'threshold' has no parameter 'limt'; did you mean 'limit'? "
            "It takes limit: float = 300.0, slack_s: int = 60, mode: Literal['soft', 'hard']",
        ),
        ("plain?x=1", "plain?x=1: thing 'plain' has no parameter 'x'; it takes none"),
        ("threshold?limit=high", "limit=high: Expected `float`, got `str`; it takes limit: float"),
        ("threshold?mode=mild", "mode=mild: Invalid enum value 'mild'"),
        ("threshold?share=2", "share=2: Expected `float` <= 1.0"),
        ("threshold?limit", "'limit' is no parameter; write name=value"),
        ("threshold?limit=1&limit=2", "'limit' is given twice"),
        ("needy", "thing 'needy' needs 'depth'; it takes depth: int"),
        ("cap", "cap: thing 'cap' wraps another; write cap:NAME"),
        ("plain:threshold", "plain:threshold: thing 'plain' does not wrap another"),
        ("fussy?size=10", "thing 'fussy': size is at most 9"),
        ("cap?inner=plain:plain", "thing 'cap' has no parameter 'inner'"),
    ],
)
def test_wrong_specs(things, spec, message):
    with pytest.raises(InputError) as info:
        things.create(spec)
    assert message in str(info.value)
    assert "\n" not in str(info.value)


@given(st.text(max_size=30))
def test_prop_nonsense_is_an_input_error(text):
    registry = Registry("thing")
    registry.register("cap", Cap)
    registry.register("plain", Plain)
    # Either it is a spec, or an InputError: nothing else comes out.
    with contextlib.suppress(InputError):
        assert isinstance(registry.create(text), Plain | Cap)


@given(st.floats(allow_nan=False), st.integers(-(2**62), 2**62), st.booleans())
def test_prop_parameters_survive_a_spec(limit, slack_s, is_on):
    registry = Registry("thing")
    registry.register("threshold", Threshold)
    made = registry.create(f"threshold?limit={limit!r}&slack_s={slack_s}&is_on={is_on}".lower())
    assert (made.limit, made.slack_s, made.is_on) == (limit, slack_s, is_on)


def test_register_as_a_decorator_gives_the_class_back(things):
    @things.register("late")
    class Late(msgspec.Struct, frozen=True):
        pass

    assert things.create("late") == Late()
    assert "late" in things.names()


def test_a_name_is_given_once(things):
    with pytest.raises(InputError, match="already a thing called 'plain'"):
        things.register("plain", Plain)


@pytest.mark.parametrize("name", ["", "a:b", "a?b", "a b", "a=b"])
def test_names_must_read_as_specs(things, name):
    with pytest.raises(InputError, match="cannot name a thing"):
        things.register(name, Plain)


def test_describe(things):
    about = things.describe("threshold")
    assert (about.name, about.doc, about.is_wrapper) == (
        "threshold",
        "Wait while it is dirty.",
        False,
    )
    assert about.parameters[:2] == (
        Parameter("limit", float, 300.0),
        Parameter("slack_s", int, 60),
    )
    cap = things.describe("cap")
    assert cap.is_wrapper
    assert [p.name for p in cap.parameters] == ["quota"]
    assert things.describe("needy").parameters == (Parameter("depth", int, is_required=True),)
    assert str(things.describe("by-hand")) == (
        "by-hand?width=...&colour=red\n  Made by a function.\n  width: int\n  colour: str = 'red'"
    )


def test_schema(things):
    schema = things.schema("threshold")
    assert schema["type"] == "object"
    assert schema["additionalProperties"] is False
    assert schema["description"] == "Wait while it is dirty."
    assert schema["properties"]["limit"] == {"type": "number", "default": 300.0}
    assert schema["properties"]["share"] == {
        "type": "number", "minimum": 0, "maximum": 1, "default": 0.5,
    }  # fmt: skip
    assert things.schema("needy")["required"] == ["depth"]
    assert "inner" not in things.schema("cap")["properties"]


# Plug-ins


def distribution(folder, name, entry_points, **modules):
    """What an installer leaves behind: modules, and a dist-info that names the entry points."""
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    lines = [f"{key} = {value}" for key, value in entry_points.items()]
    (info / "entry_points.txt").write_text("\n".join(["[gnomon.things]", *lines, ""]))
    for module, text in modules.items():
        (folder / f"{module}.py").write_text(text)


PLUGIN = '''
import msgspec

class Green(msgspec.Struct, frozen=True):
    """Defer while the grid is dirty."""
    threshold_g_per_kwh: float = 300.0
'''


@pytest.fixture
def plugged(tmp_path, monkeypatch):
    distribution(
        tmp_path,
        "green-pack",
        {
            "green": "green_pack_plugin:Green",
            "broken": "green_pack_broken:Anything",
            "gone": "green_pack_plugin:NoSuchClass",
            "number": "green_pack_broken_not:VALUE",
            "plain": "green_pack_plugin:Green",
        },
        green_pack_plugin=PLUGIN,
        green_pack_broken="import a_package_nobody_has\n",
        green_pack_broken_not="VALUE = 3\n",
    )
    monkeypatch.syspath_prepend(tmp_path)
    importlib.invalidate_caches()
    registry = Registry("thing", group="gnomon.things")
    registry.register("plain", Plain)
    yield registry
    for module in ("green_pack_plugin", "green_pack_broken", "green_pack_broken_not"):
        sys.modules.pop(module, None)


def test_a_plugin_is_found_and_made(plugged):
    assert plugged.names() == ("broken", "gone", "green", "number", "plain")
    assert "green_pack_plugin" not in sys.modules, "listing names imports nothing"
    made = plugged.create("green?threshold_g_per_kwh=150")
    assert repr(made) == "Green(threshold_g_per_kwh=150.0)"
    assert plugged.describe("green").doc == "Defer while the grid is dirty."


def test_a_broken_plugin_is_named_only_when_asked_for(plugged):
    assert plugged.create("plain") == Plain()
    plugged.create("green")
    with pytest.raises(InputError) as info:
        plugged.create("broken")
    assert str(info.value) == (
        "thing 'broken' of green-pack cannot be loaded (green_pack_broken:Anything): "
        "ModuleNotFoundError: No module named 'a_package_nobody_has'; "
        "repair or remove that package"
    )
    with pytest.raises(InputError, match=r"'gone' of green-pack cannot be loaded.*AttributeError"):
        plugged.create("gone")
    with pytest.raises(InputError, match="'number' of green-pack cannot be called"):
        plugged.create("number")


def test_a_registered_name_wins(plugged):
    assert plugged.create("plain") == Plain()


def test_two_packages_with_one_name(tmp_path, monkeypatch):
    for name in ("one-pack", "two-pack"):
        module = name.replace("-", "_")
        distribution(tmp_path, name, {"green": f"{module}:Green"}, **{module: PLUGIN})
    monkeypatch.syspath_prepend(tmp_path)
    importlib.invalidate_caches()
    registry = Registry("thing", group="gnomon.things")
    with pytest.raises(InputError, match="one-pack and two-pack both bring a thing 'green'"):
        registry.create("green")


def test_entry_points_are_looked_up_on_first_use_only(monkeypatch):
    calls = []

    def entry_points(**selection):
        calls.append(selection)
        return ()

    monkeypatch.setattr("gnomon.registry.entry_points", entry_points)
    registry = Registry("thing", group="gnomon.things")
    registry.register("plain", Plain)
    registry.create("plain")
    assert calls == []
    registry.names()
    registry.names()
    assert calls == [{"group": "gnomon.things"}]


# The policies


def test_policies_have_names():
    assert {"fifo", "fair", "cap", "pcaps", "decima", "guard"} <= set(cluster_policies.names())
    assert cluster_policies.create("cap?min_share=0.4:fifo") == RealCap(Fifo(), min_share=0.4)
    with pytest.raises(InputError, match="did you mean 'shortest-job'"):
        cluster_policies.create("shortst-job")
