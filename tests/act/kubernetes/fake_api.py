"""The parts of the API of Kubernetes that services need, on loopback.

Objects have versions, patches are merged as the server does it, and what results is checked
against the OpenAPI schemas of Kubernetes: a patch that the server would refuse fails here too.
"""

from __future__ import annotations

import contextlib
import copy
import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

import kubernetes_validate

from tests.act.fake_cluster import TOKEN, merge

_PATH = re.compile(
    r"/(?:api|apis/(?P<group>[^/]+))/(?P<version>v[^/]+)/namespaces/(?P<namespace>[^/]+)"
    r"/(?P<kind>[a-z]+)(?:/(?P<name>[^/]+))?(?:/(?P<sub>[a-z]+))?"
)
_KINDS = {
    "deployments": ("apps/v1", "Deployment"), "pods": ("v1", "Pod"), "configmaps": ("v1", "ConfigMap"),
    "leases": ("coordination.k8s.io/v1", "Lease"),
    "servicemanagers": ("gnomon.dev/v1alpha1", "ServiceManager"),
}  # fmt: skip


def deployment(name, *, replicas=1, cpu=None, request=None, container=None, labels=None, more=()):
    """A Deployment whose first container has some CPU."""
    container = {"name": container or name, "image": "app:1", "resources": resources(cpu, request)}
    return {
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": name, "namespace": "shop", "labels": labels or {"app": name}},
        "spec": {
            "replicas": replicas, "selector": {"matchLabels": {"pod-of": name}},
            "template": {
                "metadata": {"labels": {"pod-of": name}},
                "spec": {"containers": [container, *({"name": one, "image": "side:1"} for one in more)]},
            },
        },
    }  # fmt: skip


def pod(name, of, *, cpu=None, request=None, phase="Running", labels=None):
    return {
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "shop", "labels": labels or {"pod-of": of}},
        "spec": {"containers": [{"name": of, "image": "app:1", "resources": resources(cpu, request)}]},
        "status": {"phase": phase},
    }  # fmt: skip


def resources(cpu=None, request=None):
    found = {"limits": {"memory": "64Mi"}, "requests": {"memory": "64Mi"}}
    if cpu is not None:
        found["limits"]["cpu"] = cpu
    if request is not None:
        found["requests"]["cpu"] = request
    return found


class FakeApi:
    """The objects, what was asked for, and what goes wrong."""

    def __init__(self, *objects, can_resize=True):
        self.objects = {}
        self.can_resize = can_resize
        self.seen = []
        self.patches = []
        #: Called with the method and the path before each request is handled.
        self.before = lambda method, path: None
        #: Answers instead: 'drop' closes the connection, 'lose' does so after the change was made.
        self.instead = lambda method, path: None
        self._version = 0
        self.lock = threading.RLock()
        for one in objects:
            self.put(one)

    def put(self, object_):
        plural = next(p for p, (_, kind) in _KINDS.items() if kind == object_["kind"])
        metadata = object_["metadata"]
        self.objects[plural, metadata["namespace"], metadata["name"]] = object_
        self.touch(object_)

    def touch(self, object_):
        self._version += 1
        object_["metadata"]["resourceVersion"] = str(self._version)

    def get(self, plural, name, namespace="shop"):
        return self.objects[plural, namespace, name]

    def delete(self, plural, name, namespace="shop"):
        del self.objects[plural, namespace, name]

    def handle(self, method, path, body, content_type):
        """Status and object."""
        if path == "/api/v1":
            if content_type not in (None, "application/json"):  # as the real one
                return 406, _status("Not Acceptable")
            names = ["pods", "configmaps", *(["pods/resize"] if self.can_resize else [])]
            return 200, {"kind": "APIResourceList", "resources": [{"name": one} for one in names]}
        match = _PATH.fullmatch(path)
        if match is None:
            return 404, _status("the server could not find the requested resource")
        plural, key = match["kind"], (match["kind"], match["namespace"], match["name"])
        if method == "GET" and match["name"] is None:
            items = [
                one for (kind, space, _), one in self.objects.items() if (kind, space) == key[:2]
            ]
            return 200, {"kind": "List", "items": items}
        if method == "POST":
            created = json.loads(body)
            if (*key[:2], created["metadata"]["name"]) in self.objects:
                return 409, _status("already exists")
            _validate(created, plural)
            self.put(created)
            return 201, created
        if key not in self.objects:
            return 404, _status(f'{plural} "{match["name"]}" not found')
        if method == "GET":
            return 200, self.objects[key]
        return self._change(method, key, match["sub"], json.loads(body), content_type)

    def _change(self, method, key, sub, sent, content_type):
        now = self.objects[key]
        wanted = sent.get("metadata", {}).get("resourceVersion")
        if wanted not in (None, now["metadata"]["resourceVersion"]):
            return 409, _status("the object has been modified")
        after = copy.deepcopy(now)
        if method == "PUT":
            after = sent
        else:
            self.patches.append((key[0], key[2], sub, sent))
            if sub == "scale":
                assert content_type == "application/merge-patch+json"
                assert set(sent["spec"]) == {"replicas"}
            elif key[0] in ("deployments", "pods"):
                assert content_type == "application/strategic-merge-patch+json"
            strategic_merge(after, sent)
        try:
            _validate(after, key[0])
            _check_cpu(after, now, key[0], sub)
        except (ValueError, kubernetes_validate.ValidationError) as error:
            return 422, _status(f"is invalid: {error}")
        self.objects[key] = after
        self.touch(after)
        if sub == "scale":
            return 200, {"kind": "Scale", "metadata": after["metadata"], "spec": sent["spec"]}
        return 200, after


def _validate(object_, plural):
    version, kind = _KINDS[plural]
    assert object_.get("apiVersion", version) == version
    assert object_.get("kind", kind) == kind
    if plural != "servicemanagers":  # a kind of our own, whose schema is in its definition
        kubernetes_validate.validate(
            {"apiVersion": version, "kind": kind, **object_}, "1.33", strict=True
        )


def _check_cpu(after, now, plural, sub):
    """What the server checks beyond the schema."""
    if plural not in ("deployments", "pods"):
        return
    specs = [
        one["spec"] if plural == "pods" else one["spec"]["template"]["spec"]
        for one in (after, now)
    ]
    for one, before in zip(*(spec["containers"] for spec in specs)):
        given = one.get("resources", {})
        limit, request = (given.get(part, {}).get("cpu") for part in ("limits", "requests"))
        if limit and request and _milli(request) > _milli(limit):
            raise ValueError("must be less than or equal to cpu limit")
        if sub == "resize" and before["resources"]["limits"].get("cpu") and not limit:
            raise ValueError("resource limits cannot be removed")


def _milli(text):
    return float(text[:-1]) if text.endswith("m") else float(text) * 1000


def strategic_merge(target, patch):
    """A merge patch in which lists of containers are merged by name."""
    for key, value in patch.items():
        if key == "containers":
            for one in value:
                fitting = [old for old in target[key] if old["name"] == one["name"]]
                assert fitting, f"no container {one['name']}: the patch would add one"
                strategic_merge(fitting[0], one)
        elif isinstance(value, dict):
            strategic_merge(target.setdefault(key, {}), value)
        else:
            merge(target, {key: value})


def _status(message):
    return {"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": message}


@contextlib.contextmanager
def serving(api: FakeApi):
    """The address of the server, while it runs."""

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_):
            pass

        def handle_one_request(self):
            with contextlib.suppress(ConnectionError):
                super().handle_one_request()

        def _handle(self):
            path = urlsplit(self.path).path
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            assert self.headers["Authorization"] == f"Bearer {TOKEN}"
            api.before(self.command, path)
            with api.lock:
                api.seen.append((self.command, path))
                how = api.instead(self.command, path)
                if how == "drop":
                    self.close_connection = True
                    return
                if isinstance(how, tuple):
                    code, answer = how
                else:
                    content_type = self.headers["Content-Type"]
                    code, answer = api.handle(self.command, path, body, content_type)
                text = json.dumps(answer).encode()
                if how == "lose":
                    self.close_connection = True
                    return
            self.send_response(code)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        do_GET = do_PATCH = do_PUT = do_POST = _handle

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
