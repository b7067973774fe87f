"""Files that bring a clone into containers: a Dockerfile, a compose file, Kubernetes objects.

In a container the clone listens on all addresses of that container; by itself only on loopback.
"""

from __future__ import annotations

import math
import re
from pathlib import Path

import msgspec

from gnomon.errors import InputError

#: What the clone's scratch files and its load may need besides its data, in MiB.
_SPARE_MIB = 64
_MIB = 1 << 20


class Deployment(msgspec.Struct, frozen=True):
    """How a clone runs in containers.

    Attributes:
        name: Of the image, the Deployment and the Service.
        cpu_cores: That it asks for: as many as the original kept busy.
        data_bytes: That its code works on.
    """

    name: str = "clone"
    port: int = 7000
    replicas: int = 1
    cpu_cores: float = 1.0
    data_bytes: int = 0
    requests: int = 100_000

    @property
    def memory_mib(self) -> int:
        return _SPARE_MIB + math.ceil(1.25 * self.data_bytes / _MIB)


def write_deployment(folder: Path, how: Deployment = Deployment()) -> list[Path]:  # noqa: B008
    """Writes the files into a project; with a service `load` where the project has traffic.

    Raises:
        InputError: A name that Kubernetes would refuse, or a port that is none.
    """
    texts = deployment_files(how, has_load=(folder / "traffic.c").exists())
    for name, text in texts.items():
        (folder / name).write_text(text)
    return [folder / name for name in texts]


def deployment_files(how: Deployment, *, has_load: bool = True) -> dict[str, str]:
    """The texts by the names of their files."""
    if not re.fullmatch(r"[a-z]([-a-z0-9]{0,48}[a-z0-9])?", how.name):
        raise InputError(f"name {how.name!r}", hint="small letters, digits and hyphens")
    if not 1024 <= how.port <= 65535:
        raise InputError(f"port {how.port}", hint="1024 to 65535: it runs without privileges")
    if how.replicas < 1 or not 0 < how.cpu_cores < math.inf:
        raise InputError("a clone needs at least one replica, and more than no CPU")
    return {
        "Dockerfile": _dockerfile(how, has_load), ".dockerignore": "build\n*.yaml\n",
        "compose.yaml": _compose(how, has_load), "kubernetes.yaml": _kubernetes(how),
    }  # fmt: skip


def _dockerfile(how: Deployment, has_load: bool) -> str:
    programs = "/build/clone /build/load" if has_load else "/build/clone"
    return f"""# docker build -t {how.name} .
# docker run --rm -p 127.0.0.1:{how.port}:{how.port} {how.name}
FROM debian:12-slim AS build
RUN apt-get update \\
    && apt-get install -y --no-install-recommends cmake gcc libc6-dev make \\
    && rm -rf /var/lib/apt/lists/*
COPY . /source
RUN cmake -S /source -B /build && cmake --build /build --parallel

FROM debian:12-slim
COPY --from=build {programs} /usr/local/bin/
# nobody: it needs no rights but to write scratch files to /tmp
USER 65534:65534
EXPOSE {how.port}
CMD ["clone", "--host", "0.0.0.0", "--port", "{how.port}"]
"""


def _compose(how: Deployment, has_load: bool) -> str:
    load = f"""
  # docker compose run --rm load; add --rate N for an open loop
  load:
    image: {how.name}
    profiles: [load]
    depends_on: [clone]
    entrypoint: [load, --host, clone, --port, "{how.port}", --wait, "30"]
    command: [--requests, "{how.requests}"]
    read_only: true
    cap_drop: [ALL]
    security_opt: ["no-new-privileges:true"]
"""
    return f"""# docker compose up --build
name: {how.name}
services:
  clone:
    build: .
    image: {how.name}
    ports: ["127.0.0.1:{how.port}:{how.port}"]
    read_only: true
    tmpfs: [/tmp]
    cap_drop: [ALL]
    security_opt: ["no-new-privileges:true"]
{load if has_load else ""}"""


def _kubernetes(how: Deployment) -> str:
    cpu = f"{math.ceil(how.cpu_cores * 1000)}m"
    return f"""# kubectl apply -f kubernetes.yaml, once the image can be pulled
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {how.name}
  labels: {{app.kubernetes.io/name: {how.name}}}
spec:
  replicas: {how.replicas}
  selector:
    matchLabels: {{app.kubernetes.io/name: {how.name}}}
  template:
    metadata:
      labels: {{app.kubernetes.io/name: {how.name}}}
    spec:
      automountServiceAccountToken: false
      securityContext:
        runAsNonRoot: true
        runAsUser: 65534
        seccompProfile: {{type: RuntimeDefault}}
      containers:
        - name: clone
          image: {how.name}
          imagePullPolicy: IfNotPresent
          args: [clone, --host, 0.0.0.0, --port, "{how.port}"]
          ports:
            - {{name: service, containerPort: {how.port}}}
          # Each probe is a connection, which the clone accepts and closes: not more than needed.
          readinessProbe:
            tcpSocket: {{port: service}}
            periodSeconds: 10
          livenessProbe:
            tcpSocket: {{port: service}}
            periodSeconds: 60
            failureThreshold: 3
          resources:
            requests: {{cpu: {cpu}, memory: {how.memory_mib}Mi}}
            limits: {{memory: {2 * how.memory_mib}Mi}}
          securityContext:
            allowPrivilegeEscalation: false
            readOnlyRootFilesystem: true
            capabilities: {{drop: [ALL]}}
          volumeMounts:
            - {{name: scratch, mountPath: /tmp}}
      volumes:
        - name: scratch
          emptyDir: {{sizeLimit: 1Gi}}
---
apiVersion: v1
kind: Service
metadata:
  name: {how.name}
  labels: {{app.kubernetes.io/name: {how.name}}}
spec:
  selector: {{app.kubernetes.io/name: {how.name}}}
  ports:
    - {{name: service, port: {how.port}, targetPort: service}}
"""
