"""The replicas of one service in a lab."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

import msgspec

from gnomon.act.local.cgroup import CpuTime
from gnomon.act.local.reading import Counts, Ints
from gnomon.act.local.replica import Replica
from gnomon.act.local.servers import reload_nginx, start_server, write_nginx_config

if TYPE_CHECKING:
    from gnomon.act.local.lab import Lab


class Sample(msgspec.Struct, frozen=True, eq=False):
    """CPU time and throttling of every service, since the lab began."""

    now_ns: int
    usage_ns: Ints
    periods: Ints
    throttled: Ints


class Tier:
    """The replicas of one service: those that answer, and those that finish what they have.

    Args:
        lab: Whose it is.
        index: Its place among the services.
        name: Of the service.
    """

    def __init__(self, lab: Lab, index: int, name: str) -> None:
        self.index, self.name, self.about = index, name, lab.app.services[name]
        self.is_cell = self.about.server == "cell"
        self.is_store = self.about.server in ("redis", "memcached")
        self.callees = lab.runs.callees(name)
        self.stores = [
            one for one in self.callees if lab.app.services[one].server in ("redis", "memcached")
        ]
        self.replicas: list[Replica] = []
        self.limit: float | None = None
        self._request = 1.0
        self._lab, self._made = lab, 0
        self._draining: list[Replica] = []
        # Of replicas that are gone: counters of a service never fall.
        self._past_time, self._past_counts = CpuTime(), self._no_counts()

    def addresses(self) -> list[str]:
        return [replica.address for replica in self.replicas]

    def add(self, count: int) -> None:
        """Starts replicas; they know nobody yet and nobody knows them."""
        for _ in range(count):
            slug = re.sub(r"[^A-Za-z0-9_-]", "_", self.name)[:40]
            replica = self._lab.new_replica(f"{self.index}-{slug}.{self._made}")
            self._made += 1
            self.replicas.append(replica)
            replica.group.set_limit(self.limit, self._lab.app.period_ms)
            replica.group.set_weight(self._request)
            if self.is_cell:
                config = self._lab.runs.cell_config(self.name)
                seed = self._lab.seed * 1_000_003 + self.index * 1009 + self._made
                replica.start_cell(
                    {**config, "seed": seed, "sample_share": self._lab.sample_share}
                )
            else:
                if self.about.server == "nginx":
                    self._write_nginx(replica)
                start_server(replica, self.about.server, self.about.workers)

    def learn_peers(self, tiers: Iterable[Tier]) -> None:
        """Tells every replica where services that it calls answer."""
        peers = {tier.name: tier.addresses() for tier in tiers}
        for replica in self.replicas:
            if self.is_cell:
                replica.ask("POST", "/peers", peers)
            else:
                self._write_nginx(replica)
                reload_nginx(replica)

    def take_out(self, count: int) -> list[Replica]:
        """The youngest replicas, which from now on belong to nobody's peers."""
        leaving = self.replicas[-count:]
        del self.replicas[-count:]
        return leaving

    def drain(self, leaving: list[Replica]) -> None:
        self._draining += leaving
        for replica in leaving:
            if self.is_cell:
                replica.ask("POST", "/drain")
            else:
                replica.stop()

    def set_limit(self, cores: float | None) -> None:
        self.limit = cores
        for replica in self.replicas:
            replica.group.set_limit(cores, self._lab.app.period_ms)

    def set_request(self, cores: float) -> None:
        self._request = cores
        for replica in self.replicas:
            replica.group.set_weight(cores)

    def cpu_time(self) -> CpuTime:
        """Of all replicas, those that are gone included."""
        self._retire()
        times = [self._past_time, *(one.group.read() for one in self._all())]
        return CpuTime(*(sum(getattr(t, f) for t in times) for f in CpuTime.__struct_fields__))

    def counts(self, now_ns: int) -> Counts:
        """The counters of all replicas, those that are gone included."""
        self._retire()
        found = self._no_counts()
        found.add(self._past_counts)
        if self.is_cell:
            for replica in self._all():
                found.add_page(replica.page, now_ns)
        return found

    def stop(self) -> None:
        for replica in self._all():
            replica.stop()

    def end(self) -> None:
        for replica in self._all():
            replica.end()

    def _all(self) -> list[Replica]:
        return self.replicas + self._draining

    def _no_counts(self) -> Counts:
        return Counts(len(self._lab.app.classes), len(self.stores))

    def _retire(self) -> None:
        for replica in self.replicas:
            if replica.has_ended():
                raise replica.failure()
        for replica in [one for one in self._draining if one.has_ended()]:
            self._draining.remove(replica)
            used = replica.group.read()
            self._past_time = CpuTime(
                *(
                    getattr(self._past_time, f) + getattr(used, f)
                    for f in CpuTime.__struct_fields__
                )
            )
            if self.is_cell:
                last = self._no_counts()
                last.add_page(replica.page, 0)
                last.forget_present()
                self._past_counts.add(last)
            replica.end()

    def _write_nginx(self, replica: Replica) -> None:
        upstreams = {name: self._lab.tiers[name].addresses() for name in self.callees}
        write_nginx_config(replica, self._lab.nodes, self.name, upstreams)
