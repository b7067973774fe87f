"""The slow, obvious cluster: the rules of native/engine/cluster/cluster.hpp in plain dicts and lists.

Nothing is kept that can be looked up again, so it can be checked by reading. `benchmarks/batch.py`
runs it too, as the simulator that one would write first.
"""

from __future__ import annotations

import dataclasses
import heapq
import math
from collections.abc import Sequence

from gnomon.graph.jobs import BatchJobs, JobKinds
from gnomon.sim.cluster import NEVER_NS, PATH_EXECUTORS, Executors

FRESH, FIRST, REST = range(3)
#: What happens at one time happens in this order.
EXECUTOR, ARRIVAL, GRID, URGENT, OFF, LEAVE = range(6)
ORDERS = ("fifo", "fair", "shortest", "critical-path")
_WORD = 2**64 - 1


@dataclasses.dataclass
class Rules:
    """Which stage is next, and how many executors may be busy, or held by applications."""

    order: str = "fifo"
    per_job: int = 2**31 - 1  # of fifo
    keeps: bool = False  # executors stay with an application until it is done
    exponent: float = 0.0  # of fair
    quota: Sequence[int] | None = None  # by step of the grid
    narrows: bool = True  # a job's limit shrinks with the quota
    step_ns: int = NEVER_NS
    patience_ns: int = NEVER_NS
    finish_by_ns: int = NEVER_NS
    each_task: bool = True  # the quota holds for tasks, not only for decisions
    of_held: bool = False  # the quota is of executors that applications hold, idle or not


@dataclasses.dataclass(frozen=True)
class Ran:
    """One task that ran."""

    job: int
    stage: int
    executor: int
    wave: int
    failed: bool
    start_ns: int
    end_ns: int


@dataclasses.dataclass
class Stage:
    tasks_left: int  # to start
    tasks_out: int  # to end
    parents: set[int]  # not done
    starts: int = 0


@dataclasses.dataclass
class Job:
    number: int
    application: int
    weight: float
    stages: list[Stage]
    typical: list[float]
    way: list[float]
    sample: list[list[list[list[int]]]]  # by stage, wave, level
    work: float = 0.0
    work_left: float = 0.0
    executors: int = 0
    is_urgent: bool = False

    def ready(self) -> list[int]:
        return [n for n, s in enumerate(self.stages) if s.tasks_left and not s.parents]

    @property
    def is_done(self) -> bool:
        return not any(stage.tasks_out for stage in self.stages)


@dataclasses.dataclass
class Executor:
    number: int
    application: int | None = None
    state: str = "idle"  # or absent, off, coming, busy, broken
    is_leaving: bool = False
    is_fresh: bool = True
    last: tuple[int, int] | None = None  # job and stage of its last task
    job: Job | None = None
    stage: int = 0
    wave: int = FRESH
    fails: bool = False
    breaks: bool = False
    since_ns: int = 0


class Pool:
    """Executors in a row: the last is taken first, and fills the gap where another leaves."""

    def __init__(self) -> None:
        self.row: list[Executor] = []

    def leave(self, executor: Executor) -> None:
        place = next(i for i, other in enumerate(self.row) if other is executor)
        self.row[place] = self.row[-1]
        self.row.pop()


def mixed(x: int) -> int:
    """The finisher of splitmix64."""
    x = (x + 0x9E3779B97F4A7C15) & _WORD
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _WORD
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _WORD
    return x ^ (x >> 31)


def unit(draw: int) -> float:
    return (draw >> 11) * 2.0**-53


def half_up(value: float) -> int:
    whole = math.floor(value)
    return whole + (value - whole >= 0.5)


class ReferenceCluster:
    def __init__(self, jobs: BatchJobs, executors: Executors, rules: Rules, seed: int = 0) -> None:
        assert rules.order in ORDERS
        self.jobs, self.settings, self.rules, self.seed = jobs, executors, rules, seed & _WORD
        self.kinds = _plain_kinds(jobs.kinds, min(PATH_EXECUTORS, executors.count))
        self.levels: list[int] = jobs.kinds.levels.tolist()
        self.now_ns = 0
        self.events: list[tuple[int, int, int]] = []
        self.active: list[Job] = []  # in order of arrival
        self.hurries = False
        self.source: Job | None = None
        self.executors = [Executor(n) for n in range(executors.count)]
        self.nobodys, self.others, self.off = Pool(), Pool(), Pool()
        self.own: dict[int, list[Executor]] = {}  # idle ones, the last to come first
        self.held: dict[int | None, int] = {None: executors.count}  # by application
        self.jobs_left: dict[int, int] = {}
        for application in jobs.application.tolist():
            self.own[application], self.held[application] = [], 0
            self.jobs_left[application] = self.jobs_left.get(application, 0) + 1
        self.grid_step: int | None = 0
        self.log: list[Ran] = []
        self.start_ns: dict[int, int] = {}
        self.finish_ns: dict[int, int] = {}
        self.event_count = self.decisions = self.moves = self.starts = 0

    # What happens.

    def run(self) -> ReferenceCluster:
        for job, (after, arrival_ns) in enumerate(
            zip(self.jobs.after.tolist(), self.jobs.arrival_ns.tolist())
        ):
            if after < 0:
                self.push(arrival_ns, ARRIVAL, job)
        for executor in reversed(self.executors):
            self.place(executor)
        if self.rules.quota is not None:
            self.push(self.rules.step_ns, GRID, 0)
        while self.events and len(self.finish_ns) < len(self.jobs):
            self.now_ns = self.events[0][0]
            self.source = None
            while self.events and self.events[0][0] == self.now_ns:
                _, kind, number = heapq.heappop(self.events)
                self.handle(kind, number)
                self.event_count += 1
            self.decide()
        return self

    def place(self, executor: Executor) -> None:
        settings, number = self.settings, executor.number
        if settings.until_ns and settings.until_ns[number] != NEVER_NS:
            self.push(settings.until_ns[number], LEAVE, number)
        if settings.from_ns and settings.from_ns[number] > 0:
            executor.state = "absent"
            self.push(settings.from_ns[number], EXECUTOR, number)
        elif settings.off_after_ns is not None:
            executor.state = "off"
            self.off.row.append(executor)
        else:
            self.nobodys.row.append(executor)

    def push(self, time_ns: int, kind: int, number: int) -> None:
        heapq.heappush(self.events, (time_ns, kind, number))

    def handle(self, kind: int, number: int) -> None:
        if kind == ARRIVAL:
            self.arrive(number)
        elif kind == GRID:
            self.move_grid()
        elif kind == URGENT:
            for job in self.active:
                if job.number == number:
                    job.is_urgent = True
        elif kind == OFF:
            self.switch_off(self.executors[number])
        elif kind == LEAVE:
            self.leave(self.executors[number])
        elif self.executors[number].state == "coming":
            self.start_task(self.executors[number])
        elif self.executors[number].state == "busy":
            self.finish_task(self.executors[number])
        else:  # it comes, or is mended
            self.make_idle(self.executors[number])

    def arrive(self, number: int) -> None:
        tasks, parents, typical, way, sample = self.kinds[self.jobs.kind[number]]
        stages = [Stage(many, many, set(before)) for many, before in zip(tasks, parents)]
        job = Job(
            number, int(self.jobs.application[number]), float(self.jobs.weight[number]), stages,
            typical, way, sample,
        )  # fmt: skip
        for many, each in zip(tasks, typical):
            job.work += many * each
        job.work_left = job.work
        self.active.append(job)
        due_ns = min(self.rules.finish_by_ns, int(self.jobs.deadline_ns[number]))
        urgent_ns = NEVER_NS if due_ns == NEVER_NS else max(self.now_ns, due_ns - int(max(way)))
        if self.rules.patience_ns != NEVER_NS:
            urgent_ns = min(urgent_ns, self.now_ns + self.rules.patience_ns)
        if urgent_ns != NEVER_NS:
            self.push(urgent_ns, URGENT, number)
        job.is_urgent = self.hurries
        self.keep_to_the_end()

    def keep_to_the_end(self) -> None:
        """Nothing is held any more once all that is left would just be done in time."""
        longest = max((max(job.way) for job in self.active), default=0.0)
        left = 0.0
        for job in self.active:
            left += job.work_left
        step_ns = NEVER_NS if self.rules.quota is None else self.rules.step_ns
        needed = left / len(self.executors) + longest + float(step_ns)
        is_late = float(self.now_ns) + needed >= float(self.rules.finish_by_ns)
        if self.rules.finish_by_ns != NEVER_NS and is_late:
            self.hurries = True
            for job in self.active:
                job.is_urgent = True

    def move_grid(self) -> None:
        assert self.grid_step is not None
        assert self.rules.quota is not None
        if self.grid_step + 1 < len(self.rules.quota):
            self.grid_step += 1
            self.push(self.now_ns + self.rules.step_ns, GRID, 0)
        else:
            self.grid_step = None  # nothing is known any more
        self.keep_to_the_end()

    def switch_off(self, executor: Executor) -> None:
        after_ns = self.settings.off_after_ns
        if executor.state != "idle" or self.now_ns - executor.since_ns != after_ns:
            return  # it has worked since
        self.leave_idle(executor)
        self.bind(executor, None)
        executor.state = "off"
        self.off.row.append(executor)

    def leave(self, executor: Executor) -> None:
        executor.is_leaving = True
        if executor.state == "off":
            self.off.leave(executor)
        elif executor.state == "idle":
            self.leave_idle(executor)
            self.bind(executor, None)
        else:
            return  # after its task
        executor.state = "absent"

    def start_task(self, executor: Executor) -> None:
        job = executor.job
        assert job is not None
        stage = job.stages[executor.stage]
        here = (job.number, executor.stage)
        executor.wave = FRESH if executor.is_fresh else REST if executor.last == here else FIRST
        took_ns, executor.fails, executor.breaks = self.draw(
            job, executor.stage, stage.starts, executor
        )
        stage.starts += 1
        executor.is_fresh, executor.last = False, here
        executor.state, executor.since_ns = "busy", self.now_ns
        self.start_ns.setdefault(job.number, self.now_ns)
        self.push(self.now_ns + took_ns, EXECUTOR, executor.number)

    def draw(self, job: Job, stage: int, nth: int, executor: Executor) -> tuple[int, bool, bool]:
        """How long the nth start of a stage takes, whether it fails, and the executor with it."""
        settings = self.settings
        key = mixed(self.seed ^ mixed(job.number))
        draw = mixed(key ^ mixed(stage << 32 | nth))
        samples = job.sample[stage][executor.wave][self.level(job.application, mixed(draw))]
        took_ns = samples[(draw >> 32) * len(samples) >> 32]
        if settings.speed:
            took_ns = max(1, half_up(took_ns / settings.speed[executor.number]))
        if settings.straggler_chance and unit(mixed(draw ^ 1)) < settings.straggler_chance:
            took_ns = half_up(took_ns * settings.straggler_factor)
        chance = settings.task_failure_chance
        fails = chance > 0 and unit(mixed(draw ^ 2)) < chance
        if settings.failures_per_hour > 0:
            rate = settings.failures_per_hour / (3_600 * 10**9)
            lives_ns = -math.log1p(-unit(mixed(draw ^ 3))) / rate
            if lives_ns < took_ns:
                return max(1, int(lives_ns)), True, True
        return took_ns, fails, False

    def level(self, application: int, draw: int) -> int:
        """Between two measured numbers of executors, the nearer one is the likelier."""
        held = self.held[application]
        above = next((i for i, n in enumerate(self.levels) if n >= held), len(self.levels) - 1)
        if above == 0 or held >= self.levels[above]:
            return above
        low, high = self.levels[above - 1], self.levels[above]
        return above if unit(draw) < (held - low) / (high - low) else above - 1

    def finish_task(self, executor: Executor) -> None:
        job, position = executor.job, executor.stage
        assert job is not None
        stage = job.stages[position]
        self.log.append(
            Ran(
                job.number, position, executor.number, executor.wave, executor.fails,
                executor.since_ns, self.now_ns,
            )
        )  # fmt: skip
        if executor.fails:
            stage.tasks_left += 1
            job.work_left += job.typical[position]
        else:
            stage.tasks_out -= 1
            if stage.tasks_out == 0:
                for other in job.stages:
                    other.parents.discard(position)
        if executor.breaks:
            job.executors -= 1
            self.bind(executor, None)
            executor.state, executor.last = "broken", None
            self.push(self.now_ns + self.settings.startup_ns, EXECUTOR, executor.number)
        elif stage.tasks_left and not executor.is_leaving and self.continues(job):
            stage.tasks_left -= 1
            job.work_left -= job.typical[position]
            self.start_task(executor)
        else:
            job.executors -= 1
            self.make_idle(executor)
            if job.is_done:
                self.finish_job(job)
            else:
                self.source = job

    def continues(self, job: Job) -> bool:
        """An executor goes on with its stage unasked, unless the quota fell."""
        if self.rules.quota is None or job.is_urgent or not self.rules.each_task:
            return True
        return self.used <= self.quota and job.executors <= self.narrowed(self.settings.count)

    def finish_job(self, job: Job) -> None:
        self.finish_ns[job.number] = self.now_ns
        self.active = [other for other in self.active if other is not job]
        if self.source is job:
            self.source = None
        self.jobs_left[job.application] -= 1
        if not self.jobs_left[job.application]:
            for executor in reversed(list(self.own[job.application])):
                self.leave_application(executor)
        for later, after in enumerate(self.jobs.after.tolist()):
            if after == job.number:
                self.push(self.now_ns + int(self.jobs.arrival_ns[later]), ARRIVAL, later)

    # Who is idle.

    def make_idle(self, executor: Executor) -> None:
        if executor.is_leaving:
            self.bind(executor, None)
            executor.state = "absent"
            return
        executor.state, executor.since_ns = "idle", self.now_ns
        if executor.application is None:
            self.nobodys.row.append(executor)
        else:
            self.others.row.append(executor)
            self.own[executor.application].append(executor)
        if self.settings.off_after_ns is not None:
            self.push(self.now_ns + self.settings.off_after_ns, OFF, executor.number)

    def bind(self, executor: Executor, application: int | None) -> None:
        self.held[executor.application] -= 1
        self.held[application] += 1
        executor.application = application

    def leave_idle(self, executor: Executor) -> None:
        if executor.application is None:
            self.nobodys.leave(executor)
        else:
            self.others.leave(executor)
            own = self.own[executor.application]
            self.own[executor.application] = [other for other in own if other is not executor]

    def leave_application(self, executor: Executor) -> None:
        self.leave_idle(executor)
        self.bind(executor, None)
        self.nobodys.row.append(executor)

    def take(self, application: int, may_hold_more: bool) -> Executor | None:
        """The application's own, then nobody's, then another's, then one that is off."""
        for row in (
            self.own[application],
            self.nobodys.row if may_hold_more else [],
            [] if self.rules.keeps else self.others.row,
        ):
            if row:
                executor = row[-1]
                self.leave_idle(executor)
                return executor
        return self.off.row.pop() if self.off.row and may_hold_more else None

    @property
    def idle(self) -> int:
        return len(self.nobodys.row) + len(self.others.row) + len(self.off.row)

    @property
    def busy(self) -> int:
        return sum(job.executors for job in self.active)

    @property
    def used(self) -> int:
        """What the quota counts."""
        if self.rules.of_held:
            return sum(many for who, many in self.held.items() if who is not None)
        return self.busy

    @property
    def has_room(self) -> bool:
        """Executors that applications hold already may go to another job."""
        return self.used < self.quota or (self.rules.of_held and bool(self.others.row))

    @property
    def quota(self) -> int:
        if self.rules.quota is None or self.grid_step is None:
            return self.settings.count
        return min(self.settings.count, self.rules.quota[self.grid_step])

    def narrowed(self, limit: int) -> int:
        if self.rules.quota is None or self.grid_step is None or not self.rules.narrows:
            return limit
        quota, count = self.rules.quota[self.grid_step], self.settings.count
        return min(limit, max(1, -(-limit * quota // count)))

    # What is decided.

    def decide(self) -> None:
        if self.rules.of_held and not self.rules.keeps:
            # Those of a job that no quota binds stay with it.
            urgent = {job.application for job in self.active if job.is_urgent}
            while self.used > self.quota:
                surplus = [e for e in self.others.row if e.application not in urgent]
                if not surplus:
                    break
                self.leave_application(surplus[-1])
        refused: set[int] = set()  # jobs that could be given nothing at this time
        while self.idle and any(job.ready() for job in self.active):
            if not self.has_room and not any(job.is_urgent for job in self.active):
                return
            self.decisions += 1
            choice = self.choose(refused)
            if choice is None:
                return
            if not self.assign(*choice):
                refused.add(choice[0].number)

    def choose(self, refused: set[int]) -> tuple[Job, int, int, int] | None:
        """A job, its stage, how many executors the job may hold, and how many are given at most."""
        many = self.settings.count
        served = [
            job
            for job in self.active
            if job.number not in refused and (job.is_urgent or self.has_room) and job.ready()
        ]
        order = self.rules.order
        if order == "shortest":
            best = min(served, key=lambda job: job.work_left, default=None)
            return best and (best, best.ready()[0], many, many)
        if order == "critical-path":
            stages = [(job, stage) for job in served for stage in job.ready()]
            if not stages:
                return None
            job, stage = max(stages, key=lambda pair: pair[0].way[pair[1]])
            return job, stage, many, many
        limit = self.limits()
        if self.source in served:
            own = len(self.own[self.source.application])
            if own and self.source.executors < limit[self.source.number]:
                return self.source, self.source.ready()[0], limit[self.source.number], own
        for job in served:
            if job.executors < limit[job.number]:
                return job, job.ready()[0], limit[job.number], many
        return None

    def limits(self) -> dict[int, int]:
        count = self.settings.count
        if self.rules.order == "fifo":
            return {job.number: min(self.rules.per_job, count) for job in self.active}
        share = {job.number: job.weight for job in self.active}
        if self.rules.exponent:
            for job in self.active:
                share[job.number] *= max(job.work, 1.0) ** self.rules.exponent
        total = 0.0
        for part in share.values():
            total += part
        return {n: max(1, math.ceil(count * part / total - 1e-9)) for n, part in share.items()}

    def assign(self, job: Job, position: int, limit: int, most: int) -> int:
        stage = job.stages[position]
        if not job.is_urgent:
            limit = self.narrowed(limit)
            if self.rules.each_task and not self.rules.of_held:
                most = min(most, self.quota - self.busy)
        given = 0
        for _ in range(min(stage.tasks_left, limit - job.executors, most)):
            executor = self.take(job.application, job.is_urgent or self.may_hold_more)
            if executor is None:
                break
            self.give(executor, job, position)
            given += 1
        return given

    @property
    def may_hold_more(self) -> bool:
        is_bound = self.rules.of_held and self.rules.each_task
        return not is_bound or self.used < self.quota

    def give(self, executor: Executor, job: Job, position: int) -> None:
        job.stages[position].tasks_left -= 1
        job.work_left -= job.typical[position]
        job.executors += 1
        delay_ns = 0
        if executor.state == "off":
            delay_ns += self.settings.startup_ns
            self.starts += 1
        if executor.application != job.application:
            delay_ns += self.settings.moving_delay_ns
            self.moves += 1
            self.bind(executor, job.application)
            executor.is_fresh = True
        executor.job, executor.stage, executor.since_ns = job, position, self.now_ns
        if delay_ns:
            executor.state = "coming"
            self.push(self.now_ns + delay_ns, EXECUTOR, executor.number)
        else:
            self.start_task(executor)


def _plain_kinds(kinds: JobKinds, path_executors: int) -> list[tuple[list[int], ...]]:
    """Of each kind: tasks, parents, typical durations, ways to the end, samples."""
    typical, way = kinds.typical_ns.tolist(), kinds.path_ns(path_executors).tolist()
    first = kinds.sample_first.reshape(kinds.stage_count, 3, len(kinds.levels))
    count = kinds.sample_count.reshape(first.shape)
    plain = []
    for kind in range(len(kinds)):
        stages = kinds.stages_of(kind)
        parents = [(kinds.parents_of(s) - stages.start).tolist() for s in stages]
        sample = [
            [
                [kinds.sample_ns[f : f + c].tolist() for f, c in zip(firsts, counts)]
                for firsts, counts in zip(first[s].tolist(), count[s].tolist())
            ]
            for s in stages
        ]
        here = slice(stages.start, stages.stop)
        plain.append((kinds.tasks[here].tolist(), parents, typical[here], way[here], sample))
    return plain
