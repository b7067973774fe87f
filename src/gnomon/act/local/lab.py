"""An application as real processes of this machine, each replica in its own control group."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from gnomon.act.local import layout
from gnomon.act.local.cgroup import Group, ProcessGroup, root_group
from gnomon.act.local.client import OpenLoop, check_schedule
from gnomon.act.local.leftovers import clean_up_leftovers, new_name
from gnomon.act.local.machine import cpu_times_ns
from gnomon.act.local.reading import Reading, split_block
from gnomon.act.local.replica import Replica
from gnomon.act.local.servers import find_program
from gnomon.act.local.tier import Sample, Tier
from gnomon.errors import ActuationError, InputError
from gnomon.graph.application import Application

#: Foreign processes have a weight of 1 each: a starved lab would measure them, not itself.
_WEIGHT = 64.0
#: The client must not wait for the services that it measures.
_CLIENT_WEIGHT = 64.0


class Lab:
    """A running application.

    Without root, or without a cpu controller that can be written, services run as plain processes:
    `note` says so, limits and weights have no effect, and nothing is ever throttled.

    Args:
        app: What to run. Hosts, `startup_s`, `overhead_ms` and `network_ms` are the simulator's:
            here a start, a system call and the loopback take what they take.
        seed: Of the times that requests draw.
        sample_share: Of requests whose spans are written.
        runs: What its services do; the application's call trees unless given.

    Attributes:
        folder: Configurations, logs, counters and spans; removed at the end.
        note: Why there are no limits; empty where there are.

    >>> from gnomon.graph.application import Call, RequestClass, Service
    >>> classes = {"get": RequestClass(Call("web", cpu_ms=1.0))}
    >>> with Lab(Application("one", {"web": Service(workers=4)}, classes)) as lab:
    ...     load = lab.load(due_ns=[0, 10_000_000], class_index=[0, 0])
    ...     lab.set_limit("web", 0.5)
    ...     load.wait()
    ...     print(load.outcome, lab.read().ok)
    [1 1] [[2]]
    """

    def __init__(
        self, app: Application, *, seed: int = 0, sample_share: float = 0.0,
        runs: layout.Layout | None = None,
    ) -> None:  # fmt: skip
        if not 0 <= sample_share <= 1:
            raise InputError(f"{sample_share:g} is no share of requests", hint="from 0 to 1")
        self.app, self.nodes = app, layout.number_calls(app)
        layout.check_servers(app, self.nodes)
        self.runs: layout.Layout = layout.TreeLayout(app, self.nodes) if runs is None else runs
        for about in app.services.values():
            if about.server != "cell":
                find_program(about.server)
        self.seed, self.sample_share, self.note = seed, sample_share, ""
        self.tiers: dict[str, Tier] = {}
        self._loads: list[OpenLoop] = []
        self._lock = threading.RLock()
        self._is_open = False

    def __enter__(self) -> Lab:
        clean_up_leftovers()
        name = new_name()
        self.folder = Path(tempfile.gettempdir(), name)
        # A process that asks to die with its parent dies with the thread that made it: this one
        # lives as long as the lab, whichever thread adds replicas.
        self._starter = ThreadPoolExecutor(1, "lab-starter")
        self._group: Group = ProcessGroup()
        self._is_open = True
        try:
            self.folder.mkdir(mode=0o700)
            try:
                self._group = root_group().create_child(name)
                self._group.set_weight(_WEIGHT)
            except ActuationError as error:
                self._group, self.note = ProcessGroup(), f"limits are not enforced: {error}"
            self._begin()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _begin(self) -> None:
        self._start_ns, self._start_cpu = time.monotonic_ns(), cpu_times_ns()
        self._start_own_ns = self._own_ns()
        for index, name in enumerate(self.app.services):
            self.tiers[name] = Tier(self, index, name)
        # Limits come last: starting under one takes long, and is not what is measured. A replica
        # that is added later starts under its service's limit, as a pod does.
        for is_cell in (True, False):
            for tier in self.tiers.values():
                if tier.is_cell == is_cell:
                    tier.add(tier.about.replicas)
                    self._announce(tier)
        for tier in self.tiers.values():
            tier.set_limit(tier.about.cpu_limit)
            tier.set_request(tier.about.cpu_request)

    def set_limit(self, service: str, cores: float | None) -> None:
        """Cores of each replica from now on; None: no limit."""
        with self._lock:
            self._tier(service).set_limit(cores)

    def set_request(self, service: str, cores: float) -> None:
        """The weight of each replica under contention from now on."""
        with self._lock:
            self._tier(service).set_request(cores)

    def set_replicas(self, service: str, count: int) -> None:
        """Starts replicas, or drains some: those finish what they have, and no request is lost."""
        if count < 0:
            raise InputError(f"{service} cannot have {count} replicas")
        with self._lock:
            tier = self._tier(service)
            if count > len(tier.replicas):
                tier.add(count - len(tier.replicas))
                self._announce(tier)
            elif count < len(tier.replicas):
                leaving = tier.take_out(len(tier.replicas) - count)
                self._announce(tier)
                tier.drain(leaving)

    def load(
        self,
        due_ns: ArrayLike,
        class_index: ArrayLike,
        *,
        connections: int = 4096,
        grace_s: float = 10.0,
    ) -> OpenLoop:
        """Sends requests at their due times; classes are numbers in the order of the application.

        Where the lab runs something else, numbers are places in its list of first calls.

        Args:
            due_ns: From the start of the load, ascending.
            class_index: The class of each request.
            connections: At most, to each entry service.
            grace_s: After the last due time; what is open then has timed out.
        """
        first = self.runs.first_calls()
        schedule = check_schedule(due_ns, class_index, len(first))
        with self._lock:
            name = f"client-{len(self._loads)}"
            group = self._group.create_child(name)
            group.set_weight(_CLIENT_WEIGHT)
            entries = self._entries()
            config: dict[str, Any] = {
                "callees": [
                    {"service": one, "server": self.tiers[one].about.server, "pool": connections}
                    for one in entries
                ],
                "calls": [{**one.config, "callee": entries.index(one.service)} for one in first],
                "priorities": [one.priority for one in first],
                "grace_ms": grace_s * 1e3,
                "sample_share": self.sample_share,
            }
            targets = {i: self.tiers[one].addresses() for i, one in enumerate(entries)}
            client = Replica(name, self.folder, group, self.start_process)
            load = OpenLoop(client, config, schedule, targets)
            self._loads.append(load)
            return load

    def read(self) -> Reading:
        """All counters now."""
        with self._lock:
            now_ns, classes = time.monotonic_ns(), len(self.app.classes)
            tiers = list(self.tiers.values())
            counts = [tier.counts(now_ns) for tier in tiers]
            times = [tier.cpu_time() for tier in tiers]
            blocks = np.stack([one.blocks[0] for one in counts])
            # Stores count nothing themselves: what their callers saw stands in for it.
            for one, tier in zip(counts, tiers):
                for store, name in enumerate(tier.stores, start=1):
                    blocks[self.tiers[name].index] += one.blocks[store]
            ok, errors, exclusive, total = split_block(blocks.reshape(len(tiers), classes, -1))
            head = np.stack([one.head for one in counts])
            stores = np.array([tier.is_store for tier in tiers])
            busy_ns, steal_ns = cpu_times_ns()
            return Reading(
                now_ns=now_ns,
                elapsed_ns=now_ns - self._start_ns,
                replicas=np.array([len(tier.replicas) for tier in tiers]),
                cpu_limit=np.array([np.inf if t.limit is None else t.limit for t in tiers]),
                usage_ns=np.array([one.usage_ns for one in times]),
                periods=np.array([one.periods for one in times]),
                throttled=np.array([one.throttled for one in times]),
                throttled_ns=np.array([one.throttled_ns for one in times]),
                arrived=np.where(stores, ok.sum(axis=1) + errors.sum(axis=1), head[:, 0]),
                refused=head[:, 1],
                waiting=head[:, 3],
                waiting_ns=head[:, 5],
                pool_waits=head[:, 7],
                pool_wait_ns=head[:, 8],
                ok=ok,
                errors=errors,
                exclusive=exclusive,
                total=total,
                pool=np.stack([one.pool for one in counts]),
                busy_ns=busy_ns - self._start_cpu.busy_ns,
                own_ns=self._own_ns() - self._start_own_ns,
                steal_ns=steal_ns - self._start_cpu.steal_ns,
            )

    def sample_usage(self) -> Sample:
        """CPU time and throttling only: cheap enough for every 100 ms."""
        with self._lock:
            times = [tier.cpu_time() for tier in self.tiers.values()]
            return Sample(
                now_ns=time.monotonic_ns(),
                usage_ns=np.array([one.usage_ns for one in times]),
                periods=np.array([one.periods for one in times]),
                throttled=np.array([one.throttled for one in times]),
            )

    def addresses(self, service: str) -> list[str]:
        """Where the replicas of a service answer: `host:port`."""
        with self._lock:
            return self._tier(service).addresses()

    def span_files(self) -> list[Path]:
        """OTLP/JSON lines of sampled requests, a file a replica; some appear a second late."""
        return sorted(self.folder.glob("*.spans.jsonl"))

    def flush_spans(self) -> None:
        """Has every cell write the spans that it still holds."""
        with self._lock:
            for tier in self.tiers.values():
                for replica in tier.replicas if tier.is_cell else ():
                    replica.ask("POST", "/flush")

    def close(self) -> None:
        """Ends everything and removes the folder; nothing happens the second time."""
        with self._lock:
            if not self._is_open:
                return
            self._is_open = False
            for load in self._loads:
                load.close()
            for tier in self.tiers.values():
                tier.stop()
            for tier in self.tiers.values():
                tier.end()
            self._group.remove()
            self._starter.shutdown()
            shutil.rmtree(self.folder, ignore_errors=True)

    def start_process(self, *args: Any, **options: Any) -> subprocess.Popen[str]:
        """Starts a process from the thread that lives as long as the lab."""
        made: subprocess.Popen[str] = self._starter.submit(
            subprocess.Popen, *args, **options
        ).result()
        return made

    def new_replica(self, name: str) -> Replica:
        """A replica that has not been started, with its group."""
        return Replica(name, self.folder, self._group.create_child(name), self.start_process)

    def _tier(self, service: str) -> Tier:
        if service not in self.tiers:
            raise InputError(f"there is no service {service!r}",
                             hint=f"there are: {', '.join(list(self.tiers)[:20])}")  # fmt: skip
        return self.tiers[service]

    def _announce(self, tier: Tier) -> None:
        """Tells everybody who calls a service where its replicas are."""
        for caller in self.tiers.values():
            if tier.name in caller.callees:
                caller.learn_peers([tier])
        if tier.callees:
            tier.learn_peers([self.tiers[name] for name in tier.callees])
        entries = self._entries()
        if tier.name in entries:
            for load in self._loads:
                load.set_targets(entries.index(tier.name), tier.addresses())

    def _entries(self) -> list[str]:
        """The services that requests enter by."""
        return list(dict.fromkeys(one.service for one in self.runs.first_calls()))

    def _own_ns(self) -> int:
        if self.note:
            used = sum(tier.cpu_time().usage_ns for tier in self.tiers.values())
            used += sum(load.cpu_time().usage_ns for load in self._loads)
        else:
            used = self._group.read().usage_ns
        return used + time.process_time_ns()
