"""gnomon training predict, gnomon training search: configurations nobody ran."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from gnomon.cli.output import Output, show
from gnomon.cli.sources import Source
from gnomon.cli.typed import typed_command
from gnomon.errors import InputError
from gnomon.ingest.formats import check_input

if TYPE_CHECKING:
    from gnomon.systems.training.prediction.source import Source as Parts

_Texts = Annotated[list[str] | None, Parameter(negative=())]
_TOP = 20


def predict(
    path: Source | None = None,
    /,
    *,
    set: _Texts = None,
    base: _Texts = None,
    model: _Texts = None,
    gpu: str | None = None,
    network: str | None = None,
    style: str | None = None,
    price: float | None = None,
    zone: str | None = None,
    steps: str | None = None,
    profiler_cost: Path | None = None,
    perfetto: Path | None = None,
    output: Output = Output(),  # noqa: B008
) -> int:
    """Predict the step and the memory of a configuration nobody ran, with a range.

    From a trace: `gnomon training predict run/ --set layers=24 --set hidden=3072`. From nothing
    but sizes: `--model layers=24,hidden=2048,heads=16,seq=2048,batch=4 --gpu a100 --set dp=8`.
    Exits with 3 when the configuration does not fit into the GPU's memory.

    Args:
        path: A trace with shapes, a folder of ranks, a pattern in quotes, or bundled:h200-gpt-l6.
        set: NAME=VALUE: layers, hidden, ffn, heads, kv_heads, seq, batch, accumulation, vocab,
            dp, pp, tp, interleave, gpu, network ... Repeatable, or with commas.
        base: NAME=VALUE: what the trace was recorded with, where the guess is wrong.
        model: NAME=VALUE: the base configuration when there is no trace.
        gpu: The GPU to run on: a100, h100, h200, b200 ...; the trace's unless given.
        network: Between nodes: ib-hdr, ib-ndr, roce-400 ...
        style: Without a trace, how the code runs it: torch, megatron, megatron-2022,
            transformers-fp32; by the layout and the GPU unless given.
        price: USD of one GPU for an hour.
        zone: The grid for grams of carbon: DE, CAISO, PJM ... or g/kWh.
        steps: The steps of the trace to take apart, by the numbers of their marks.
        profiler_cost: What the profiler costs, in place of what comes with gnomon (.toml).
        perfetto: Also write base and predicted timelines side by side (.pftrace or .json).
        output: Where the answer goes.
    """
    from gnomon.series.zones import zone_intensity
    from gnomon.systems.training.prediction.configuration import parse_settings
    from gnomon.systems.training.prediction.predict import predict as ask
    from gnomon.systems.training.prediction.predict_result import to_result, to_script

    check_input(path, "training predict")
    settings = parse_settings(set or ())
    if gpu is not None and path is not None:
        settings.setdefault("gpu", gpu)
    if network is not None:
        settings.setdefault("network", network)
    if price is not None and not 0 <= price < float("inf"):
        raise InputError(f"a price of {price} USD; give zero or more")
    source, files = _parts(
        path, base, model, gpu, style, settings, steps=steps, profiler_cost=profiler_cost
    )
    prediction = ask(source, settings)
    result = to_result(
        prediction, typed_command(), price_usd_h=price,
        carbon=zone_intensity(zone) if zone else None, sources=files,
    )  # fmt: skip
    timelines = {"base": prediction.base_line, "predicted": prediction.line}
    extra = to_script(prediction) if output.json else None
    show(result, output, perfetto=perfetto, timelines=timelines, extra=extra)
    return 0 if prediction.fits else 3


def search(
    path: Source | None = None,
    /,
    *,
    gpus: int | None = None,
    memory: float | None = None,
    set: _Texts = None,
    base: _Texts = None,
    model: _Texts = None,
    gpu: str | None = None,
    network: str | None = None,
    style: str | None = None,
    global_batch: int | None = None,
    micro_batch: Annotated[list[int] | None, Parameter(negative=())] = None,
    interleave: Annotated[list[int] | None, Parameter(negative=())] = None,
    rank_by: str = "step_ms",
    price: float | None = None,
    zone: str | None = None,
    on: str | None = None,
    top: int = _TOP,
    output: Output = Output(),  # noqa: B008
) -> int:
    """Search how to lay a job out over GPUs: tensor x pipeline x data parallel x micro-batch.

    `gnomon training search run/ --gpus 512 --memory 80 --set layers=96,hidden=12288,heads=96`.
    The global batch stays the same over all layouts. Exits with 3 when nothing fits.

    Args:
        path: A trace with shapes, a folder of ranks, a pattern in quotes, or bundled:h200-gpt-l6.
        gpus: How many GPUs there are.
        memory: GiB of each; the GPU's own unless given.
        set: NAME=VALUE: what is trained, where it differs from the trace: layers, hidden ...
        base: NAME=VALUE: what the trace was recorded with, where the guess is wrong.
        model: NAME=VALUE: the configuration when there is no trace.
        gpu: The GPU to run on; the trace's unless given.
        network: Between nodes: ib-hdr, ib-ndr, roce-400 ...
        style: Without a trace, how the code runs it: torch, megatron, megatron-2022,
            transformers-fp32; by the layout and the GPU unless given.
        global_batch: Sequences of a step over all GPUs; the base's for every GPU unless given.
        micro_batch: Sizes of micro-batches to try. Repeatable.
        interleave: Chunks of layers a pipeline rank may hold. Repeatable.
        rank_by: What the best is best at: step_ms, tokens_s, cost_usd, energy_kwh, carbon_g.
        price: USD of one GPU for an hour.
        zone: The grid for grams of carbon: DE, CAISO, PJM ... or g/kWh.
        on: Where to run: serial, local, local:4, ray, ray://host:port; as fits unless given.
        top: How many layouts the tables show besides the Pareto front.
        output: Where the answer goes.
    """
    from gnomon.parallel import RichProgress
    from gnomon.series.zones import zone_intensity
    from gnomon.systems.training.prediction.configuration import parse_settings
    from gnomon.systems.training.prediction.search_result import find_layouts, to_result, to_script

    check_input(path, "training search")
    if gpus is None:
        raise InputError("--gpus: over how many GPUs?")
    settings = parse_settings(set or ())
    if gpu is not None:
        settings.setdefault("gpu", gpu)
    if network is not None:
        settings.setdefault("network", network)
    laid_out = settings | ({"pp": 2, "tp": 2} if gpus > 1 else {})
    source, files = _parts(path, base, model, gpu, style, laid_out, memory_gib=memory)
    found = find_layouts(
        source, settings, gpus, memory_gib=memory, global_batch=global_batch,
        micro_batch=tuple(micro_batch or ()), interleave=tuple(interleave or ()),
        rank_by=rank_by, price_usd_h=price, carbon=zone_intensity(zone) if zone else None,
        on=on, progress=RichProgress("layouts"),
    )  # fmt: skip
    extra = to_script(found) if output.json else None
    show(to_result(found, typed_command(), top=top, sources=files), output, extra=extra)
    return 0 if found.found.rows else 3


def _parts(
    path: Path | None,
    base: list[str] | None,
    model: list[str] | None,
    gpu: str | None,
    style: str | None,
    settings: dict[str, Any],
    *,
    steps: str | None = None,
    profiler_cost: Path | None = None,
    memory_gib: float | None = None,
) -> tuple[Parts, tuple[str, ...]]:
    """Where parts come from: a trace, or models alone."""
    from gnomon.model.accelerator.profiler_cost import load_profiler_cost
    from gnomon.systems.training.prediction.configuration import parse_settings
    from gnomon.systems.training.prediction.source import read_recorded

    if path is not None:
        if model:
            raise InputError("give a trace or --model, not both")
        if style is not None:
            raise InputError("--style is inferred from a trace: give it with --model")
        return read_recorded(
            path,
            parse_settings(base or (), "--base"),
            cost=load_profiler_cost(profiler_cost) if profiler_cost else None,
            steps=steps,
        )
    if not model:
        raise InputError(
            "nothing to predict from",
            hint="give a trace, or --model layers=..,hidden=..,heads=..,seq=..,batch=.. --gpu ..",
        )
    if base:
        raise InputError("--base corrects what is read off a trace: put it into --model")
    base_settings = parse_settings(model, "--model")
    return _modelled(base_settings, gpu, style, settings, memory_gib), ()


def _modelled(
    settings: dict[str, Any],
    gpu: str | None,
    style: str | None,
    changes: dict[str, Any],
    memory_gib: float | None,
) -> Parts:
    from gnomon.systems.training.prediction.analytic.style import find_style
    from gnomon.systems.training.prediction.configuration import Configuration
    from gnomon.systems.training.prediction.source import Modelled, usual_style

    needed = ("layers", "hidden", "heads", "seq", "batch")
    missing = [name for name in needed if name not in settings]
    if missing:
        raise InputError(f"--model needs {', '.join(missing)} too")
    if gpu is not None:
        settings = settings | {"gpu": gpu}
    if not settings.get("gpu"):
        raise InputError("--model needs --gpu: a100, h100, h200, b200 ...")
    base = Configuration(**settings)
    if style is not None:
        return Modelled(base, find_style(style), memory_gib)
    both = settings | changes
    splits = any(both.get(name, 1) > 1 for name in ("tp", "pp", "cp", "experts"))
    return Modelled(base, usual_style(both["gpu"], splits_layers=splits), memory_gib)
