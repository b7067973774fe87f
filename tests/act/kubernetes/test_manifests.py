"""What is under deploy/: valid for Kubernetes and Grafana, and in line with the code."""

from __future__ import annotations

import json
import re
from pathlib import Path

import kubernetes_validate
import msgspec
import pytest
import yaml

from gnomon.act.kubernetes import operator
from gnomon.act.kubernetes.health import metric_names
from gnomon.act.kubernetes.operator import ManagerSpec
from gnomon.act.kubernetes.places import parse_places
from gnomon.act.metric_profile import parse_profile
from gnomon.decide.services.policy import service_policies
from gnomon.ingest.services.application_file import parse_application

DEPLOY = Path(__file__).parents[3] / "deploy"
BASE, APPLY = DEPLOY / "kustomize" / "base", DEPLOY / "kustomize" / "apply"
#: What the lab's programs expose; `le` and `class` come with the histograms.
LAB = {
    "gnomon_lab_cpu_usage_seconds_total", "gnomon_lab_cpu_periods_total",
    "gnomon_lab_cpu_throttled_periods_total", "gnomon_lab_cpu_limit_cores",
    "gnomon_lab_replicas", "gnomon_requests_total", "gnomon_waiting",
    "gnomon_exclusive_seconds_bucket", "gnomon_latency_seconds_bucket", "gnomon_pool_wait_seconds_bucket",
}  # fmt: skip


def documents(folder):
    """All objects that a kustomization names in its own folder."""
    kustomization = yaml.safe_load((folder / "kustomization.yaml").read_text())
    files = [name for name in kustomization["resources"] if name.endswith(".yaml")]
    assert {*files, *(one["path"] for one in kustomization.get("patches", ()))} == {
        file.name for file in folder.glob("*.yaml")
    } - {"kustomization.yaml"}
    return [one for name in files for one in yaml.safe_load_all((folder / name).read_text())]


def only(kind, folder=BASE):
    (found,) = [one for one in documents(folder) if one["kind"] == kind]
    return found


@pytest.mark.parametrize("folder", [BASE, APPLY], ids=["base", "apply"])
@pytest.mark.parametrize("version", ["1.33", "1.37"])
def test_every_object_is_valid(folder, version):
    for one in documents(folder):
        if one["kind"] != "ServiceManager":
            kubernetes_validate.validate(one, version, strict=True)


def test_the_base_may_change_no_workload():
    allowed = {
        (r, verb)
        for rule in only("Role")["rules"]
        for r in rule["resources"]
        for verb in rule["verbs"]
    }
    assert {verb for r, verb in allowed if r in ("deployments", "pods", "configmaps")} <= {
        "get",
        "list",
    }
    assert "*" not in {part for pair in allowed for part in pair}
    added = {
        (r, verb)
        for rule in only("Role", APPLY)["rules"]
        for r in rule["resources"]
        for verb in rule["verbs"]
    }
    assert added == {
        ("deployments", "patch"),
        ("deployments/scale", "patch"),
        ("pods/resize", "patch"),
    }


def test_the_definition_fits_the_operator():
    definition = only("CustomResourceDefinition")["spec"]
    (version,) = definition["versions"]
    assert (definition["group"], version["name"], definition["names"]["plural"]) == (
        operator.GROUP, operator.VERSION, operator.PLURAL,
    )  # fmt: skip
    schema = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
    fields = {one.encode_name: one for one in msgspec.structs.fields(ManagerSpec)}
    assert set(schema["properties"]) == set(fields)
    assert set(schema["required"]) == {name for name, one in fields.items() if one.required}
    defaults = {
        name: one["default"] for name, one in schema["properties"].items() if "default" in one
    }
    assert defaults == {name: one.default for name, one in fields.items() if not one.required}


def test_the_example_can_be_managed():
    given = only("ServiceManager")["spec"]
    spec = msgspec.convert(given, ManagerSpec)
    assert not spec.apply
    overlay = yaml.safe_load((APPLY / "servicemanager.yaml").read_text())
    assert overlay["spec"] == {"apply": True}
    assert msgspec.convert(given | overlay["spec"], ManagerSpec).apply
    service_policies.create(spec.manager)
    config = only("ConfigMap")
    assert config["metadata"]["name"] == spec.config_map
    app = parse_application(config["data"]["app.yaml"])
    profile = parse_profile(config["data"]["metrics.yaml"])
    places = parse_places(config["data"]["deployments.yaml"])
    assert set(places.services) <= set(app.services)
    assert profile.variables["namespace"] == places.namespace


def test_the_deployment_starts_the_operator():
    (container,) = only("Deployment")["spec"]["template"]["spec"]["containers"]
    assert container["command"] == ["python", "-m", operator.__name__]
    assert {
        one["httpGet"]["path"] for one in (container["livenessProbe"], container["readinessProbe"])
    } == {"/healthz", "/readyz"}


DASHBOARD = json.loads((DEPLOY / "grafana" / "services.json").read_text())


def test_the_dashboard_shows_metrics_that_exist():
    queries = [target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]]
    queries.append(DASHBOARD["templating"]["list"][1]["definition"])
    used = {name for query in queries for name in re.findall(r"gnomon_\w+", query)}
    assert used <= LAB | set(metric_names())
    assert set(metric_names()) <= used  # and every metric of a controller is shown


def test_the_dashboard_is_one():
    assert {"uid", "title", "schemaVersion", "panels", "templating", "time"} <= set(DASHBOARD)
    variables = {one["name"] for one in DASHBOARD["templating"]["list"]}
    taken = set()
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(set(ids)) == len(ids)
    for panel in DASHBOARD["panels"]:
        assert panel["type"] in ("timeseries", "stat")
        assert panel["datasource"]["uid"] == "${datasource}"
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert place["x"] + place["w"] <= 24
        assert not cells & taken
        taken |= cells
        for target in panel["targets"]:
            for name in re.findall(r"\$(\w+)", target["expr"]):
                assert name in variables or name.startswith("__")
