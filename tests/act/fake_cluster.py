"""One quota as the API of Kubernetes shows it, on loopback."""

from __future__ import annotations

import contextlib
import json
import ssl
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

TOKEN = "a-token-nobody-should-see"


class FakeCluster(BaseHTTPRequestHandler):
    """Behaves as the API does for one quota: merge patches, versions, refusals."""

    quota: dict
    seen: list
    answer: tuple[int, bytes] | None
    refuses_patches = False
    #: Of patches: a count of those under way, and what they wait for.
    patching: threading.Semaphore
    may_patch: threading.Event

    def log_message(self, *_):
        pass

    def _reply(self, code, body):
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        with contextlib.suppress(ConnectionError):  # who asked may be gone
            self.end_headers()
            self.wfile.write(body)

    def _is_welcome(self):
        self.seen.append((self.command, self.path, self.headers["Content-Type"]))
        if self.answer is not None:
            self._reply(*self.answer)
        elif self.headers["Authorization"] != f"Bearer {TOKEN}":
            self._reply(401, b'{"kind": "Status", "message": "Unauthorized"}')
        elif self.path != "/api/v1/namespaces/spark/resourcequotas/executors":
            self._reply(404, b'{"kind": "Status", "message": "resourcequotas \\"x\\" not found"}')
        else:
            return True
        return False

    def do_GET(self):
        if self._is_welcome():
            self._reply(200, json.dumps(self.quota).encode())

    def do_PATCH(self):
        patch = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.patching.release()
        self.may_patch.wait()
        if self.refuses_patches:
            self._reply(403, b'{"kind": "Status", "message": "cannot patch"}')
        elif self._is_welcome():
            metadata = self.quota["metadata"]
            if patch.get("metadata", {}).get("resourceVersion") not in (
                None, metadata["resourceVersion"],
            ):  # fmt: skip
                status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 409}
                self._reply(409, json.dumps(status | {"message": "was modified"}).encode())
                return
            merge(self.quota, patch)
            metadata["resourceVersion"] = str(int(metadata["resourceVersion"]) + 1)
            self._reply(200, json.dumps(self.quota).encode())


def merge(target: dict, patch: dict) -> None:
    """RFC 7396."""
    for key, value in patch.items():
        if value is None:
            target.pop(key, None)
        elif isinstance(value, dict):
            merge(target.setdefault(key, {}), value)
        else:
            target[key] = value


@contextlib.contextmanager
def serving(context: ssl.SSLContext | None = None):
    """The handler's class, with the address in `url`; over TLS where a context is given."""
    handler = type("Handler", (FakeCluster,), {
        "quota": {"kind": "ResourceQuota", "apiVersion": "v1",
                  "metadata": {"name": "executors", "namespace": "spark", "resourceVersion": "1"},
                  "spec": {"hard": {"pods": "20", "limits.memory": "64Gi"}}},
        "seen": [], "answer": None, "patching": threading.Semaphore(0),
        "may_patch": threading.Event(),
    })  # fmt: skip
    handler.may_patch.set()
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    if context is not None:
        server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    handler.url = f"http{'s' if context else ''}://127.0.0.1:{server.server_port}"
    try:
        yield handler
    finally:
        handler.may_patch.set()
        server.shutdown()
        thread.join()
        server.server_close()


def kubeconfig(path, server, *, user=None, cluster=None):
    path.write_text(json.dumps({
        "current-context": "here",
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": server, **(cluster or {})}}],
        "users": [{"name": "u", "user": {"token": TOKEN} if user is None else user}],
    }))  # fmt: skip
    return path
