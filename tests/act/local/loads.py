"""Small applications and loads for the lab's tests."""

from __future__ import annotations

import json
import urllib.request

import numpy as np

from gnomon.act.local.client import OK
from gnomon.graph.application import Application, Call, RequestClass, Service


def app_of(call: Call, *, timeout_ms: float | None = None, **services: Service) -> Application:
    """One class; services that are not described are plain cells."""
    found = {one.service: services.get(one.service, Service()) for one in call.walk()}
    return Application("small", found, {"get": RequestClass(call, timeout_ms=timeout_ms)})


def send(lab, count: int = 50, every_ms: float = 2.0, class_index=None, **options):
    """Sends requests at an even pace and waits for all of them."""
    due_ns = (np.arange(count) * every_ms * 1e6).astype(np.int64)
    load = lab.load(due_ns, np.zeros(count) if class_index is None else class_index, **options)
    load.wait()
    return load


def ok_latency_ms(load) -> np.ndarray:
    assert (load.outcome == OK).all()
    return np.asarray(load.latency_ns) / 1e6


def get(address: str, path: str, headers=None) -> str:
    request = urllib.request.Request(f"http://{address}{path}", headers=headers or {})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return answer.read().decode()


def read_spans(lab) -> list[dict]:
    """All spans so far, each with the service that wrote it."""
    found = []
    for file in lab.span_files():
        for line in file.read_text().splitlines():
            for resource in json.loads(line)["resourceSpans"]:
                (name,) = resource["resource"]["attributes"]
                for span in resource["scopeSpans"][0]["spans"]:
                    found.append({**span, "service": name["value"]["stringValue"]})
    return found
