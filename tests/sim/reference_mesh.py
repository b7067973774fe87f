"""The rules of `native/engine/mesh/mesh.hpp`, slow and obvious: every event looks at everything.

Times are constant (the application's averages) and every call is made, so that both simulators
must agree request by request. Not here: retries, time-outs, replicas that come and go.
"""

from __future__ import annotations

import math

from gnomon.graph.application import as_work

MASK = (1 << 64) - 1


def _phases(seed, period, count):
    """The starts of the periods, as the native simulator draws them: xoshiro256++."""

    def splitmix(x):
        x = (x + 0x9E3779B97F4A7C15) & MASK
        z = x
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
        return x, z ^ (z >> 31)

    def rotl(x, k):
        return ((x << k) | (x >> (64 - k))) & MASK

    _, mixed = splitmix(seed)
    x = mixed ^ ((5 * 0xD1B54A32D192ED03 + 0x8CB92BA72F3D8DD7) & MASK)
    s = []
    for _ in range(4):
        x, word = splitmix(x)
        s.append(word)
    for _ in range(count):
        draw = (rotl((s[0] + s[3]) & MASK, 23) + s[0]) & MASK
        t = (s[1] << 17) & MASK
        s[2] ^= s[0]
        s[3] ^= s[1]
        s[1] ^= s[2]
        s[0] ^= s[3]
        s[2] ^= t
        s[3] = rotl(s[3], 45)
        yield draw % period


class Replica:
    def __init__(self, service, phase, pools):
        self.service, self.phase = service, phase
        self.work = []  # [ns left, frame], in order of start
        self.waiting = []  # (-priority, order, frame)
        self.held = 0
        self.free = dict(pools)
        self.pool_waiting = {name: [] for name in pools}
        self.quota_left, self.is_throttled, self.rate, self.throttled = math.inf, False, 1.0, 0
        self.must_stop = False


class Frame:
    def __init__(self, call, request, parent):
        self.call, self.request, self.parent = call, request, parent
        self.stage, self.pending, self.replica, self.waited = 0, 0, None, False


class Reference:
    def __init__(self, app, arrivals, seed=0):
        self.app = app
        self.period, self.tick = round(app.period_ms * 1e6), round(app.tick_ms * 1e6)
        count = sum(s.replicas for s in app.services.values())
        phases = _phases(seed, self.period, count)
        self.replicas, self.of = [], {}
        for name, service in app.services.items():
            mine = [Replica(service, next(phases), service.pools) for _ in range(service.replicas)]
            self.replicas += mine
            self.of[name] = mine
        self.turn = dict.fromkeys(app.services, 0)
        self.delays, self.order, self.now, self.instant = [], 0, 0, []
        self.classes = list(app.classes.values())
        self.arrivals = list(zip(arrivals.time_ns.tolist(), arrivals.request_class.tolist()))
        self.latency = [None] * len(self.arrivals)
        self.live = [0] * len(self.arrivals)
        self.answered = [False] * len(self.arrivals)
        for replica in self.replicas:
            replica.quota_left = self._quota(replica)

    def _quota(self, replica):
        limit = replica.service.cpu_limit
        return math.inf if limit is None else limit * self.period

    def _boundary(self, replica, now):
        return ((now + replica.phase) // self.period + 1) * self.period - replica.phase

    def run(self, until):
        number = 0
        while True:
            while self.instant:
                self._stretch_done(self.instant.pop(0))
            self._share()
            cpu, owner = min(
                ((self._next_cpu(r), i) for i, r in enumerate(self.replicas)),
                default=(math.inf, 0),
            )
            delayed = min(self.delays, default=(math.inf,))
            arrival = self.arrivals[number][0] if number < len(self.arrivals) else math.inf
            then = min(cpu, delayed[0], arrival)
            if then > until:
                break
            self._advance(then)
            if cpu == then:
                self._cpu_event(self.replicas[owner])
            elif delayed[0] == then:
                self.delays.remove(delayed)
                delayed[2](delayed[3])
            else:
                root = self.classes[self.arrivals[number][1]].call
                self._issue(self._frame(root, number, None))
                number += 1
        return self.latency

    def _share(self):
        for replica in self.replicas:
            replica.rate = 1.0
        for name, host in self.app.hosts.items():
            mine = [
                r
                for r in self.replicas
                if r.service.host == name and r.work and not r.is_throttled
            ]
            cores, weights = host.cores, sum(r.service.cpu_request for r in mine)
            for r in sorted(mine, key=lambda r: len(r.work) / r.service.cpu_request):
                given = min(len(r.work), cores * r.service.cpu_request / weights)
                cores, weights = cores - given, weights - r.service.cpu_request
                r.rate = given / len(r.work)

    def _next_cpu(self, replica):
        if not replica.work:
            return math.inf
        boundary = self._boundary(replica, self.now)
        if replica.is_throttled:
            return boundary if self._quota(replica) > 0 else math.inf
        first = self.now + math.ceil(max(min(left for left, _ in replica.work), 0) / replica.rate)
        total = replica.rate * len(replica.work)
        if replica.quota_left == math.inf:
            return first
        empty = self.now + math.ceil(max(replica.quota_left, 0) / total)
        stop = self.now if replica.must_stop else self._tick(replica, empty)
        # A boundary fills the quota: look again there.
        return min(first, stop, boundary)

    def _tick(self, replica, time):
        late = (time + replica.phase) % self.tick if self.tick else 0
        return time + self.tick - late if late else time

    def _advance(self, now):
        for replica in self.replicas:
            boundary = self._boundary(replica, self.now)
            if not replica.is_throttled:
                gained = replica.rate * (now - self.now)
                for item in replica.work:
                    item[0] -= gained
                replica.quota_left -= gained * len(replica.work)
            while now >= boundary:  # several only while it is idle: else an event lies at each
                replica.quota_left = self._quota(replica) + min(replica.quota_left, 0)
                replica.must_stop = False
                boundary += self.period
        self.now = now

    def _cpu_event(self, replica):
        while True:
            done = [item for item in replica.work if item[0] <= 0.5]
            if not done:
                break
            item = min(done, key=lambda item: item[0])
            replica.work.remove(item)
            if not replica.service.blocking:
                self._dispatch(replica)
            self._stretch_done(item[1])
        due = replica.must_stop or self._tick(replica, self.now) == self.now
        if replica.is_throttled and self.now >= replica.until:
            replica.is_throttled, due = False, True
        if replica.work and not replica.is_throttled and replica.quota_left < 0.5 and due:
            replica.until = self._boundary(replica, self.now)
            replica.is_throttled = True
            replica.throttled += 1

    def _later(self, ns, what, frame):
        self.order += 1
        self.delays.append((self.now + int(ns), self.order, what, frame))

    def _frame(self, call, request, parent):
        self.live[request] += 1
        return Frame(call, request, parent)

    def _end(self, frame):
        self.live[frame.request] -= 1
        self._record_if_done(frame.request)

    def _record_if_done(self, request):
        if self.answered[request] and self.latency[request] is None and self.live[request] == 0:
            self.latency[request] = self.now - self.arrivals[request][0]

    def _network(self):
        return as_work(self.app.network_ms).average * 1e6

    def _priority(self, frame):
        return -self.classes[self.arrivals[frame.request][1]].priority

    def _issue(self, frame):
        if frame.parent is not None:
            caller = frame.parent.replica
            callee = frame.call.service
            if callee in caller.free:
                if caller.free[callee] == 0:
                    self.order += 1
                    caller.pool_waiting[callee].append((self._priority(frame), self.order, frame))
                    return
                caller.free[callee] -= 1
        self._send(frame)

    def _send(self, frame):
        self._later(self._network(), self._arrive, frame) if self._network() else self._arrive(
            frame
        )

    def _arrive(self, frame):
        if frame.call.mode == "queue":
            work = self._frame(frame.call, frame.request, "nobody")
            self._give(work)
            self._later(self._network(), self._answer, frame)
        else:
            self._give(frame)

    def _give(self, frame):
        name = frame.call.service
        frame.replica = self.of[name][self.turn[name] % len(self.of[name])]
        self.turn[name] += 1
        overhead = as_work(frame.replica.service.overhead_ms).average
        work = as_work(frame.call.cpu_ms).average + overhead
        frame.stretch = work * 1e6 / (1 + len(frame.call.then))
        self._wait(frame)

    def _wait(self, frame):
        self.order += 1
        frame.replica.waiting.append((self._priority(frame), self.order, frame))
        self._dispatch(frame.replica)

    def _dispatch(self, replica):
        service = replica.service
        while replica.waiting:
            busy = replica.held if service.blocking else len(replica.work)
            if busy >= service.workers:
                return
            item = min(replica.waiting, key=lambda item: item[:2])
            replica.waiting.remove(item)
            replica.held += service.blocking
            self._start(item[2])

    def _start(self, frame):
        if frame.stretch <= 0:
            self.instant.append(frame)
        else:
            if not frame.replica.work:
                frame.replica.must_stop = frame.replica.quota_left < 0.5
            frame.replica.work.append([frame.stretch, frame])

    def _stretch_done(self, frame):
        wait = as_work(frame.call.wait_ms).average * 1e6
        if wait and not frame.waited:
            frame.waited = True
            self._later(wait, self._proceed, frame)
        else:
            self._proceed(frame)

    def _proceed(self, frame):
        if frame.stage == len(frame.call.then):
            self._finish(frame)
            return
        stage = frame.call.then[frame.stage]
        frame.pending = len(stage)
        for below in stage:
            self._issue(self._frame(below, frame.request, frame))

    def _finish(self, frame):
        if frame.replica.service.blocking:
            frame.replica.held -= 1
            self._dispatch(frame.replica)
        if frame.parent == "nobody":
            self._end(frame)
        elif self._network():
            self._later(self._network(), self._answer, frame)
        else:
            self._answer(frame)

    def _answer(self, frame):
        if frame.parent is None:
            self.answered[frame.request] = True
            sla = self.classes[self.arrivals[frame.request][1]].sla
            if sla is None or sla.until == "reply":
                self.latency[frame.request] = self.now - self.arrivals[frame.request][0]
            self._end(frame)
            return
        parent, callee = frame.parent, frame.call.service
        if callee in parent.replica.free:
            parent.replica.free[callee] += 1
            queue = parent.replica.pool_waiting[callee]
            if queue:
                item = min(queue, key=lambda item: item[:2])
                queue.remove(item)
                parent.replica.free[callee] -= 1
                self._send(item[2])
        self._end(frame)
        parent.pending -= 1
        if parent.pending == 0:
            parent.stage += 1
            if parent.replica.service.blocking:
                self._start(parent)
            else:
                self._wait(parent)
