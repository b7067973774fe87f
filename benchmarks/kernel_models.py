"""Fits the models of kernels and collectives on measured tables, and says how far off they are.

    python benchmarks/kernel_models.py             # fit on four fifths, report the fifth held out
    python benchmarks/kernel_models.py --write     # fit on everything, write the shipped .toml files

Needs the data folder (GNOMON_DATA) and pyarrow. The fifth is drawn by shape, so no shape is on both
sides; of tables up to 2,000 rows each fifth is held out in its turn. Errors are
|model / measured - 1|: median and 90th percentile over the rows held out. What the models are made
of was chosen with these errors in sight; only the coefficients are blind to them. Attention of
"recorded steps" was fitted with those rows in.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np
from kernel_fit import (
    Moved,
    fit_attention,
    fit_collective,
    fit_gemm,
    fit_lone_gemm,
    fit_memory,
    fit_own_attention,
    predict_attention,
    predict_collective,
    predict_gemm,
    predict_memory,
    trains,
)
from kernel_tables import (
    ATTENTION_TABLES,
    GEMM_TABLES,
    NCCL_KINDS,
    NCCL_TABLES,
    NEUSIGHT_GPUS,
    Array,
    Table,
    collective_table,
    in_steps,
    memory_table,
    neusight_labels,
    neusight_memory,
    own_memory,
    read_attention,
    read_gemm,
    read_gloo,
    read_lookup,
    read_nccl,
    read_neusight_gemms,
    read_own_attention,
    read_own_gemms,
)

from gnomon.model.accelerator.collective_time import CollectiveModel
from gnomon.model.accelerator.gpu import find_gpu
from gnomon.model.accelerator.kernel_time import AttentionModel, GemmModel, MemoryModel

MODEL = Path(__file__).resolve().parents[1] / "src" / "gnomon" / "model" / "accelerator"

AIC = "aiconfigurator 095f58a"
NEUSIGHT = "NeuSight 6945927"
VTRAIN = "vTrain f8dda84"
OWN = "kernels.csv, measured on an H200 between events"
#: Links whose all-reduces vTrain measured too, and its name for the GPU.
LOOKUP_TABLES = {"nvlink3": "a100", "nvlink2": "v100"}
GEMM_DTYPES = {"bfloat16": "bf16", "fp8": "fp8"}


#: Rows beyond which one fifth held out says enough.
LARGE_TABLE = 2000


class Score(NamedTuple):
    what: str
    rows: int
    median: float
    p90: float

    def __str__(self) -> str:
        return (
            f"{self.what:52s} {self.rows:6d}  {100 * self.median:5.1f} % {100 * self.p90:6.1f} %"
        )


def score(what: str, model_us: Array, measured_us: Array) -> Score:
    off = np.abs(model_us / measured_us - 1.0)
    return Score(what, len(off), float(np.median(off)), float(np.quantile(off, 0.9)))


def central_spread(model_us: Array, measured_us: Array) -> float:
    """Half the width of the central 68 % of log errors, bias included: a few wild ones aside."""
    off = np.abs(np.log(model_us / measured_us))
    return float(np.quantile(off, 0.68))


# Everything together.


class Case(NamedTuple):
    """One model with the table it is fitted on."""

    what: str
    table: Table
    fit: Callable[[Table], msgspec.Struct]
    predict: Callable[[msgspec.Struct, Table], Array]
    #: Rows that count for the spread: those a step of training has.
    usual: Callable[[Table], Array] = lambda table: np.ones(len(table.time_us), bool)
    usual_is: str = ""


def judge(case: Case, seed: int) -> tuple[Table, Array]:
    """Rows held out, and what models say that were fitted without them.

    One fifth of a large table; of a small one, each fifth in its turn.
    """
    fifths = case.table.fifths(seed)
    turns = range(1 if len(fifths) > LARGE_TABLE else 5)
    predicted = np.full(len(fifths), np.nan)
    for turn in turns:
        out = fifths == turn
        if out.any():
            model = case.fit(case.table.part(~out))
            predicted[out] = case.predict(model, case.table.part(out))
    kept = ~np.isnan(predicted)
    return case.table.part(kept), predicted[kept]


def scores_of(case: Case, test: Table, predicted: Array) -> list[Score]:
    usual = case.usual(test)
    scores = [score(case.what, predicted, test.time_us)]
    if usual.any() and not usual.all():
        scores.append(
            score(f"{case.what}, {case.usual_is}", predicted[usual], test.time_us[usual])
        )
    return scores


def gemm_cases() -> Iterator[Case]:
    for gpu, folder in GEMM_TABLES.items():
        for raw, dtype in GEMM_DTYPES.items():
            table = read_gemm(gpu, raw)
            if len(table.time_us):
                yield gemm_case(gpu, dtype, table, f"{AIC}, {folder}", lone=False)
    for device, gpu in NEUSIGHT_GPUS.items():
        table = read_neusight_gemms(device)
        yield gemm_case(gpu, "fp32", table, f"{NEUSIGHT}, linear and bmm", lone=True)


def gemm_case(gpu: str, dtype: str, table: Table, source: str, *, lone: bool) -> Case:
    def predict(model: GemmModel, rows: Table) -> Array:
        device_us = predict_gemm(model, gpu, dtype, rows)
        return model.isolated(device_us) if lone else device_us

    return Case(
        f"GEMM {gpu} {dtype}", table,
        lambda rows: fit_gemm(gpu, dtype, rows, source, lone=lone), predict, trains, "sizes of training",
    )  # fmt: skip


def attention_cases(steps: Mapping[bool, Table]) -> Iterator[Case]:
    for gpu, folder in ATTENTION_TABLES.items():
        yield Case(
            f"attention {gpu} bf16 forward", read_attention(gpu),
            lambda rows, gpu=gpu, folder=folder: fit_attention(gpu, rows, f"{AIC}, {folder}"),
            lambda model, rows, gpu=gpu: predict_attention(model, gpu, rows),
        )  # fmt: skip
    for way in (False, True):
        yield Case(
            f"attention H200 bf16 {'backward' if way else 'forward'}, lone calls",
            read_own_attention(way),
            lambda rows, way=way: fit_own_attention(way, rows, steps[way], f"{OWN}, and steps"),
            lambda model, rows: model.isolated(predict_attention(model, "H200", rows)),
            # Below some 100 us a lone call shows the host, not the kernel.
            lambda rows, way=way: rows.time_us > (250.0 if way else 80.0),
            "longer than the host needs",
        )


def memory_cases(steps: Mapping[str, Table]) -> Iterator[Case]:
    own = own_memory()
    for kind in sorted(set(own) | set(steps)):
        parts = [(table, True) for table in own.get(kind, {}).values()]
        parts += [(steps[kind], False)] if kind in steps and kind != "softmax" else []
        yield memory_case("H200", kind, parts, "kernels.csv and recorded steps, H200")
    labels = neusight_labels("H100")
    for kind, table in labels.items():
        yield memory_case("H100", kind, [(table, True)], f"{NEUSIGHT}, labels")
    for device, gpu in NEUSIGHT_GPUS.items():
        for op, kind in (("ln", "normalisation"), ("softmax", "softmax")):
            table = neusight_memory(op, device)
            if len(table.time_us):
                yield memory_case(gpu, kind, [(table, True)], f"{NEUSIGHT}, {op}")


def memory_case(gpu: str, kind: str, parts: list[tuple[Table, bool]], source: str) -> Case:
    """Lone calls and kernels of steps in one table; a column remembers which is which."""
    joined = memory_table(
        *(np.concatenate([table.sizes[c] for table, _ in parts]) for c in ("bytes", "rows")),
        np.concatenate([table.time_us for table, _ in parts]),
    )
    lone = np.concatenate([np.full(len(table.time_us), alone) for table, alone in parts])
    joined = Table({**joined.sizes, "lone": lone.astype(float)}, joined.time_us)

    def split(rows: Table) -> Moved:
        return Moved(rows, rows.sizes["lone"] > 0.0)

    return Case(
        f"{kind} {gpu}", joined, lambda rows: fit_memory(gpu, kind, split(rows), source),
        lambda model, rows: predict_memory(model, gpu, split(rows)),
        lambda rows: rows.time_us > 20.0, "above 20 us",
    )  # fmt: skip


def collective_cases() -> Iterator[Case]:
    for link, folders in NCCL_TABLES.items():
        tables = [read_nccl(folder) for folder in folders]
        for kind in NCCL_KINDS.values():
            parts = [table[kind] for table in tables]
            source = f"{AIC}, {' and '.join(folders)}"
            if kind == "all-reduce" and link in LOOKUP_TABLES:
                parts.append(read_lookup(LOOKUP_TABLES[link]))
                source += f"; {VTRAIN}, trace/{LOOKUP_TABLES[link]}"
            yield collective_case(link, kind, parts, source)
    yield collective_case("nvlink2", "all-reduce", [read_lookup("v100")], f"{VTRAIN}, trace/v100")
    yield collective_case("gloo-loopback", "*", [read_gloo()], "ranks/dp2-pp2, all-reduces")


def collective_case(link: str, kind: str, parts: Sequence[Table], source: str) -> Case:
    joined = collective_table(
        *(np.concatenate([p.sizes[c] for p in parts]) for c in ("bytes", "ranks")),
        np.concatenate([p.time_us for p in parts]),
    )
    run = "all-reduce" if kind == "*" else kind
    return Case(
        f"{kind} {link}", joined,
        lambda rows: msgspec.structs.replace(fit_collective(link, run, rows, source), kind=kind),
        lambda model, rows: predict_collective(model, run, rows),
        lambda rows: rows.sizes["bytes"] >= 1e6, "1 MB and more",
    )  # fmt: skip


# For GPUs and links without a table.


def typical(models: Sequence[msgspec.Struct], **changes: object) -> msgspec.Struct:
    """The median of each coefficient, for those that have none of their own."""
    middle = {}
    for name in models[0].__struct_fields__:
        values = [getattr(m, name) for m in models]
        if isinstance(values[0], tuple):
            middle[name] = tuple(np.median(np.array(values), axis=0).tolist())
        elif isinstance(values[0], float):
            middle[name] = float(np.median(values))
    return msgspec.structs.replace(models[0], **(middle | {"gpu": "*"} | changes))


def strangers_spread(
    models: Mapping[str, msgspec.Struct], cases: Mapping[str, Case]
) -> tuple[float, list[Score]]:
    """How far off the others' median is on each GPU's table: the error where there is no table."""
    spreads, scores = [], []
    for name, case in cases.items():
        others = [m for key, m in models.items() if key != name]
        borrowed = typical(others)
        usual = case.usual(case.table)
        predicted = case.predict(borrowed, case.table.part(usual))
        measured = case.table.time_us[usual]
        scores.append(score(f"{case.what} from the others", predicted, measured))
        spreads.append(central_spread(predicted, measured))
    return float(np.sqrt(np.mean(np.square(spreads)))), scores


def design(gpu: str) -> str:
    """The GPU under whose name measurements of this one are kept: shares of peaks carry over."""
    return find_gpu(gpu).like or gpu


class Fitted(NamedTuple):
    """A case with the model of all its rows, the errors on rows held out, and their spread."""

    case: Case
    model: msgspec.Struct
    scores: list[Score]


def fit_case(case: Case, seed: int) -> Fitted:
    test, predicted = judge(case, seed)
    usual = case.usual(test)
    spread = central_spread(predicted[usual], test.time_us[usual])
    least = LEAST_SPREAD if usual.sum() >= ENOUGH_ROWS else THIN_SPREAD
    model = msgspec.structs.replace(case.fit(case.table), spread=max(spread, least))
    return Fitted(case, model, scores_of(case, test, predicted))


#: No model of ours is surer than the clock of a GPU from one day to the next; one of few rows is
#: less sure than they make it look, and one of other GPUs' rows even less.
LEAST_SPREAD, THIN_SPREAD, BORROWED_SPREAD = 0.04, 0.1, 0.15
ENOUGH_ROWS = 20


def fit_gemms(steps: Table, seed: int) -> tuple[list[Score], list[msgspec.Struct]]:
    """GEMMs of every table, what stands in elsewhere, and lone calls on an H200."""
    scores: list[Score] = []
    models: dict[str, dict[str, msgspec.Struct]] = defaultdict(dict)
    cases: dict[str, dict[str, Case]] = defaultdict(dict)
    for case in gemm_cases():
        fitted = fit_case(case, seed)
        scores += fitted.scores
        name = design(fitted.model.gpu)
        models[fitted.model.dtype][name] = msgspec.structs.replace(fitted.model, gpu=name)
        cases[fitted.model.dtype][name] = case
    hopper = models["bf16"]["H200"]
    lone = read_own_gemms()
    scores += [
        score(f"{op} H200, lone calls", predicted, test.time_us)
        for op, test, predicted in judge_lone_gemms(hopper, lone, seed)
    ]
    models["bf16"]["H200"] = hopper = fit_lone_gemm(hopper, list(lone.values()))
    predicted = predict_gemm(hopper, "H200", "bf16", steps)
    scores.append(score("GEMM H200 bf16, kernels of recorded steps", predicted, steps.time_us))
    defaults = []
    for dtype, by_gpu in models.items():
        spread, borrowed = strangers_spread(by_gpu, cases[dtype])
        scores += borrowed
        source = "median of the GPUs with a table"
        defaults.append(typical(list(by_gpu.values()), spread=spread, hot=0.0, source=source))
    # Other types run on the same units as bf16.
    tensor = next(m for m in defaults if m.dtype == "bf16")
    defaults.append(msgspec.structs.replace(tensor, dtype="*"))
    return scores, [m for by_gpu in models.values() for m in by_gpu.values()] + defaults


def judge_lone_gemms(
    model: GemmModel, tables: Mapping[str, Table], seed: int
) -> Iterator[tuple[str, Table, Array]]:
    """Each fifth of kernels.csv in its turn; the device's times come from another table."""
    fifths = {op: table.fifths(seed) for op, table in tables.items()}
    predicted = {op: np.zeros(len(table.time_us)) for op, table in tables.items()}
    for turn in range(5):
        seen = [table.part(fifths[op] != turn) for op, table in tables.items()]
        fitted = fit_lone_gemm(model, seen)
        for op, table in tables.items():
            out = fifths[op] == turn
            device_us = predict_gemm(fitted, "H200", "bf16", table.part(out))
            predicted[op][out] = fitted.isolated(device_us)
    for op, table in tables.items():
        yield op, table, predicted[op]


def fit_attentions(
    steps: Mapping[bool, Table], seed: int
) -> tuple[list[Score], list[AttentionModel]]:
    scores: list[Score] = []
    ways: dict[bool, dict[str, AttentionModel]] = {False: {}, True: {}}
    for case in attention_cases(steps):
        fitted = fit_case(case, seed)
        scores += fitted.scores
        ways[fitted.model.backward][fitted.model.gpu] = fitted.model
    own, back = ways[False]["H200"], ways[True]["H200"]
    # The table of an H100 is of loops at full clock too, and steps run at the same lower one.
    ways[False]["H100"] = msgspec.structs.replace(
        ways[False]["H100"], rate=ways[False]["H100"].rate * (1.0 + own.hot), hot=own.hot,
        source=ways[False]["H100"].source + "; clock of steps as on an H200",
    )  # fmt: skip
    for gpu in ATTENTION_TABLES:
        ways[True][gpu] = msgspec.structs.replace(
            back, gpu=gpu, rate=back.rate * full_rate(ways[False][gpu]) / full_rate(own),
            spread=float(np.hypot(back.spread, 0.15)),
            source="its forward table, times backward / forward of an H200", derived=True,
        )  # fmt: skip
    for way, models in ways.items():
        predicted = predict_attention(models["H200"], "H200", steps[way])
        scores.append(
            score(
                f"attention H200 {'backward' if way else 'forward'}, recorded steps",
                predicted, steps[way].time_us,
            )
        )  # fmt: skip
        ways[way]["*"] = typical(
            list(models.values()), dtype="*", spread=0.3, hot=0.0, derived=False,
            source="median of the GPUs with a table",
        )  # fmt: skip
    return scores, [model for models in ways.values() for model in models.values()]


def full_rate(model: AttentionModel, width: float = 128.0) -> float:
    """Share of the peak that long attention of this width of head reaches."""
    return model.rate * width / (width + model.fixed_dim)


def fit_memories(steps: Mapping[str, Table], seed: int) -> tuple[list[Score], list[MemoryModel]]:
    scores: list[Score] = []
    kinds: dict[str, list[Fitted]] = defaultdict(list)
    for case in memory_cases(steps):
        fitted = fit_case(case, seed)
        scores += memory_scores(fitted, seed)
        model = msgspec.structs.replace(fitted.model, gpu=design(fitted.model.gpu))
        kinds[model.kind].append(fitted._replace(model=model))
    models = [fitted.model for found in kinds.values() for fitted in found]
    for found in kinds.values():
        own = [f.model for f in found]
        if len(own) > 1:
            by_gpu = {m.gpu: m for m in own}
            spread, borrowed = strangers_spread(by_gpu, {f.model.gpu: f.case for f in found})
            scores += borrowed
        else:
            spread = 1.5 * own[0].spread
        # What a lone call adds is the host's and differs from machine to machine.
        models.append(
            typical(
                own,
                spread=max(spread, BORROWED_SPREAD),
                hot=0.0,
                source="median of the GPUs with a table",
            )
        )
    return scores, models


def memory_scores(fitted: Fitted, seed: int) -> list[Score]:
    """Lone calls and kernels of steps apart, where both were fitted."""
    test, predicted = judge(fitted.case, seed)
    lone = test.sizes["lone"] > 0.0
    return [
        score(f"{fitted.case.what}, {what}", predicted[keep], test.time_us[keep])
        for what, keep in (("lone calls", lone), ("recorded steps", ~lone))
        if keep.any()
    ]


def fit_collectives(seed: int) -> tuple[list[Score], list[CollectiveModel]]:
    scores, models = [], []
    for case in collective_cases():
        fitted = fit_case(case, seed)
        scores += fitted.scores
        model = fitted.model
        # The table is of one host, and PCIe is a different tree in every one.
        if model.link.startswith("pcie"):
            model = msgspec.structs.replace(model, spread=max(model.spread, ONE_HOST_SPREAD))
        models.append(model)
    return scores, [*models, *ASSUMED_LINKS]


def assumed(
    link: str, gb_s: float, floor_us: float, spread: float, source: str
) -> CollectiveModel:
    return CollectiveModel(
        link=link, kind="*", floor_us=floor_us, step_us=1.5, ranks=(2,), gb_s=(gb_s,),
        spread=spread, source=f"assumed: {source}",
    )  # fmt: skip


ASSUMED_LINKS = (
    assumed("nvlink2", 110.0, 10.0, 0.3, "about three quarters of six links of 25 GB/s"),
    assumed("pcie3", 9.0, 8.0, 0.5, "as two L40S reach over PCIe 4, halved"),
    assumed("pcie5", 38.0, 8.0, 0.5, "as two L40S reach over PCIe 4, doubled"),
    assumed("infinity-fabric2", 100.0, 10.0, 0.4, "about two thirds of the data sheet"),
    assumed("infinity-fabric3", 300.0, 10.0, 0.4, "about two thirds of the data sheet"),
)
ONE_HOST_SPREAD = 0.5
#: Nothing public says what collectives reach between nodes, GPU by GPU.
NETWORK = {
    "efficiency": 0.8,
    "floor_us": 12.0,
    "spread": 0.2,
    "source": "assumed: four fifths of the line rate, as large NCCL messages usually reach",
}


# Monotone: a search over layouts must not be led by noise.


def count_decreases(models: Sequence[GemmModel], tries: int = 4000) -> int:
    """Random GEMMs that would take less time with one size larger."""
    rng = np.random.default_rng(0)
    sizes = np.exp(rng.uniform(0.0, np.log(65536.0), (3, tries))).round()
    batch = np.ones(tries)
    wrong = 0
    for model in models:
        machine = find_gpu("H200" if model.gpu == "*" else model.gpu)
        dtype = "tf32" if model.dtype == "*" else model.dtype
        before = model.device_us(machine, dtype, *sizes, batch)
        for which in range(3):
            grown = sizes.copy()
            grown[which] += rng.integers(1, 4096, tries)
            after = model.device_us(machine, dtype, *grown, batch)
            wrong += int((after < before * (1.0 - 1e-12)).sum())
    return wrong


# Writing.


def toml(name: str, models: Sequence[msgspec.Struct]) -> str:
    lines = []
    for model in models:
        lines.append(f"\n[[{name}]]")
        for field, value in msgspec.structs.asdict(model).items():
            lines.append(f"{field} = {toml_value(value)}")
    return "\n".join(lines) + "\n"


def toml_value(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return json.dumps(value)
    if isinstance(value, tuple | list):
        return f"[{', '.join(toml_value(v) for v in value)}]"
    return repr(float(f"{value:.4g}")) if isinstance(value, float) else repr(value)


NOTE = """# Written by benchmarks/kernel_models.py --write, which says what each coefficient was fitted on
# and how far off it is. Names are explained in {module}.
"""


def write(name: str, text: str) -> None:
    path = MODEL / f"{name}.toml"
    path.write_text(NOTE.format(module=f"{name}.py") + text, encoding="utf-8")
    print(f"wrote {path}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help="write the shipped .toml files")
    parser.add_argument("--seed", type=int, default=0, help="draws another fifth")
    arguments = parser.parse_args()
    gemms, attentions, memories = in_steps()
    print(f"{'held out':52s}   rows   median      p90")
    gemm_scores, gemm_models = fit_gemms(gemms, arguments.seed)
    print(*gemm_scores, sep="\n")
    print(f"GEMMs that a larger size would shorten: {count_decreases(gemm_models)}")
    attention_scores, attention_models = fit_attentions(attentions, arguments.seed)
    print(*attention_scores, sep="\n")
    memory_scores_, memory_models = fit_memories(memories, arguments.seed)
    print(*memory_scores_, sep="\n")
    collective_scores, collective_models = fit_collectives(arguments.seed)
    print(*collective_scores, sep="\n")
    if arguments.write:
        write(
            "kernel_time",
            toml("gemm", gemm_models)
            + toml("attention", attention_models)
            + toml("memory", memory_models),
        )
        network = "\n".join(f"{k} = {toml_value(v)}" for k, v in NETWORK.items())
        write(
            "collective_time", toml("collective", collective_models) + f"\n[network]\n{network}\n"
        )


if __name__ == "__main__":
    main()
