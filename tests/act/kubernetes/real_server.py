"""A real kube-apiserver with its etcd on loopback, where both are on PATH."""

from __future__ import annotations

import base64
import contextlib
import json
import shutil
import socket
import ssl
import subprocess
import urllib.error
import urllib.request

import pytest

from tests.act.fake_cluster import kubeconfig
from tests.waiting import until

#: Who may ask: by token, with name and groups. The account of the manifests gets its rights by RBAC.
USERS = {
    "admin-token": ("admin", "system:masters"),
    "gnomon-token": ("system:serviceaccount:gnomon:gnomon", "system:serviceaccounts"),
}


class RealServer:
    """The address of a server, and requests as its administrator."""

    def __init__(self, url, certificate):
        self.url, self.certificate = url, certificate
        self._context = ssl.create_default_context(cafile=str(certificate))

    def kubeconfig(self, path, token):
        pem = base64.b64encode(self.certificate.read_bytes()).decode()
        return kubeconfig(
            path, self.url, user={"token": token}, cluster={"certificate-authority-data": pem}
        )

    def ask(self, method, path, body=None):
        request = urllib.request.Request(
            f"{self.url}/{path}", None if body is None else json.dumps(body).encode(), method=method,
            headers={"Authorization": "Bearer admin-token", "Content-Type": "application/json"},
        )  # fmt: skip
        with urllib.request.urlopen(request, timeout=60, context=self._context) as answer:
            return json.load(answer)

    def create(self, object_, namespace="gnomon"):
        root = "api/v1" if object_["apiVersion"] == "v1" else f"apis/{object_['apiVersion']}"
        plural = object_["kind"].lower() + "s"
        is_global = object_["kind"] in ("Namespace", "CustomResourceDefinition")
        place = "" if is_global else f"/namespaces/{namespace}"
        return self.ask("POST", f"{root}{place}/{plural}", object_)

    def is_ready(self):
        try:
            request = urllib.request.Request(
                f"{self.url}/readyz", headers={"Authorization": "Bearer admin-token"}
            )
            with urllib.request.urlopen(request, timeout=5, context=self._context) as answer:
                return answer.status == 200
        except OSError:
            return False


@contextlib.contextmanager
def serving(folder):
    """A server with nothing in it."""
    programs = {name: shutil.which(name) for name in ("kube-apiserver", "etcd")}
    for name, found in programs.items():
        if found is None:
            pytest.skip(f"{name} is not on PATH")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
         "-days", "2", "-subj", "/CN=cluster", "-addext", "subjectAltName=IP:127.0.0.1",
         "-keyout", str(folder / "key.pem"), "-out", str(folder / "cert.pem")],
        check=True, capture_output=True, timeout=240,
    )  # fmt: skip
    (folder / "tokens.csv").write_text(
        "".join(f'{token},{name},{name},"{group}"\n' for token, (name, group) in USERS.items())
    )
    store, peer, port = (_free_port() for _ in range(3))
    commands = [
        [programs["etcd"], f"--data-dir={folder / 'etcd'}", f"--listen-client-urls=http://127.0.0.1:{store}",
         f"--advertise-client-urls=http://127.0.0.1:{store}", f"--listen-peer-urls=http://127.0.0.1:{peer}",
         f"--initial-advertise-peer-urls=http://127.0.0.1:{peer}", f"--initial-cluster=default=http://127.0.0.1:{peer}"],
        [programs["kube-apiserver"], f"--etcd-servers=http://127.0.0.1:{store}", "--bind-address=127.0.0.1",
         f"--secure-port={port}", f"--tls-cert-file={folder / 'cert.pem'}", f"--tls-private-key-file={folder / 'key.pem'}",
         f"--token-auth-file={folder / 'tokens.csv'}", "--authorization-mode=RBAC",
         "--service-account-issuer=https://here", f"--service-account-key-file={folder / 'cert.pem'}",
         f"--service-account-signing-key-file={folder / 'key.pem'}", "--disable-admission-plugins=ServiceAccount",
         "--service-cluster-ip-range=10.0.0.0/24", "--advertise-address=127.0.0.1"],
    ]  # fmt: skip
    with contextlib.ExitStack() as running:
        for command in commands:
            log = running.enter_context(
                open(folder / f"{command[0].rpartition('/')[2]}.log", "wb")
            )
            process = subprocess.Popen(command, stdout=log, stderr=log, cwd=folder)
            running.callback(process.wait, 60)
            running.callback(process.terminate)
        server = RealServer(f"https://127.0.0.1:{port}", folder / "cert.pem")

        def is_up():
            assert process.poll() is None, (folder / "kube-apiserver.log").read_text()[-2000:]
            return server.is_ready()

        until(is_up, "the server", 120, 0.2)
        yield server


def _free_port():
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as free:
        return free.getsockname()[1]
