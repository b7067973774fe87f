"""Answers of `decisions`: a log explained, or replayed under another manager."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from gnomon.decide.services import read_log, replay_log, service_policies
from gnomon.decide.services.log import Log, LogHead, LogRow
from gnomon.errors import InputError
from gnomon.graph.application import Application
from gnomon.report import Figure, Manifest, Result
from gnomon.table import Table


def explain(path: str | os.PathLike[str], *, top: int, command: str = "") -> Result:
    """What was decided and why, the largest changes first."""
    log = _read(path, top)
    found = log.decisions
    head = found[-1][0]
    verdicts = Counter(row.verdict for _, row in found)
    changed = [(own, row, _change(row)) for own, row in found]
    rows = [
        _row(own, row, cores)
        for own, row, cores in sorted(changed, key=lambda item: -abs(item[2]))[:top]
    ]
    figures = [
        Figure("decisions", "Decisions", len(found)),
        Figure("changes", "That changed something", sum(_changes(row) for _, row in found)),
        Figure("held", "Held", verdicts["held"]),
        Figure("capped", "At cap", verdicts["capped"]),
        Figure("trust", "Trust at the end", found[-1][1].trust),
    ]
    held = Counter(row.reason for _, row in found if row.verdict != "decided")
    notes = [f"{count} times: {reason}" for reason, count in held.most_common(10)] + _torn(log)
    return Result(
        "services", "decisions", f"{head.manager}: {len(found)} decisions",
        "What did the manager decide, and why?", figures=figures,
        tables=[Table.from_rows("decisions", rows, units={"cores": "cores", "time_s": "s"})],
        notes=notes, manifest=Manifest.of(command, [path]),
    )  # fmt: skip


def replay(
    path: str | os.PathLike[str], app: Application, manager: str | None, *, top: int,
    command: str = "", sources: Sequence[str] = (),
) -> Result:  # fmt: skip
    """What a manager would have decided on the windows of a log, beside what was decided."""
    log = _read(path, top)
    heads = [head for head, _ in log]
    name = manager or heads[-1].manager
    pairs = replay_log(path, app, service_policies.create(name))
    rows: list[dict[str, Any]] = []
    same = 0
    for then, now in pairs:
        recorded, replayed = _total(then), _cores(now.window, now.allocation)
        limits = [math.nan if one is None else one for one in then.cpu_limit]
        is_same = np.array_equal(limits, now.allocation.cpu_limit, equal_nan=True)
        same += is_same and then.replicas == now.allocation.replicas.tolist()
        rows.append({"time_s": now.window.now_s, "recorded_cores": recorded,
                     "replayed_cores": replayed, "recorded": then.reason or then.verdict,
                     "replayed": now.reason or now.verdict})  # fmt: skip
    apart = sorted(rows, key=lambda row: -abs(row["replayed_cores"] - row["recorded_cores"]))
    return Result(
        "services", "decisions", f"{name} on {len(rows)} recorded windows",
        "What would this manager have decided?",
        figures=[
            Figure("same_pct", "The same decision", 100.0 * same / len(rows), "%"),
            Figure("recorded_cores", "CPU asked for, recorded",
                   float(np.mean([row["recorded_cores"] for row in rows])), "cores"),
            Figure("replayed_cores", "CPU asked for, replayed",
                   float(np.mean([row["replayed_cores"] for row in rows])), "cores"),
        ],
        tables=[Table.from_rows("decisions", apart[:top], units={
            "time_s": "s", "recorded_cores": "cores", "replayed_cores": "cores"})],
        notes=_torn(log) + ([] if name == heads[-1].manager else
        ["What its decisions would have changed is not in the recorded windows."]),
        manifest=Manifest.of(command, [path, *sources]),
    )  # fmt: skip


def _read(path: str | os.PathLike[str], top: int) -> Log:
    if top < 1:
        raise InputError(f"--top {top}: one decision at least")
    log = read_log(path)
    if not log.decisions:
        raise InputError("holds no decision", where=os.fspath(path))
    return log


def _torn(log: Log) -> list[str]:
    return [f"Lines that a crash cut off, left out: {log.torn}."] if log.torn else []


def _changes(row: LogRow) -> bool:
    now = row.window["cpu_limit"]
    limits = any(a is not None and a != b for a, b in zip(row.cpu_limit, now))
    return limits or any(a >= 0 and a != b for a, b in zip(row.replicas, row.window["replicas"]))


def _change(row: LogRow) -> float:
    """Cores more than before."""
    before = after = 0.0
    for limit, count, old, many in zip(
        row.cpu_limit, row.replicas, row.window["cpu_limit"], row.window["replicas"]
    ):
        if old is None or old > 1e300:
            continue
        before += old * many
        after += (old if limit is None else limit) * (many if count < 0 else count)
    return after - before


def _row(head: LogHead, row: LogRow, cores: float) -> dict[str, Any]:
    changed = [
        name
        for name, limit, count, old, many in zip(
            head.services, row.cpu_limit, row.replicas, row.window["cpu_limit"],
            row.window["replicas"],
        )
        if (limit is not None and limit != old) or (count >= 0 and count != many)
    ]  # fmt: skip
    more = f" and {len(changed) - 4} more" if changed[4:] else ""
    return {
        "time_s": row.window["now_s"], "verdict": row.verdict, "cores": cores,
        "services": ", ".join(changed[:4]) + more,
        "why": row.reason,
    }  # fmt: skip


def _total(row: LogRow) -> float:
    limits = [
        old if new is None else new for new, old in zip(row.cpu_limit, row.window["cpu_limit"])
    ]
    counts = [old if new < 0 else new for new, old in zip(row.replicas, row.window["replicas"])]
    return sum(a * b for a, b in zip(limits, counts) if a is not None and a < 1e300)


def _cores(window: Any, allocation: Any) -> float:
    limit = np.where(np.isnan(allocation.cpu_limit), window.cpu_limit, allocation.cpu_limit)
    count = np.where(allocation.replicas < 0, window.replicas, allocation.replicas)
    total = limit * count
    return float(total[np.isfinite(total)].sum())
