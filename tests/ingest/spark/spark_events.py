"""Event logs written line by line, as Spark would."""

from __future__ import annotations

import json


def log_start(version="3.5.3"):
    return {"Event": "SparkListenerLogStart", "Spark Version": version}


def app_start(app_id="app-1", at=0):
    return {
        "Event": "SparkListenerApplicationStart",
        "App Name": "test",
        "App ID": app_id,
        "Timestamp": at,
        "User": "somebody",
    }


def app_end(at):
    return {"Event": "SparkListenerApplicationEnd", "Timestamp": at}


def environment(**properties):
    return {"Event": "SparkListenerEnvironmentUpdate", "Spark Properties": properties}


def executor(number, at=0, cores=1):
    return {
        "Event": "SparkListenerExecutorAdded",
        "Timestamp": at,
        "Executor ID": str(number),
        "Executor Info": {"Host": "h", "Total Cores": cores, "Log Urls": {}},
    }


def removed(number, at):
    return {
        "Event": "SparkListenerExecutorRemoved",
        "Timestamp": at,
        "Executor ID": str(number),
        "Removed Reason": "idle",
    }


def job(number, at, stages):
    """Stages as {id: (tasks, parents)}."""
    infos = [
        {
            "Stage ID": stage,
            "Stage Attempt ID": 0,
            "Stage Name": f"stage {stage}",
            "Number of Tasks": tasks,
            "RDD Info": [],
            "Parent IDs": parents,
            "Details": "x" * 50,
        }
        for stage, (tasks, parents) in stages.items()
    ]
    return {
        "Event": "SparkListenerJobStart",
        "Job ID": number,
        "Submission Time": at,
        "Stage Infos": infos,
        "Stage IDs": list(stages),
        "Properties": {"callSite.short": f"collect of job {number}"},
    }


def job_end(number, at, result="JobSucceeded"):
    return {
        "Event": "SparkListenerJobEnd",
        "Job ID": number,
        "Completion Time": at,
        "Job Result": {"Result": result},
    }


def task(stage, index, on, start, end, *, cpu_ns=1000, reason="Success", attempt=0, copy=False):
    return {
        "Event": "SparkListenerTaskEnd",
        "Stage ID": stage,
        "Stage Attempt ID": attempt,
        "Task Type": "ShuffleMapTask",
        "Task End Reason": {"Reason": reason},
        "Task Info": {
            "Task ID": stage * 1000 + index,
            "Index": index,
            "Attempt": attempt,
            "Launch Time": start,
            "Executor ID": str(on),
            "Host": "h",
            "Locality": "ANY",
            "Speculative": copy,
            "Getting Result Time": 0,
            "Finish Time": end,
            "Failed": reason not in ("Success", "TaskKilled"),
            "Killed": reason == "TaskKilled",
        },
        "Task Metrics": {"Executor CPU Time": cpu_ns, "Executor Run Time": end - start},
    }


def lines(events, compact=True):
    separators = (",", ":") if compact else (", ", ": ")
    return "".join(json.dumps(e, separators=separators) + "\n" for e in events).encode()


#: Two executors; a job of two scans and a join, then one whose first stage is skipped.
SMALL = [
    log_start(),
    environment(**{"spark.executor.cores": "1"}),
    app_start(at=500),
    executor(0, 900),
    executor(1, 950),
    job(0, 1000, {0: (3, []), 1: (1, []), 2: (2, [0, 1])}),
    task(0, 0, 0, 1010, 1110),
    task(0, 1, 1, 1010, 1120),
    task(0, 2, 0, 1109, 1150),
    task(1, 0, 1, 1121, 1151),
    task(2, 0, 0, 1160, 1180),
    task(2, 1, 1, 1160, 1190),
    job_end(0, 1200),
    {"Event": "org.apache.spark.sql.SomethingNew", "plan": "y" * 300},
    job(1, 1300, {4: (2, [3]), 3: (3, [])}),
    task(4, 0, 0, 1310, 1330),
    task(4, 1, 1, 1310, 1335),
    job_end(1, 1340),
    app_end(1400),
]
