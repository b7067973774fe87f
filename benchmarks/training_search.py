"""Searching layouts: candidates a second, here, on two cores, and through a Ray of our own.

    python benchmarks/training_search.py [--gpus 512] [--gpu h100] [--interleave 1,2,4]
        [--trace PATH | --style megatron] [--on serial,local:2,ray] [--json OUT]

The model is GPT-3 175B (96 layers of 12,288, 96 heads, 2,048 tokens, 1,536 sequences a step). Its
parts come from one trace of a small model (the bundled one) or, with `--style`, from models alone;
all of tensor x pipeline x data parallelism x micro-batch (x chunks a rank) that
divide the GPUs and the batch are candidates. Those that do not fit into memory are judged without
a prediction, so both rates are printed; `--memory-gib 100000` has all of them predicted. Wall-clock
time of the whole search, workers and all, and CPU time, which a busy machine does not stretch as
much; the first search of a process (models read, shapes laid) is the one reported. All places must
agree on every row.
"""

from __future__ import annotations

import argparse
import json
import os
import time

from gnomon.datasets import bundled
from gnomon.model.accelerator.gpu import find_gpu
from gnomon.systems.training.prediction.analytic.style import find_style
from gnomon.systems.training.prediction.configuration import Configuration
from gnomon.systems.training.prediction.layout.assemble import assemble
from gnomon.systems.training.prediction.search import Found, Space, search
from gnomon.systems.training.prediction.source import Modelled, Source, factor_of, read_recorded


def main() -> None:
    options = parse()
    gpu = find_gpu(options.gpu)
    model = Configuration(
        layers=96, hidden=12288, heads=96, seq=2048, batch=1, vocab=51200, gpu=options.gpu,
        network=options.network,
    )  # fmt: skip
    space = Space(
        gpus=tuple(options.gpus), global_batch=options.global_batch, node_gpus=gpu.node_gpus,
        interleave=tuple(options.interleave),
    )  # fmt: skip
    source: Source
    if options.style:
        source = Modelled(model, find_style(options.style))
    else:
        source = read_recorded(options.trace or bundled("h200-gpt-l6"))[0]
    measured: dict[str, dict[str, float]] = {}
    reference: Found | None = None
    for place in options.on:
        begin, cpu_begin = time.perf_counter(), cpu_seconds()
        found = search(
            source, model, space, on=place, memory_gib=options.memory_gib, factor=factor_of(source)
        )
        seconds, cpu = time.perf_counter() - begin, cpu_seconds() - cpu_begin
        reference = reference or found
        assert found.rows == reference.rows, f"{place} found other rows"
        judged = found.evaluated + len(found.dropped)
        measured[place] = {
            "seconds": seconds,
            "cpu_seconds": cpu,
            "judged_per_second": judged / seconds,
            "predicted_per_second": found.evaluated / seconds,
        }
        print(
            f"{place:>9}: {judged} candidates, {found.evaluated} predicted, "
            f"{len(found.dropped)} do not fit; {seconds:.2f} s, CPU {cpu:.2f} s: "
            f"{judged / seconds:.0f} candidates/s, {found.evaluated / seconds:.0f} predictions/s"
        )
    assert reference is not None
    show(reference)
    show_samples(source, model)
    if options.json:
        with open(options.json, "w") as out:
            json.dump({"evaluated": reference.evaluated, "places": measured}, out, indent=2)


def cpu_seconds() -> float:
    """Of this process and of the workers that have ended; a Ray's workers are not ours to count."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def show(found: Found) -> None:
    print(f"impossible: {sum(found.impossible.values())}; on the front: {len(found.pareto)}")
    for row in found.rows[:5]:
        c = row.configuration
        print(
            f"  tp={c.tp} pp={c.pp} dp={c.dp} micro-batch={c.batch} chunks={c.interleave}: "
            f"{row.step_ms / 1e3:.2f} s, {row.tokens_s:,.0f} tokens/s, "
            f"{row.memory_bytes / 2**30:.0f} GiB, busy {100 * row.utilisation:.0f} %, "
            f"{row.cost_usd:.2f} USD, {row.energy_j / 3.6e6:.2f} kWh"
        )


def show_samples(source: Source, model: Configuration, samples: int = 2000) -> None:
    """Samples a second of a graph of some 20,000 tasks, every kernel and launch its own."""
    layout = model.changed({"layers": 16, "tp": 8, "pp": 2, "accumulation": 16})
    step = assemble(source.program(layout), source.collectives(model))
    begin = time.process_time()
    drawn = step.sample_step_ms(samples, 1)
    seconds = time.process_time() - begin
    assert len(drawn) == samples
    print(
        f"sampling: {len(step.graph):,} tasks, {len(set(step.spread_group.tolist()))} groups, "
        f"{samples / seconds:,.0f} samples/s of one core"
    )


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gpus", type=numbers, default=[512])
    parser.add_argument("--gpu", default="h100")
    parser.add_argument("--network", default="ib-ndr")
    parser.add_argument("--style", default=None)
    parser.add_argument("--trace", default=None)
    parser.add_argument("--global-batch", type=int, default=1536)
    parser.add_argument("--memory-gib", type=float, default=None)
    parser.add_argument("--interleave", type=numbers, default=[1, 2, 4])
    parser.add_argument("--on", type=lambda text: text.split(","), default=["serial", "local:2"])
    parser.add_argument("--json")
    return parser.parse_args()


def numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


if __name__ == "__main__":
    main()
