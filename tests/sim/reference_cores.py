"""The simulator of cores again, slow and obvious: looked at in every nanosecond."""

from __future__ import annotations


class Slow:
    """Policies by what they say in words: who waits is a list, and each rule sorts it its way."""

    def __init__(self, rule, quantum):
        self.rule, self.quantum, self.waiting, self.count = rule, quantum, [], 0

    def add(self, task, now, is_new):
        self.count += 1
        task["order"], task["new"], task["since"] = self.count, is_new, now
        self.waiting.append(task)

    def key(self, task):
        if self.rule == "two-queue":
            return (not task["new"], task["order"])
        if self.rule == "least-attained":
            return (task["attained"], task["order"])
        if self.rule == "shortest-remaining":
            return (max(task["hint"] - task["attained"], 0), task["order"])
        if self.rule == "earliest-deadline":
            return (task["deadline"], task["order"])
        if self.rule == "kind-priority":
            return (task["kind"], task["order"])
        return (task["order"],)

    def pick(self):
        if not self.waiting:
            return None
        task = min(self.waiting, key=self.key)
        self.waiting.remove(task)
        return task

    def worth(self, running, now):
        others = self.waiting
        if self.rule in ("round-robin",):
            return bool(others)
        if self.rule == "two-queue":
            return any(t["new"] for t in others) or (
                bool(others) and now - running["started"] >= 500_000
            )
        if self.rule == "least-attained":
            return any(t["attained"] <= running["attained"] for t in others)
        if self.rule == "kind-priority":
            return any(t["kind"] <= running["kind"] for t in others)
        return False

    def room(self, running, new):
        if self.rule == "least-attained":
            return running["attained"] > new["attained"] + self.quantum
        if self.rule == "shortest-remaining":
            return max(new["hint"] - new["attained"], 0) < max(
                running["hint"] - running["attained"], 0
            )
        if self.rule == "earliest-deadline":
            return new["deadline"] < running["deadline"]
        if self.rule == "kind-priority":
            return new["kind"] < running["kind"]
        return False

    @property
    def cuts(self):
        return self.rule in ("round-robin", "two-queue", "least-attained", "kind-priority")


class Seat:
    """A worker: what it runs, since when, when it stops, and until when it is busy changing over."""

    def __init__(self):
        self.task = self.stop = None
        self.since = self.slice = self.busy_until = 0


class SlowCores:
    def __init__(self, rule, *, quantum, workers, cost, dispatch, late):
        self.policy = Slow(rule, quantum)
        self.quantum, self.cost, self.dispatch, self.late = quantum, cost, dispatch, late
        self.seats = [Seat() for _ in range(workers)]
        self.latency = {}
        self.is_tied = (
            False  # two workers did something at once: who goes first is anybody's choice
        )

    def take(self, seat, now):
        seat.task, seat.stop = self.policy.pick(), None
        if seat.task is not None:
            seat.since = seat.slice = seat.task["started"] = now + self.dispatch

    def look(self, seat, now):
        """One thing that happens at a worker now; False if nothing does."""
        task = seat.task
        if task is None:
            if seat.busy_until == now and seat.busy_until > 0:
                seat.busy_until = 0
                self.take(seat, now)
                return True
            return False
        if now < seat.since:
            return False
        if task["attained"] == task["service"]:
            self.latency[task["number"]] = now - task["arrival"]
            self.take(seat, now)
        elif seat.stop is not None:
            if now < seat.stop:
                return False
            self.policy.add(task, now, False)
            seat.task, seat.busy_until = None, now + self.cost
            if self.cost == 0:
                self.take(seat, now)
        elif self.policy.cuts and now - seat.slice == self.quantum:
            seat.slice = now
            if self.policy.worth(task, now):
                seat.stop = now + self.late
        else:
            return False
        return True

    def arrive(self, task, now):
        self.policy.add(task, now, True)
        for seat in self.seats:
            if seat.task is None and seat.busy_until <= now:
                return self.take(seat, now)
        victim = None
        for seat in self.seats:
            if seat.task is None or seat.stop is not None:
                continue
            if self.policy.room(seat.task, task) and (
                victim is None or self.policy.room(seat.task, victim.task)
            ):
                victim = seat
        if victim is not None:
            victim.stop = max(now, victim.since) + self.late
        return None

    def settle(self, now):
        moved = set()
        while (
            seat := next((i for i, one in enumerate(self.seats) if self.look(one, now)), None)
        ) is not None:
            moved.add(seat)
        self.is_tied |= len(moved) > 1

    def run(self, requests):
        left, now = list(requests), 0
        while len(self.latency) < len(requests):
            self.settle(now)
            while left and left[0]["arrival"] == now:
                self.arrive(left.pop(0), now)
                self.settle(now)
            for seat in self.seats:
                if seat.task is not None and now >= seat.since:
                    seat.task["attained"] += 1
            now += 1
        return [self.latency[i] for i in range(len(requests))]
