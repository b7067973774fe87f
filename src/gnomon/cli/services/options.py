"""What the commands of services share: applications, rates, guard rails."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

from cyclopts import Parameter

from gnomon.errors import InputError

if TYPE_CHECKING:
    from gnomon.decide.services import Rails
    from gnomon.estimate import Estimate
    from gnomon.graph.application import Application
    from gnomon.systems.services.rates import Rate
    from gnomon.systems.services.trial import Setup

_T = TypeVar("_T")

Flag = Annotated[bool, Parameter(negative=())]


@Parameter(name="*")
@dataclasses.dataclass(frozen=True, kw_only=True)
class RunOptions:
    """How long, at which rate, and with which guard rails.

    Attributes:
        duration: Of the run: 10m; a file of rates is run to its end unless given.
        minutes: The same as a number of minutes, instead of --duration.
        requests_per_second: See its help.
        scale: Factor on the rate, of shapes and files.
        interval: From decision to decision.
        guard: Put guard rails around the managers, as `control` always does: step limits, fall
            back to cap, holds.
        zone: Of the grid: carbon beside the energy.
        watts: Of an allocated core; a guess of 3 to 8 unless given.
        seed: Of arrivals, work and what managers draw.
    """

    duration: str | None = None
    minutes: float | None = None
    requests_per_second: Annotated[
        float | None,
        Parameter(name=["--rps"], help="Requests per second: mean of a rate shape; that of the "
                  "application unless given."),
    ] = None  # fmt: skip
    scale: float = 1.0
    interval: str = "1s"
    guard: Flag = False
    zone: str | None = None
    watts: float | None = None
    seed: int = 0

    @property
    def duration_s(self) -> float | None:
        if self.minutes is not None and self.duration is not None:
            raise InputError("--duration and --minutes say the same: give one of them")
        if self.minutes is not None:
            return 60.0 * self.minutes
        return None if self.duration is None else seconds(self.duration, "--duration")

    @property
    def rails(self) -> Rails:
        from gnomon.decide.services import BARE, Rails

        return Rails() if self.guard else BARE

    @property
    def core_w(self) -> Estimate:
        from gnomon.estimate import Estimate
        from gnomon.systems.services.measure import CORE_W

        if self.watts is None:
            return CORE_W
        if not 0 < self.watts < 1e4:
            raise InputError(f"--watts {self.watts:g}: over 0 and under 10,000")
        return Estimate.exact(self.watts)

    @property
    def intensity(self) -> Estimate | None:
        from gnomon.series.zones import zone_intensity

        return None if self.zone is None else zone_intensity(self.zone)

    def mean_rate(self, app: Application) -> float:
        """Requests per second, before --scale."""
        mean = app.rate if self.requests_per_second is None else self.requests_per_second
        if not 0 < mean <= 1e7:
            raise InputError(
                f"--rps {mean:g}: requests per second, over 0 and at most ten million"
            )
        if not 0 < self.scale < 1e6:
            raise InputError(f"--scale {self.scale:g}: over 0 and under a million")
        return mean

    def find_rates(self, names: str, app: Application, shape_s: float | None = None) -> list[Rate]:
        """Rates by name, with commas; shapes are of `shape_s` unless a duration was given."""
        import msgspec

        from gnomon.systems.services.rates import SHAPE_S, find_rate, label_rates

        mean = self.mean_rate(app)
        wanted = [name.strip() for name in names.split(",") if name.strip()]
        if not wanted:
            raise InputError("which rate?", hint="--rate diurnal")
        found = [
            find_rate(name, mean, duration_s=self.duration_s, scale=self.scale, seed=self.seed,
                      shape_s=shape_s or SHAPE_S)
            for name in wanted
        ]  # fmt: skip
        return [
            msgspec.structs.replace(rate, name=label)
            for rate, label in zip(found, label_rates(wanted))
        ]


def seconds(text: str, option: str) -> float:
    """A duration as people write it, in seconds."""
    from gnomon.units import SECOND_NS, parse_duration

    try:
        return parse_duration(text) / SECOND_NS
    except InputError as error:
        raise InputError(error.what, where=option, hint=error.hint) from None


def load_application(path: str, command: str) -> Application:
    """An application file, or `bundled:NAME`; a file of another kind is named."""
    from gnomon.ingest.formats import check_input
    from gnomon.ingest.services.application_file import read_application

    if not path.startswith("bundled:"):
        check_input(path, command)
    return read_application(path)


def make_setup(application: str, run: RunOptions, command: str) -> Setup:
    """What all runs of a command share."""
    from gnomon.systems.services.trial import Setup

    app, interval_s = load_application(application, command), seconds(run.interval, "--interval")
    return Setup(app, interval_s, run.rails, run.seed, run.intensity, run.core_w)


def prepared_for(setup: Setup, managers: Sequence[str]) -> Setup:
    """The setup with what managers need to know: an exploration, a model."""
    import msgspec

    from gnomon.systems.services.prepare import prepare_managers

    def say(what: str) -> None:
        print(what, file=sys.stderr, flush=True)

    found = prepare_managers(setup.app, managers, seed=setup.seed, say=say)
    return msgspec.structs.replace(setup, prepared=found)


def only_one(values: Sequence[_T], option: str) -> _T:
    """The one that an option names, for commands that take no more."""
    if len(values) != 1:
        raise InputError(f"{option}: one only", hint="gnomon services compare takes several")
    return values[0]


def files_of(*names: str) -> list[str]:
    """Those that are files: what a result records as its inputs."""
    return [name for name in names if Path(name).is_file()]
