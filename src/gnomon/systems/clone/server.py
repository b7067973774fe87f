"""How a server works, from the system calls it made.

Who waits, what a request does, in which order, with which sizes.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

import msgspec

from gnomon.errors import InputError
from gnomon.systems.clone.recording import Ints, Key, Recording
from gnomon.systems.clone.threads import (
    CALLS,
    READS,
    SENDS,
    SLEEPS,
    TARGETS,
    WAITS,
    Call,
    in_order,
    is_request,
    threads_of,
)

_ACCEPTS = frozenset(("accept", "accept4"))
#: Scripts of fewer requests than this share are left out.
_RARE = 0.005
#: Sizes that were seen less often are left out.
_FEWEST = 5
_LONGEST_SLEEP_NS = 3600e9
_EAGAIN = -11
#: What reads return once the client has ended its connection, in good order or not.
_ENDED = (0, -104)
_ENDS = frozenset(("close", "shutdown"))
#: Ways of handling a request beyond which nothing is gained.
_MOST_SCRIPTS = 8
#: Calls whose first argument is a descriptor.
_OF_DESCRIPTOR = (
    READS | SENDS | {"close", "connect", "setsockopt", "getsockname", "getpeername", "shutdown",
                     "fcntl", "ioctl"})  # fmt: skip
#: Waits before an answer: whoever waits more often is not waiting for it.
_MOST_WAITS = 8


class Step(msgspec.Struct, frozen=True):
    """A system call of a script: what, on what, and its usual size in bytes."""

    call: str
    target: str = ""
    size: int = 0

    @property
    def is_reply(self) -> bool:
        return self.target == "connection" and self.call in SENDS

    @property
    def label(self) -> str:
        return f"{self.call}:{self.target}" if self.target else self.call


class Script(msgspec.Struct, frozen=True):
    """System calls that belong together, in phases.

    A phase is carried out for all connections that are ready before the next begins: Redis reads
    from all, then writes to all. One that begins with a wait is of a later wake-up: event loops
    call handlers in the next turn, proxies have to ask others before they answer.
    """

    share: float
    phases: tuple[tuple[Step, ...], ...]
    reply_sizes: tuple[tuple[int, int], ...] = ()

    @property
    def steps(self) -> list[Step]:
        return [one for phase in self.phases for one in phase]


class Background(msgspec.Struct, frozen=True):
    """A thread that serves nobody and sleeps in between: the call, and how long it asks for while
    requests come, and while none do."""

    call: str
    busy_ms: float
    idle_ms: float


class Server(msgspec.Struct, frozen=True):
    """A tier as its system calls show it.

    Attributes:
        requests: That were recorded: reads from a connection that were answered.
        covered: Share of requests that the scripts stand for.
        wakeups: Per request: returns of the wait that had something.
        timers: Scripts of waits that ended with nothing to do, with how often that was.
        threads: That served connections.
        background: Threads that work by the clock.
        reads_on: After an answer it reads from the same connection again, before it waits:
            who asks quickly is served without a wake-up.
        handed_on: Share of requests that another thread answered than the one that read them.
    """

    wait: str
    requests: int
    covered: float
    wakeups: float
    scripts: tuple[Script, ...]
    on_accept: Script | None
    on_close: Script | None
    timers: tuple[tuple[Script, int], ...]
    threads: int
    processes: int
    accepts_in_main: bool
    background: tuple[Background, ...] = ()
    reads_on: bool = False
    handed_on: float = 0.0


def name_of(key: Key) -> str:
    """Such as `read:connection`; a call that came back empty-handed ends with a `!`."""
    call = CALLS.get(key.number, f"call{key.number}")
    target = TARGETS[key.target] if key.target < len(TARGETS) else ""
    return call + (f":{target}" if target else "") + ("!" if key.is_vain else "")


def infer_server(recordings: Sequence[Recording]) -> Server:
    """The model of a server, from all of its processes.

    Raises:
        InputError: No connection was served while it was recorded.
    """
    threads = [mine for one in recordings for mine in threads_of(one.calls)]
    serving = [calls for calls in threads if any(is_request(one) for one in calls)]
    if not serving and any(one.call in _ACCEPTS and one.result >= 0
                           for calls in threads for one in calls):  # fmt: skip
        raise _unanswered()
    if not serving:
        raise InputError(
            "no request was served while it was recorded",
            hint="does --load talk to the port that the command listens on?",
        )
    waits = Counter(one.call for calls in serving for one in calls if one.call in WAITS)
    found = _Found()
    for calls in serving:
        found.add(calls)
    found.merge_phases()
    requests = sum(found.scripts.values())
    if requests == 0:
        if not any(one.target == "connection" and one.call in SENDS
                   for calls in threads for one in calls):  # fmt: skip
            raise _unanswered()
        raise InputError(
            "no request was answered on the connection that it came from",
            hint="gnomon clone profile --pid looks at services as they run, whatever they do",
        )
    kept = [
        (key, count)
        for key, count in found.scripts.most_common(_MOST_SCRIPTS)
        if count >= _RARE * requests
    ]
    covered = sum(count for _, count in kept) / requests
    scripts = tuple(
        Script(count / requests / covered, found.sized(key), _often(found.replies[key]))
        for key, count in kept
    )
    accepting = [
        calls
        for calls in threads
        if any(one.call in _ACCEPTS and one.result >= 0 for one in calls)
    ]
    return Server(
        waits.most_common(1)[0][0] if waits else "blocking", requests, covered,
        found.wakeups / requests, scripts, _usual(found.accepts), _usual(found.closes),
        tuple((Script(1.0, (key,)), count) for key, count in found.timers.most_common(1)),
        len(serving),
        sum(any(is_request(c) for m in threads_of(one.calls) for c in m) for one in recordings),
        bool(accepting) and not any(calls in serving for calls in accepting),
        tuple(found for one in recordings for found in _background(one.calls)),
        bool(waits) and any(_reads_on(calls) for calls in serving),
        min(found.handed_on / requests, 1.0),
    )  # fmt: skip


def _unanswered() -> InputError:
    return InputError(
        "no request was answered while the load ran",
        hint="an emulator is some sixty times slower: let the load run longer",
    )


def _background(rows: Ints) -> list[Background]:
    """Of one process."""
    calls, threads = in_order(rows), rows[:, 0].tolist()
    reading = [i for i, one in enumerate(calls) if is_request(one)]
    serving = {threads[i] for i in reading}
    sleeps: dict[tuple[int, str], list[tuple[int, float]]] = defaultdict(list)
    for i, one in enumerate(calls):
        # What it asks for stands in place of the first argument; 0 where that is not known.
        if one.call in SLEEPS and 0 < one.descriptor < _LONGEST_SLEEP_NS:
            sleeps[threads[i], one.call].append((i, one.descriptor / 1e6))
    found = []
    for (thread, name), mine in sleeps.items():
        if thread in serving or len(mine) < _FEWEST or not reading:
            continue
        busy = [ms for i, ms in mine if reading[0] < i < reading[-1]] or [ms for _, ms in mine]
        idle = [ms for i, ms in mine if i > reading[-1]]
        found.append(
            Background(name, _middle(busy), _middle(idle if len(idle) >= _FEWEST else busy))
        )
    return found


def _middle(values: list[float]) -> float:
    """With two digits."""
    return float(f"{sorted(values)[len(values) // 2]:.1e}")


def _often(sizes: Counter[int]) -> tuple[tuple[int, int], ...]:
    """Sizes seen a few times only tell about single requests: of these one, roughly."""
    found = sizes.most_common(64)
    return tuple(one for one in found if one[1] >= _FEWEST) or tuple(
        (round(float(f"{size:.0e}")), _FEWEST) for size, _ in found[:1]
    )


def serving_calls(recordings: Sequence[Recording]) -> set[str]:
    """Calls of threads that serve connections; others work by the clock, not by requests."""
    threads = [mine for one in recordings for mine in threads_of(one.calls)]
    return {f"{one.call}:{one.target}" if one.target else one.call
            for calls in threads if any(map(is_request, calls)) for one in calls
            if one.call}  # fmt: skip


def _waits_in_reads(calls: list[Call]) -> bool:
    """Whether a thread waits for requests in the reads themselves.

    It may wait elsewhere now and then, as for a connection to close: then answers are followed by
    the next request of their connection, with no wait between. A request may take some reads.
    """
    waits = sum(one.call in WAITS for one in calls)
    answered: set[int] = set()
    requests = directly = 0
    for one in calls:
        if one.call in WAITS:
            answered.clear()
        elif is_request(one):
            requests += 1
            directly += one.descriptor in answered
            answered.discard(one.descriptor)
        elif one.target == "connection" and one.call in SENDS:
            answered.add(one.descriptor)
    return waits == 0 or (100 * waits < requests and 4 * directly > requests)


def _reads_on(calls: list[Call]) -> bool:
    """Whether a thread that answers reads from that connection again, and finds more or nothing.

    Nothing is what those find that do not block; an answer that closes the connection does not
    count.
    """
    answered: set[int] = set()
    answers = again = in_vain = 0
    for one in calls:
        if one.call in WAITS:
            answered.clear()
        if one.target != "connection":
            continue
        if one.call in SENDS:
            answers += one.descriptor not in answered
            answered.add(one.descriptor)
        elif one.call in READS and one.descriptor in answered:
            answered.discard(one.descriptor)
            again += one.result > 0
            in_vain += one.result == _EAGAIN
        elif one.call not in READS:  # such as to close it
            answered.discard(one.descriptor)
    return in_vain > 0 and 2 * (again + in_vain) > answers


def _until_the_client_ends(phases: list[list[Call]]) -> tuple[list[list[Call]], list[Call]]:
    """A request, and what is of its connection: its client ended it as soon as it was answered."""
    is_answered = False
    for at, phase in enumerate(phases):
        for i, one in enumerate(phase):
            if one.target != "connection":
                continue
            if one.call in _ENDS:
                return phases, []
            if is_answered and one.call in READS and one.result in _ENDED:
                rest = [c for later in phases[at + 1 :] for c in later]
                return [*phases[:at], *([phase[:i]] if i else [])], [*phase[i:], *rest]
            is_answered |= one.call in SENDS and one.result > 0
    return phases, []


class _Found:
    """What is found while wake-ups are looked through."""

    def __init__(self) -> None:
        self.scripts: Counter[tuple[tuple[Step, ...], ...]] = Counter()
        self.replies: dict[tuple[tuple[Step, ...], ...], Counter[int]] = defaultdict(Counter)
        # What was asked for or sent, of each step of all phases.
        self._sizes: dict[tuple[Step, ...], list[list[int]]] = {}
        self.accepts: Counter[tuple[Step, ...]] = Counter()
        self.closes: Counter[tuple[Step, ...]] = Counter()
        self.timers: Counter[tuple[Step, ...]] = Counter()
        self.wakeups = self.handed_on = 0
        # Of the thread that is being looked through: requests that are not answered yet, by
        # connection, and whose request another descriptor was used for.
        self._open: dict[int, list[list[Call]]] = {}
        self._owner: dict[int, int] = {}

    def add(self, calls: list[Call]) -> None:
        self._open, self._owner = {}, {}
        turn: list[Call] = []
        wait: Call | None = None
        reads_on = _reads_on(calls)
        is_blocking = not reads_on and _waits_in_reads(calls)
        for one in calls:
            if reads_on and one.target == "connection" and one.result == _EAGAIN:
                continue  # found nothing more
            is_wait = one.call in WAITS or one.begins
            if is_wait or ((is_blocking or reads_on) and is_request(one)):
                if wait is not None:
                    self._turn(wait, turn)
                    self.wakeups += wait.result > 0 and (is_blocking or wait.call in WAITS)
                wait, turn = one, [] if is_wait else [one]
            else:
                turn.append(one)
        if is_blocking and wait is not None:  # a thread may serve one request and end
            self._turn(wait, turn)
            self.wakeups += wait.result > 0

    def _owner_of(self, one: Call) -> int | None:
        """The connection whose request a call is for, where that is certain."""
        if one.target == "connection":
            return one.descriptor
        if one.target == "" and one.call in _OF_DESCRIPTOR:
            return self._owner.get(one.descriptor)
        return None

    def _turn(self, wait: Call, calls: list[Call]) -> None:
        """From one wait to the next: the calls of each connection, in phases."""
        timer = next(iter(self.timers), ())
        if wait.result <= 0 and not any(self._owner_of(one) in self._open for one in calls):
            key = tuple(Step(one.call, one.target) for one in calls)
            if key and not wait.begins:
                self.timers[key] += 1
            return
        phases: dict[int, list[list[Call]]] = {}
        current: int | None = None
        if wait.begins:  # another thread's turn is for what it answers, from its begin
            current = next(filter(self._open.__contains__, map(self._owner_of, calls)), None)
            phases |= {current: [[]]} if current is not None else {}
        at = 0
        while at < len(calls):
            one = calls[at]
            if (
                timer
                and tuple(Step(c.call, c.target) for c in calls[at : at + len(timer)]) == timer
            ):
                self.timers[timer] += 1
                at += len(timer)
                current = None
                continue
            if one.call in _ACCEPTS:
                end = at + 1
                while (
                    end < len(calls)
                    and calls[end].call not in _ACCEPTS
                    and not is_request(calls[end])
                ):
                    end += 1
                if one.result >= 0:
                    self.accepts[tuple(Step(c.call, c.target) for c in calls[at:end])] += 1
                at, current = end, None
                continue
            owner = self._owner_of(one)
            if owner is not None and owner != current:
                current = owner
                phases.setdefault(current, []).append([])
            if current is not None:
                phases[current][-1].append(one)
                if one.target == "" and one.call in _OF_DESCRIPTOR | {"socket"}:
                    self._owner[one.result if one.call == "socket" else one.descriptor] = current
                if one.call == "close":
                    self._owner.pop(one.descriptor, None)
            at += 1
        for descriptor, mine in phases.items():
            if mine := [phase for phase in mine if phase]:
                self._connection(descriptor, mine, wait)

    def _connection(self, descriptor: int, phases: list[list[Call]], wait: Call) -> None:
        begun = self._open.pop(descriptor, None)
        if begun is not None and not is_request(phases[0][0]):
            self.handed_on += wait.begins
            waited = [] if wait.begins else [Call(wait.call, "", 0, 0, 0)]
            phases = [*begun, [*waited, *phases[0]], *phases[1:]]
        first = phases[0][0]
        if first.call in READS and first.result <= 0:
            self.closes[tuple(Step(c.call, c.target) for c in phases[0])] += 1
            return
        if not is_request(first):
            return
        phases, ending = _until_the_client_ends(phases)
        if ending:
            self.closes[tuple(Step(c.call, c.target) for c in ending)] += 1
        key = tuple(tuple(Step(c.call, c.target) for c in phase) for phase in phases)
        sent = sum(c.result for phase in phases for c in phase
                   if c.target == "connection" and c.call in SENDS and c.result > 0)  # fmt: skip
        if sent == 0:
            is_closed = any(c.call == "close" and c.target == "connection"
                            for phase in phases for c in phase)  # fmt: skip
            waits = sum(c.call in WAITS for phase in phases for c in phase)
            if not is_closed and waits < _MOST_WAITS:
                self._open[descriptor] = phases
            return
        self.scripts[key] += 1
        self.replies[key][sent] += 1
        flat = tuple(one for phase in key for one in phase)
        sizes = self._sizes.setdefault(flat, [[] for _ in flat])
        if len(sizes[0]) < 10_000:
            for seen, one in zip(sizes, (c for phase in phases for c in phase), strict=True):
                seen.append(one.asked if one.call in READS else max(one.result, 0))

    def merge_phases(self) -> None:
        """Scripts whose phases look like one join those where they are apart.

        The last connection that is read from may be the first that is written to.
        """
        most: dict[tuple[Step, ...], tuple[tuple[Step, ...], ...]] = {}
        for key in self.scripts:
            flat = tuple(one for phase in key for one in phase)
            if len(key) > len(most.get(flat, ())):
                most[flat] = key
        for key in list(self.scripts):
            to = most[tuple(one for phase in key for one in phase)]
            if to != key:
                self.scripts[to] += self.scripts.pop(key)
                self.replies[to] += self.replies.pop(key)

    def sized(self, key: tuple[tuple[Step, ...], ...]) -> tuple[tuple[Step, ...], ...]:
        """With the usual sizes: the median of what was asked or sent."""

        flat = tuple(one for phase in key for one in phase)
        sizes = iter([sorted(seen)[len(seen) // 2] for seen in self._sizes[flat]])
        return tuple(
            tuple(Step(one.call, one.target, next(sizes)) for one in phase) for phase in key
        )


def _usual(seen: Counter[tuple[Step, ...]]) -> Script | None:
    return Script(1.0, (seen.most_common(1)[0][0],)) if seen else None
