"""Files for containers: valid, without privileges, in line with the programs' options."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import kubernetes_validate
import pytest
import yaml

from gnomon.errors import InputError
from gnomon.systems.clone.deploy import Deployment, deployment_files, write_deployment
from gnomon.systems.clone.traffic import RequestClass, Traffic, traffic_c

RUNTIME = Path(__file__).parents[3] / "src" / "gnomon" / "systems" / "clone" / "runtime"
MODEL = Path(__file__).parent / "models" / "redis.c"
HOW = Deployment("shop-cart", port=7001, replicas=2, cpu_cores=1.5, data_bytes=100 << 20)


@pytest.mark.parametrize("version", ["1.33", "1.37"])
def test_kubernetes_takes_the_objects(version):
    for one in yaml.safe_load_all(deployment_files(HOW)["kubernetes.yaml"]):
        kubernetes_validate.validate(one, version, strict=True)


def test_the_service_finds_the_pods_and_these_have_no_privileges():
    deployment, service = yaml.safe_load_all(deployment_files(HOW)["kubernetes.yaml"])
    pod = deployment["spec"]["template"]
    assert service["spec"]["selector"].items() <= pod["metadata"]["labels"].items()
    assert deployment["spec"]["selector"]["matchLabels"] == pod["metadata"]["labels"]
    (container,) = pod["spec"]["containers"]
    assert service["spec"]["ports"][0]["targetPort"] == container["ports"][0]["name"]
    assert container["resources"]["requests"] == {"cpu": "1500m", "memory": "189Mi"}
    assert container["securityContext"]["readOnlyRootFilesystem"]
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert pod["spec"]["securityContext"]["runAsNonRoot"]
    assert [one["mountPath"] for one in container["volumeMounts"]] == ["/tmp"]
    assert deployment["spec"]["replicas"] == 2


def test_the_compose_file_runs_a_clone_and_a_load_against_it():
    services = yaml.safe_load(deployment_files(HOW)["compose.yaml"])["services"]
    assert services["clone"]["ports"] == ["127.0.0.1:7001:7001"]
    assert services["load"]["image"] == services["clone"]["image"]
    assert services["load"]["entrypoint"][:5] == ["load", "--host", "clone", "--port", "7001"]
    assert (
        "load"
        not in yaml.safe_load(deployment_files(HOW, has_load=False)["compose.yaml"])["services"]
    )


def test_no_registry_is_named_and_nobody_is_root():
    text = deployment_files(HOW)["Dockerfile"]
    images = re.findall(r"^FROM (\S+)", text, re.M)
    assert all(re.fullmatch(r"[a-z]+:[\w.-]+", one) for one in images)
    assert "USER 65534" in text.rpartition("FROM")[2]
    assert "/build/load" not in deployment_files(HOW, has_load=False)["Dockerfile"]


@pytest.mark.parametrize(
    "how", [Deployment("Clone"), Deployment("a b"), Deployment("x" * 60), Deployment(port=80),
            Deployment(replicas=0), Deployment(cpu_cores=0.0)]
)  # fmt: skip
def test_what_would_be_refused_later_is_refused_now(how):
    with pytest.raises(InputError):
        deployment_files(how)


def test_the_commands_of_the_image_work_here(tmp_path):
    """There is no container engine on every machine: its steps, without it."""
    for one in ("cmake", "cc"):
        if shutil.which(one) is None:
            pytest.skip(f"{one} is absent")
    shutil.copytree(RUNTIME, tmp_path / "runtime")
    shutil.copy(RUNTIME / "CMakeLists.txt", tmp_path)
    shutil.copy(MODEL, tmp_path / "model.c")
    (tmp_path / "traffic.c").write_text(
        traffic_c(Traffic("resp", (RequestClass(1, "GET", 36, 264),)))
    )
    written = write_deployment(tmp_path, HOW)
    assert {one.name for one in written} == {
        "Dockerfile",
        ".dockerignore",
        "compose.yaml",
        "kubernetes.yaml",
    }
    text = (tmp_path / "Dockerfile").read_text()
    build = re.search(r"^RUN (cmake .*)$", text, re.M)[1]
    build = build.replace("/source", str(tmp_path)).replace("/build", str(tmp_path / "build"))
    subprocess.run(build, shell=True, check=True, capture_output=True)
    programs = re.search(r"^COPY --from=build (.*) \S+$", text, re.M)[1].split()
    assert all((tmp_path / "build" / Path(one).name).exists() for one in programs)
    command = json.loads(re.search(r"^CMD (.*)$", text, re.M)[1])
    assert command[1:3] == ["--host", "0.0.0.0"]
    command[2], command[command.index("7001")] = "127.0.0.1", "0"
    with subprocess.Popen(
        [tmp_path / "build" / command[0], *command[1:]], stdout=subprocess.PIPE, text=True
    ) as clone:
        try:
            port = re.fullmatch(r"ready on 127\.0\.0\.1:(\d+)\n", clone.stdout.readline())[1]
            load = yaml.safe_load((tmp_path / "compose.yaml").read_text())["services"]["load"]
            words = [
                {"clone": "127.0.0.1", "7001": port}.get(one, one)
                for one in (*load["entrypoint"][1:], *load["command"])
            ]
            words[words.index("100000")] = "1000"
            done = subprocess.run(
                [tmp_path / "build" / "load", *words], capture_output=True, text=True, check=True
            )
            assert "1000 in" in done.stdout
        finally:
            clone.terminate()
