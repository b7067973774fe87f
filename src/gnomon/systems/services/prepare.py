"""What a manager has to know of an application before it can manage it.

`ursa` needs an exploration and `sinan` a model. A run that names them without one gets it from the
simulator first; it is kept beside other cached copies and used again for the same application.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from gnomon.decide.services.ursa.exploration import digest
from gnomon.errors import InputError
from gnomon.graph.application import Application
from gnomon.ingest.cache import cache_folder

#: What each manager is given, and under which parameter.
NEEDED = {"ursa": "explored", "sinan": "model"}


def prepare_managers(
    app: Application, managers: Sequence[str], *, seed: int = 0,
    say: Callable[[str], None] | None = None,
) -> dict[str, str]:  # fmt: skip
    """By manager as it was named: the same with what it needs.

    Args:
        app: The application that they shall manage.
        managers: As they were named: those that have what they need are left as they are.
        seed: Of exploration and training.
        say: Called with a line before exploration or training starts.
    """
    found = {}
    for manager in managers:
        wrappers, colon, innermost = manager.rpartition(":")
        name, _, given = innermost.partition("?")
        need = NEEDED.get(name)
        if need is not None and f"{need}=" in given.split("&"):
            raise InputError(f"{manager}: {need} is empty", hint="leave it out, or name a file")
        if need is None or f"{need}=" in given:
            continue
        place = _place(app, name, seed)
        path = (
            _explored(app, place, seed, say) if name == "ursa" else _model(app, place, seed, say)
        )
        quoted = str(path).replace("%", "%25").replace("&", "%26").replace(":", "%3A")
        ready = f"{name}?{need}={quoted}" + (f"&{given}" if given else "")
        found[manager] = f"{wrappers}{colon}{ready}"
    return found


def _place(app: Application, manager: str, seed: int) -> Path:
    folder = (cache_folder() or Path(tempfile.mkdtemp(prefix="gnomon-"))) / "services"
    folder.mkdir(parents=True, exist_ok=True)
    return folder / f"{manager}-{digest([app, seed])}"


def _explored(app: Application, place: Path, seed: int, say: Callable[[str], None] | None) -> Path:
    from gnomon.systems.services.ursa import explore, in_simulator

    path = place.with_suffix(".json")
    if not path.exists():
        if say is not None:
            say(f"ursa: exploring {app.name} in the simulator (kept for the next time)")
        explore(app, in_simulator(seed)).write(path)
    return path


def _model(app: Application, place: Path, seed: int, say: Callable[[str], None] | None) -> Path:
    from gnomon.systems.services.sinan import prepare

    if not (place / "model.json").exists():
        if say is not None:
            say(f"sinan: collecting data of {app.name} in the simulator and training "
                "(minutes; kept for the next time)")  # fmt: skip
        prepare(app, place, seed=seed)
    return place
