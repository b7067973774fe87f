"""A result such as a system gives: a training step, what-ifs, a timeline, hostile names."""

import numpy as np

from gnomon.estimate import Estimate
from gnomon.report import (
    BarChart,
    Bars,
    Figure,
    InputFile,
    Line,
    LineChart,
    Manifest,
    Result,
    ScatterChart,
    TimelineView,
)
from gnomon.table import Dictionary, Table

HOSTILE = [
    "</script><script>window.hacked = 1</script>",
    '<img src=x onerror="window.hacked = 1">',
    "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>>(int, 'a')",
    "{{ 7 * 7 }} ${window.hacked = 1} &amp; \\u003c \u2028",
]
KERNELS = [
    *HOSTILE,
    "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64",
    "flash_fwd_kernel<Flash_fwd_kernel_traits<128, 128, 64, 4>>",
    "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevComm*, unsigned long)",
    "triton_red_fused__to_copy_add_mul_native_layer_norm_backward_12",
    "Memcpy HtoD (Pinned -> Device)",
    "aten::linear",
    "multi_tensor_apply_kernel<AdamFunctor<float, true>>",
]
KINDS = ["compute", "communication", "memory", "host"]


def build_timeline(ranks: int = 4, seed: int = 7) -> TimelineView:
    rng = np.random.default_rng(seed)
    lanes = [f"rank {r} {what}" for r in range(ranks) for what in ("host", "compute", "nccl")]
    columns: dict[str, list[int]] = {
        k: [] for k in ("lane", "kind", "name", "start", "end", "crit")
    }

    def add(lane, kind, name, start, end, crit=False):
        for key, value in zip(columns, (lane, kind, name, start, end, crit)):
            columns[key].append(int(value))

    for rank in range(ranks):
        t = 200_000 + int(rng.integers(0, 40_000))
        for layer in range(48):
            begin = t
            for _ in range(6):
                dur = int(rng.lognormal(10.2, 0.8))
                kind = 2 if rng.random() < 0.1 else 0
                add(3 * rank + 1, kind, rng.integers(0, len(KERNELS)), t, t + dur, rank == 2)
                t += dur + int(rng.integers(300, 4000))
            host = begin - 150_000
            add(3 * rank, 3, 9, max(host, 0), max(host, 0) + 90_000)
            for k in range(4):
                at = max(host, 0) + 5_000 + 20_000 * k
                add(3 * rank, 3, rng.integers(4, len(KERNELS)), at, at + 16_000)
            if layer % 4 == 3:
                add(3 * rank + 2, 1, 6, t - 120_000, t + int(rng.integers(200_000, 420_000)))
    return TimelineView(
        "One step on 4 ranks",
        lanes,
        KINDS,
        KERNELS,
        np.array(columns["lane"]),
        np.array(columns["kind"]),
        np.array(columns["name"]),
        np.array(columns["start"]),
        np.array(columns["end"]),
        np.array(columns["crit"], bool),
    )


def build_tables(seed: int = 7) -> list[Table]:
    rng = np.random.default_rng(seed)
    whatif = Table.from_rows(
        "what_if",
        [
            {"change": "as recorded", "step_ms": Estimate(412.1, 412.1, 412.1), "speedup": 1.0,
             "exposed_comm_ms": 96.4, "energy_kwh": 1.92},
            {"change": "twice the NIC bandwidth", "step_ms": Estimate(355.0, 362.7, 371.9),
             "speedup": 1.136, "exposed_comm_ms": 47.1, "energy_kwh": 1.71},
            {"change": "fuse layer norms", "step_ms": Estimate(398.2, 401.5, 406.0),
             "speedup": 1.026, "exposed_comm_ms": 96.9, "energy_kwh": 1.88},
            {"change": "tensor parallel 8 → 4", "step_ms": Estimate(371.0, 388.4, 417.5),
             "speedup": 1.061, "exposed_comm_ms": 61.0, "energy_kwh": 1.80},
            {"change": "no rank 2 straggler", "step_ms": Estimate(380.4, 383.9, 388.0),
             "speedup": 1.073, "exposed_comm_ms": 68.8, "energy_kwh": 1.79},
        ],
        units={"step_ms": "ms", "exposed_comm_ms": "ms", "energy_kwh": "kWh"},
        descriptions={"speedup": "recorded step over this one"},
        caption="Each row replays the recorded graph with one change; ranges come from `80 %` of "
        "the error seen on held-out kernels.",
    )  # fmt: skip
    rows = 120
    names = [
        KERNELS[i % len(KERNELS)] + (f" #{i}" if i >= len(KERNELS) else "") for i in range(rows)
    ]
    total = np.sort(rng.lognormal(1.0, 1.4, rows))[::-1]
    kernels = Table(
        "kernels",
        {
            "kernel": names,
            "kind": Dictionary(rng.integers(0, 3, rows).astype(np.int8), KINDS),
            "calls": rng.integers(1, 2000, rows),
            "total_ms": total,
            "share": 100 * total / total.sum(),
            "on_critical_path": rng.random(rows) < 0.3,
        },
        units={"total_ms": "ms", "share": "%"},
        caption="All kernels of the step, longest first.",
    )
    return [whatif, kernels]


def build_charts() -> list:
    hours = np.arange(0, 24, 0.25)
    grid = 240 + 90 * np.sin((hours - 8) / 24 * 2 * np.pi) + 15 * np.sin(hours * 1.7)
    rng = np.random.default_rng(3)
    cost = rng.uniform(12, 60, 40)
    return [
        BarChart(
            "Where the step goes",
            ["as recorded", "twice the NIC bandwidth", "fuse layer norms", "tensor parallel 8 → 4",
             "no rank 2 straggler"],
            [
                Bars("compute", [262.0, 262.0, 250.9, 271.0, 262.0]),
                Bars("exposed communication", [96.4, 47.1, 96.9, 61.0, 68.8]),
                Bars("memory", [31.7, 31.6, 31.7, 34.4, 31.1]),
                Bars("host and idle", [22.0, 22.0, 22.0, 22.0, 22.0]),
            ],
            value_label="Time of one step",
            unit="ms",
            caption="Critical path of rank 2, by kind of work.",
        ),
        LineChart(
            "Step time against ranks",
            [
                Line("predicted", [8, 16, 32, 64, 128], [412, 428, 461, 502, 588],
                     [405, 415, 440, 470, 520], [419, 444, 486, 549, 680]),
                Line("measured", [8, 16, 32], [412, 431, 455], dashed=True),
            ],
            "Ranks", "", "Step time", "ms",
        ),
        ScatterChart(
            "Time against carbon",
            cost.tolist(),
            (9000 / cost + rng.uniform(0, 260, 40)).tolist(),
            names=[f"TP{2 ** (i % 4)} PP{1 + i % 3} bs{16 * (1 + i % 5)}" for i in range(40)],
            groups=["spot" if i % 3 else "on demand" for i in range(40)],
            x_label="Carbon of one run", x_unit="kgCO2e",
            y_label="Time to train", y_unit="h",
            better_x="lower", better_y="lower",
            caption="The line joins the choices that no other beats in both.",
        ),
        LineChart(
            "Grid carbon intensity, zone DE",
            [Line("intensity", hours.tolist(), grid.tolist(), (grid * 0.9).tolist(),
                  (grid * 1.12).tolist())],
            "Hour of the day", "h", "Intensity", "gCO2e/kWh",
        ),
        BarChart(
            "Energy by rank",
            [f"rank {i}" for i in range(8)],
            [Bars("GPU", [0.21, 0.22, 0.26, 0.21, 0.2, 0.21, 0.22, 0.21],
                  [0.2, 0.2, 0.24, 0.2, 0.19, 0.2, 0.2, 0.2], [0.23] * 2 + [0.3] + [0.23] * 5)],
            "Energy", "kWh", horizontal=False,
        ),
        BarChart(
            "Wait and service by service",
            ["frontend", "search", "geo", "rate"],
            [Bars("p50", [3.1, 8.2, 1.1, 2.2]), Bars("p99", [9.8, 41.0, 4.4, 12.5])],
            "Latency", "ms", stacked=False,
        ),
    ]  # fmt: skip


def build_sample() -> Result:
    return Result(
        "training",
        "replay",
        "Llama 8B, 8 ranks, step 412: communication is exposed on rank 2",
        question="How long is the step, why, and what if the network were faster?",
        figures=[
            Figure("step_ms", "Step time", 412.1, "ms", better="lower", note="median of 12 steps"),
            Figure("predicted_step_ms", "Replayed step", Estimate(405.2, 411.3, 419.8), "ms",
                   better="lower", note="error against the recording: `0.2 %`"),
            Figure("exposed_comm", "Exposed communication", 23.4, "%", better="lower"),
            Figure("mfu", "Model FLOPs utilisation", 41.7, "%", better="higher"),
            Figure("carbon_g", "Carbon of one step", Estimate(0.51, 0.58, 0.74), "gCO2e",
                   better="lower", note="zone DE, 14:00 to 15:00"),
            Figure("tasks", "Tasks on the graph", 1_284_033),
            Figure("bottleneck", "Bottleneck", "all-reduce of layer 31 on rank 2"),
        ],
        tables=build_tables(),
        charts=build_charts(),
        timelines=[build_timeline()],
        how=[
            "Each rank's trace is read into a graph: host calls launch kernels, streams keep "
            "their order, and collectives join the ranks (**Lumos**, section 3).",
            "The graph is replayed with the recorded durations; `what_if` scales one group of "
            "tasks at a time. The profiler's own time (`1.1 µs` an event) is taken out first.",
        ],
        notes=[
            "3 of 1,284,036 events had no duration and were dropped.",
            "The clocks of rank 5 and rank 0 differed by 41 µs; rank 5 was shifted.",
        ],
        manifest=Manifest(
            "gnomon training replay run/ --what-if network=2x --seed 7",
            {"ranks": 8, "what_if": {"network": 2.0}, "zone": "DE", "strict": False},
            7,
            "0.1.0",
            [
                InputFile(f"rank{i}.json.gz", 18_443_201 + 3571 * i, f"{i}" * 64)
                for i in range(3)
            ],
        ),
    )  # fmt: skip
