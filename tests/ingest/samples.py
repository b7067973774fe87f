"""A small whole file of every format that gnomon reads; tests of formats and the fuzz share them."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from gnomon.graph import WorkGraph
from gnomon.sim import replay
from tests.ingest.service_samples.encode import as_log

__all__ = ["FILES", "FOLDERS", "otlp", "otlp_protobuf", "write_sample"]

KINETO = {
    "schemaVersion": 1,
    "deviceProperties": [{"id": 0, "name": "NVIDIA H200"}],
    "distributedInfo": {"rank": 0, "world_size": 2, "pg_config": [{"pg_name": "0", "ranks": [0, 1]}]},
    "traceEvents": [
        {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 7, "tid": 7, "ts": 10.5, "dur": 4,
         "args": {"External id": 1, "Input Dims": [[2, 3], [3, 4]], "Input type": ["float", "float"]}},
        {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 7, "tid": 7, "ts": 12,
         "dur": 1, "args": {"correlation": 3}},
        {"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": 15, "dur": 9,
         "args": {"correlation": 3, "stream": 7, "device": 0}},
    ],
    "baseTimeNanoseconds": 1794766704388000000,
}  # fmt: skip
#: As `jax.profiler.trace` writes it; the empty event at the end is XLA's own.
JAX = {
    "displayTimeUnit": "ns",
    "metadata": {"highres-ticks": True},
    "traceEvents": [
        {"ph": "M", "pid": 1, "name": "process_name", "args": {"name": "/device:TPU:0"}},
        {"ph": "M", "pid": 1, "tid": 3, "name": "thread_name", "args": {"name": "XLA Ops"}},
        {"ph": "M", "pid": 701, "name": "process_name", "args": {"name": "/host:CPU"}},
        {"ph": "X", "pid": 701, "tid": 7, "ts": 1.5, "dur": 90.0, "name": "PjitFunction(step)"},
        {"ph": "X", "pid": 1, "tid": 3, "ts": 10.5, "dur": 20.0, "name": "fusion.3",
         "args": {"hlo_category": "fusion", "hlo_module": "jit_step(77)"}},
        {},
    ],
}  # fmt: skip
VIZTRACER = {
    "traceEvents": [
        {"ph": "M", "pid": 42, "tid": 42, "name": "process_name", "args": {"name": "MainProcess"}},
        {"pid": 42, "tid": 42, "ts": 100.1, "ph": "X", "dur": 5.5, "name": "fib (fib.py:1)",
         "cat": "FEE"},
    ],
    "viztracer_metadata": {"overflow": False, "version": "1.0.0"},
}  # fmt: skip
CHROME = [{"name": "Layout", "cat": "blink", "ph": "X", "pid": 1, "tid": 1, "ts": 1, "dur": 5}]
_TENSOR = {"values": [[14, 15, 8, 12, 2, "cuda:0"]], "shapes": [[3, 4]],
           "types": ["Tensor(float)"], "strides": [[4, 1]]}  # fmt: skip
_ATTRIBUTES = {"rf_id": 4, "fw_parent": 0, "seq_id": 9, "scope": 0, "tid": 1, "fw_tid": 0,
               "op_schema": "aten::mm(Tensor self) -> Tensor"}  # fmt: skip


def _node(id: int, name: str, parent: int) -> dict:
    attributes = [{"name": k, "type": "int", "value": v} for k, v in _ATTRIBUTES.items()]
    return {"id": id, "name": name, "ctrl_deps": parent, "inputs": _TENSOR, "outputs": _TENSOR,
            "attrs": attributes}  # fmt: skip


EXECUTION = {
    "schema": "1.1.1-chakra.0.0.4", "pid": 7,
    "nodes": [_node(3, "aten::mm", 2), _node(2, "[pytorch|profiler|execution_trace|thread]", 1),
              _node(1, "[pytorch|profiler|execution_trace|process]", 1)],
}  # fmt: skip
_WAVE = {"2": [30, 40], "5": [25, 31]}
TPCH = {
    "2g-q1": {
        "edges": [[0, 1]],
        "stages": [
            {"num_tasks": 2, "fresh_durations": {"2": [30], "5": []}, "first_wave": _WAVE,
             "rest_wave": _WAVE},
            {"num_tasks": 1, "fresh_durations": {"2": [7], "5": [8]}, "first_wave": _WAVE,
             "rest_wave": {"2": [], "5": []}},
        ],
    }
}  # fmt: skip
INTENSITY = {
    "zone": "DE", "emissionFactorType": "lifecycle", "temporalGranularity": "hourly",
    "history": [
        {"zone": "DE", "carbonIntensity": 302, "datetime": "2024-01-01T00:00:00.000Z",
         "isEstimated": False},
        {"zone": "DE", "carbonIntensity": 280.5, "datetime": "2024-01-01T01:00:00.000Z",
         "isEstimated": True},
    ],
}  # fmt: skip
PROMETHEUS = {
    "status": "success",
    "data": {
        "resultType": "matrix",
        "result": [
            {"metric": {"__name__": "kepler_container_joules_total", "pod_name": "web"},
             "values": [[1709251200, "10"], [1709251230, "310"], [1709251260, "40"]]}
        ],
    },
}  # fmt: skip
_TAGS = [{"key": "span.kind", "type": "string", "value": "server"}]
_AT_US = 1_794_766_704_000_000
JAEGER = {
    "data": [
        {"traceID": "1a", "processes": {"p1": {"serviceName": "web"}, "p2": {"serviceName": "cart"}},
         "spans": [
             {"traceID": "1a", "spanID": "1", "operationName": "GET /", "references": [],
              "startTime": _AT_US, "duration": 900, "processID": "p1", "tags": _TAGS},
             {"traceID": "1a", "spanID": "2", "operationName": "get", "startTime": _AT_US + 100,
              "references": [{"refType": "CHILD_OF", "traceID": "1a", "spanID": "1"}],
              "duration": 400, "processID": "p2", "tags": _TAGS},
         ]}
    ]
}  # fmt: skip
ZIPKIN = [
    {"traceId": "1a", "id": "1", "kind": "SERVER", "name": "get /", "timestamp": _AT_US,
     "duration": 900, "localEndpoint": {"serviceName": "web"}},
    {"traceId": "1a", "id": "2", "parentId": "1", "kind": "CLIENT", "name": "get",
     "timestamp": _AT_US + 100, "duration": 400, "localEndpoint": {"serviceName": "web"},
     "remoteEndpoint": {"serviceName": "redis"}, "tags": {"error": "timeout"}},
]  # fmt: skip


def otlp(**changes: object) -> dict:
    """A trace of two spans of OpenTelemetry, a server and its call of a store."""
    server = {"traceId": "5b8efff798038103d269b633813fc60c", "spanId": "eee19b7ec3c1b174",
              "name": "GET /", "kind": 2, "startTimeUnixNano": "1794766704000000000",
              "endTimeUnixNano": "1794766704000900000"}  # fmt: skip
    client = {**server, "spanId": "eee19b7ec3c1b175", "parentSpanId": "eee19b7ec3c1b174",
              "name": "GET", "kind": 3, "endTimeUnixNano": "1794766704000400000",
              "status": {"code": 2},
              "attributes": [{"key": "db.system", "value": {"stringValue": "redis"}}]}  # fmt: skip
    name = {"key": "service.name", "value": {"stringValue": "web"}}
    spans = {"scope": {}, "spans": [server, {**client, **changes}]}
    return {"resourceSpans": [{"resource": {"attributes": [name]}, "scopeSpans": [spans]}]}


def _part(number: int, content: bytes | str) -> bytes:
    raw = content.encode() if isinstance(content, str) else content
    return (
        bytes([number << 3 | 2, len(raw)]) + raw
        if len(raw) < 128
        else (bytes([number << 3 | 2, len(raw) & 127 | 128, len(raw) >> 7]) + raw)
    )


def otlp_protobuf() -> bytes:
    """The same trace as `otlp`, as an ExportTraceServiceRequest."""
    ids = _part(1, bytes.fromhex("5b8efff798038103d269b633813fc60c"))
    times = (b"\x39" + 1794766704000000000 .to_bytes(8, "little")
             + b"\x41" + 1794766704000900000 .to_bytes(8, "little"))  # fmt: skip
    system = _part(9, _part(1, "db.system") + _part(2, _part(1, "redis")))
    first, second = (_part(2, bytes.fromhex(f"eee19b7ec3c1b17{i}")) for i in (4, 5))
    server = ids + first + _part(5, "GET /") + b"\x30\x02" + times
    parent = _part(4, bytes.fromhex("eee19b7ec3c1b174"))
    client = ids + second + parent + _part(5, "GET") + b"\x30\x03" + times + system
    client += _part(15, b"\x18\x02")
    name = _part(1, _part(1, "service.name") + _part(2, _part(1, "web")))
    return _part(1, _part(1, name) + _part(2, _part(2, server) + _part(2, client)))


MUBENCH = {
    "s0": {"external_services": [{"seq_len": 100, "services": ["s1"], "probabilities": {"s1": 0.5}},
                                 {"seq_len": 1, "services": ["s1", "sdb"]}],
           "internal_service": {"loader": {"cpu_stress": {"run": True, "range_complexity": [50, 100],
                                                          "thread_pool_size": 1, "trials": 2}}},
           "workers": 4, "threads": 16, "cpu-limits": "500m", "replicas": 2},
    "s1": {"external_services": [], "internal_service": {"compute_pi": {"range_complexity": [9, 9]}}},
    "sdb": {"external_services": [], "internal_service": {}},
}  # fmt: skip
TEXTS = {
    "application": "name: small\nrate: 20\nservices:\n  web: {workers: 2}\n  db: {cpu_limit: 0.5}\n"
    "classes:\n  get:\n    sla: {bound_ms: 50}\n    call:\n      service: web\n"
    "      cpu_ms: {mean: 2, cv: 0.5}\n      then:\n        - {service: db, cpu_ms: 1}\n"
    "        - parallel: [{service: db}, {service: db, mode: queue, probability: 0.5}]\n",
    "span-table": "TraceID,SpanID,ParentID,PodName,OperationName,StartTimeUnixNano,EndTimeUnixNano,"
    "Duration\n1a,1,root,web-579b9bff58-t2dbm,GET /,1794766704000000000,1794766704000900000,900\n"
    "1a,2,1,cart-0,get,1794766704000100000,1794766704000500000,400\n",
    "cilantro": ",load,avg_latency,p99,stddev_latency,allocs,event_start_time,event_end_time\n"
    "7.5,3335.0,58.6,79.6,-1.0,\"{'root--geo': 5.7, 'root--rate': 1e1}\",7.5,37.5\n"
    "37.5,3000.0,-1,-1,3.0,\"{'root--geo': 5.0}\",37.5,67.5\n",
    "pod-metrics": "Time,TimeStamp,PodName,CpuUsage(m),CpuUsageRate(%)\n"
    "2022-08-22 03:51:19,1661140279,web-579b9bff58-t2dbm,17.5,5.8\n"
    "2022-08-22 03:52:19,1661140339,web-579b9bff58-t2dbm,12.5,\n",
    "sacct": "JobID|State|Start|End|Elapsed|AllocCPUS|TotalCPU|ConsumedEnergyRaw|AllocTRES\n"
    "7|COMPLETED|2024-01-01T00:00:00|2024-01-01T01:00:00|01:00:00|8|04:00:00|3600000|cpu=8\n"
    "7.batch|COMPLETED|2024-01-01T00:00:00|2024-01-01T01:00:00|01:00:00|8|04:00:00|3.6M|cpu=8\n"
    "8|PENDING|Unknown|Unknown|00:00:00|4|00:00:00||gres/gpu:a100=4\n",
    "alibaba": "M1,3,j_1,1,Terminated,100,160,100,0.2\nR2_1,2,j_1,1,Terminated,160,200,100,0.2\n"
    "task_x,1,j_2,2,Terminated,120,121,50,0.1\n",
    "boavizta": "manufacturer,name,subcategory,gwp_total,gwp_manufacturing_ratio,gwp_error_ratio,"
    'yearly_tec,lifetime,sources\nDell,"R740, 2U",Server,8640,0.5,0.2,1760.4,4,x.pdf\n'
    "HP,DL360,Server,4000,,,1000,4,y.pdf\n",
    "job-table": "id,start,duration_h,cores,energy_kwh,deadline\n"
    "a,2024-01-01T00:00Z,1.5,8,0.5,2024-01-02\nb,2024-01-01T02:00Z,2,4,,12h\n",
    "intensity-csv": "datetime,lca_gco2_kwh,direct_gco2_kwh\n2024-01-01T00:00Z,300.5,250\n"
    "2024-01-01T01:00Z,280,240\n2024-01-01T02:00Z,310,260\n",
    "signal-csv": 'time;"power_w"\n01.03.2024 00:00;300,5\n01.03.2024 01:00;280\n'
    "01.03.2024 02:00;\n",
    "fleet": "name: mine\npue: [1.1, 1.3, 1.5]\nfleet:\n"
    "  - {machine: Silver-4216, count: 59, bought: 2020}\n"
    "  - {name: own, count: 10, cores: 64, threads: 128, idle_w: 120, peak_w: [400, 450, 520],\n"
    "     embodied_kg: [900, 1300, 2000], life_years: 6}\n",
    "hdr-log": as_log(("GET", {5_000: 995, 5_200: 40}), ("SCAN", {500_000: 5})),
    "percentiles": "       Value   Percentile   TotalCount 1/(1-Percentile)\n\n"
    "       1.000     0.000000            1         1.00\n"
    "       2.000     0.500000           50         2.00\n"
    "      50.000     1.000000          100          inf\n"
    "#[Mean    =       25.990, StdDeviation   =       24.000]\n"
    "#[Max     =       50.000, Total count    =          100]\n",
    "load-test": "timeStamp,elapsed,label,responseCode,success,Latency\n"
    "1662749136019,170,get page,200,true,162\n1662749136237,43,post,500,false,43\n"
    "1662749136281,12,post,200,true,12\n",
    "sample-table": "class,service_us,size\nGET,5,1\nSCAN,400,2\nGET,5.5,1\n",
    "json": '{"answer": 42}\n',
    "csv": "left,right\nup,down\n",
}
OPERATIONS = (
    "dp_rank,stage,rank,step,optype,start_ts,duration,seq_id,mc,mb_id,gmc\n"
    "0,0,0,5,forward-compute,101.5,0.25,0,0,0,0\n0,0,0,5,backward-compute,101.75,0.5,0,0,0,0\n"
    "1,0,1,5,forward-compute,101.25,0.25,0,0,0,0\n0,0,0,4,forward-compute,7.0,0.25,0,,,\n"
)
SPARK = [
    {"Event": "SparkListenerLogStart", "Spark Version": "4.3.0"},
    {"Event": "SparkListenerApplicationStart", "App Name": "small", "App ID": "app-1",
     "Timestamp": 1794766704388, "User": "u"},
    {"Event": "SparkListenerExecutorAdded", "Timestamp": 1794766704400, "Executor ID": "0",
     "Executor Info": {"Host": "h", "Total Cores": 1, "Resource Profile Id": 0}},
    {"Event": "SparkListenerJobStart", "Job ID": 0, "Submission Time": 1794766704500,
     "Stage Infos": [{"Stage ID": 0, "Stage Attempt ID": 0, "Stage Name": "map",
                      "Number of Tasks": 1, "Parent IDs": []}], "Stage IDs": [0]},
    {"Event": "SparkListenerStageSubmitted",
     "Stage Info": {"Stage ID": 0, "Stage Attempt ID": 0, "Stage Name": "map",
                    "Number of Tasks": 1, "Parent IDs": [], "Submission Time": 1794766704510}},
    {"Event": "SparkListenerTaskEnd", "Stage ID": 0, "Stage Attempt ID": 0,
     "Task Type": "ResultTask", "Task End Reason": {"Reason": "Success"},
     "Task Info": {"Task ID": 0, "Index": 0, "Attempt": 0, "Launch Time": 1794766704520,
                   "Executor ID": "0", "Finish Time": 1794766704620, "Failed": False,
                   "Killed": False},
     "Task Metrics": {"Executor CPU Time": 50000000, "Executor Run Time": 90}},
    {"Event": "SparkListenerStageCompleted",
     "Stage Info": {"Stage ID": 0, "Stage Attempt ID": 0, "Stage Name": "map",
                    "Number of Tasks": 1, "Parent IDs": [], "Submission Time": 1794766704510,
                    "Completion Time": 1794766704630}},
    {"Event": "SparkListenerJobEnd", "Job ID": 0, "Completion Time": 1794766704640,
     "Job Result": {"Result": "JobSucceeded"}},
    {"Event": "SparkListenerApplicationEnd", "Timestamp": 1794766704700},
]  # fmt: skip


def _operations(path: Path) -> None:
    path.write_text(OPERATIONS)
    path.with_name("meta.yaml").write_text("trial_name: toy\ndp_size: 2\npp_size: 1\n")


def _small_graph() -> WorkGraph:
    return WorkGraph.from_columns(["a", "b"], [1, 2], name=["x", "y"], edges=([0], [1]))


def _parquet(path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow", reason="the 'tables' extra is absent")
    parquet = pytest.importorskip("pyarrow.parquet", reason="the 'tables' extra is absent")
    parquet.write_table(pyarrow.table({"a": [1, 2]}), path)


def _arrow(path: Path) -> None:
    from gnomon.table import write_arrow

    write_arrow(path, {"a": np.array([1, 2])})


def _dump(value: object) -> Callable[[Path], object]:
    return lambda path: path.write_text(json.dumps(value))


def _result(path: Path) -> None:
    from gnomon import report

    report.save(report.Result("training", "replay", "small"), path)


PROGRAM = {
    "format": 1, "operators": ["aten::mm"], "storages": [[48, 0, ["normal", 1.0]]],
    "made": [[0, 0, 0]], "metas": [["float32", [3, 4], [4, 1], 0]],
    "steps": [[[["post", 0], [0, [["t", 0]], 1, [0], [], 10, 20, {"s": 1, "n": 2}]]]],
    "order": [[0]], "settings": {"modules": []}, "streams": 1, "signals": 1, "events": 0,
}  # fmt: skip


def _benchmark(path: Path) -> None:
    path.mkdir()
    (path / "program.json.gz").write_bytes(gzip.compress(json.dumps(PROGRAM).encode()))


def _recording(path: Path) -> None:
    path.mkdir()
    (path / "kineto.json.gz").write_bytes(gzip.compress(json.dumps(KINETO).encode()))
    (path / "meta.json").write_text('{"step_ms": 1.0}')


def _rolling(path: Path) -> None:
    path.mkdir()
    lines = [json.dumps(event) + "\n" for event in SPARK]
    (path / "events_1_app-1").write_text("".join(lines[:4]))
    (path / "events_2_app-1").write_text("".join(lines[4:]))


FILES: dict[str, Callable[[Path], object]] = {
    "kineto": _dump(KINETO),
    "jax-trace": _dump(JAX),
    "viztracer": _dump(VIZTRACER),
    "chrome-trace": _dump(CHROME),
    "execution-trace": _dump(EXECUTION),
    "jaeger": _dump(JAEGER),
    "zipkin": _dump(ZIPKIN),
    "otlp": _dump(otlp()),
    "otlp-protobuf": lambda path: path.write_bytes(otlp_protobuf()),
    "mubench": _dump(MUBENCH),
    "tpch": _dump(TPCH),
    "intensity-json": _dump(INTENSITY),
    "power-series": _dump(PROMETHEUS),
    "operation-log": _operations,
    "spark-log": lambda path: path.write_text("".join(json.dumps(e) + "\n" for e in SPARK)),
    "graph": lambda path: _small_graph().save(path),
    "timeline": lambda path: replay(_small_graph()).save(path),
    "arrow": _arrow,
    "parquet": _parquet,
    "perfetto": lambda path: path.write_bytes(b"\x0a\x10\x08\x01\x00\x00\x00\x01"),
    **{name: (lambda path, text=text: path.write_text(text)) for name, text in TEXTS.items()},
}
FOLDERS: dict[str, Callable[[Path], object]] = {
    "result": _result,
    "benchmark": _benchmark,
    "recording": _recording,
    "spark-log": _rolling,
    "folder": lambda path: path.mkdir(),
}


def write_sample(name: str, folder: Path) -> Path:
    """The sample of a format, under a name that says nothing of it."""
    path = folder / "sample"
    (FILES | FOLDERS if name not in FILES else FILES)[name](path)
    return path
