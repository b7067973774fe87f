"""A limit for a namespace on Kubernetes: a ResourceQuota, patched.

    plan = quota_patch("spark", "executors", pods=4)
    print(plan.describe())
    applied = apply(plan)                  # kubectl where there is one, else the kubeconfig's API
    apply(applied.undo())

A quota lets what runs run on, and keeps new pods from starting. Nothing happens before `apply`.
"""

from __future__ import annotations

import base64
import contextlib
import http.client
import os
import re
import shutil
import ssl
import subprocess
import urllib.error
import urllib.request
from collections.abc import Mapping
from email.message import Message
from pathlib import Path
from typing import IO, Any, Protocol
from urllib.parse import urlsplit

import msgspec
import yaml

from gnomon.errors import ActuationError, InputError

__all__ = [
    "REQUEST_TIMEOUT_S",
    "Cluster",
    "KubeApi",
    "Kubectl",
    "Quota",
    "QuotaApplied",
    "QuotaGone",
    "QuotaPlan",
    "QuotaRefused",
    "apply",
    "find_cluster",
    "quota_patch",
]

#: Names of namespaces and objects, as Kubernetes has them (RFC 1123).
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
#: How long a cluster may take for an answer. kubectl may need two: what there is, what we want.
REQUEST_TIMEOUT_S = 15.0
_MOST_BYTES = 4 << 20
_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


class QuotaRefused(ActuationError):
    """The cluster said no: nothing was changed. Of other errors that is not known."""


class QuotaGone(QuotaRefused):
    """There is no such quota."""


class QuotaPlan(msgspec.Struct, frozen=True):
    """A change of a ResourceQuota's limits.

    Attributes:
        namespace: Where it is.
        name: The quota's name; it must exist.
        hard: Limits to set, as Kubernetes writes them; None takes one away. Others stay.
        reason: Why, in words.
        annotations: Notes to set on it, or to take away with None.
        version: Refused unless the quota is of this version; of any where empty.
    """

    namespace: str
    name: str
    hard: dict[str, str | None]
    reason: str = ""
    annotations: dict[str, str | None] = {}
    version: str = ""

    def body(self) -> bytes:
        """The merge patch, as it is sent."""
        patch: dict[str, Any] = {"spec": {"hard": self.hard}}
        metadata: dict[str, Any] = {}
        if self.annotations:
            metadata["annotations"] = self.annotations
        if self.version:
            metadata["resourceVersion"] = self.version
        if metadata:
            patch["metadata"] = metadata
        return msgspec.json.encode(patch)

    def describe(self) -> str:
        """The plan in a line.

        >>> quota_patch("spark", "executors", cpu=1.5, pods=4).describe()
        'quota spark/executors: pods 4, requests.cpu 1500m'
        """
        changes = ", ".join(
            f"{key} without limit" if limit is None else f"{key} {limit}"
            for key, limit in sorted(self.hard.items())
        )
        text = f"quota {self.namespace}/{self.name}: {changes}"
        return f"{text} ({self.reason})" if self.reason else text


class Quota(msgspec.Struct, frozen=True):
    """A ResourceQuota as it stands.

    Attributes:
        hard: Its limits.
        annotations: Notes on it, by whoever left them.
        version: Another after every change.
    """

    hard: dict[str, str]
    annotations: dict[str, str] = {}
    version: str = ""


class QuotaApplied(msgspec.Struct, frozen=True):
    """A plan that was carried out.

    Attributes:
        plan: What was to be changed.
        before: All limits before.
        after: All limits after, as the cluster answered.
    """

    plan: QuotaPlan
    before: dict[str, str]
    after: dict[str, str]

    def undo(self) -> QuotaPlan:
        """The plan that puts what was changed back."""
        hard = {key: self.before.get(key) for key in self.plan.hard}
        return QuotaPlan(self.plan.namespace, self.plan.name, hard, reason="as it was before")


def quota_patch(
    namespace: str, name: str, *, cpu: float | None = None, pods: int | None = None,
    reason: str = "",
) -> QuotaPlan:  # fmt: skip
    """The plan that limits a namespace to some cores, some pods, or both.

    Args:
        namespace: Where the quota is.
        name: Its name.
        cpu: Cores that all pods together may request.
        pods: Pods that may exist; the driver counts too.
        reason: Why, in words.

    Raises:
        InputError: A name that is none, or a limit that would leave nothing to run.
    """
    for what, given in (("namespace", namespace), ("name", name)):
        if not _NAME.fullmatch(given):
            raise InputError(f"{given!r} is no name in Kubernetes", where=what)
    hard: dict[str, str | None] = {}
    if cpu is not None:
        hard["requests.cpu"] = _cores(cpu)
    if pods is not None:
        if pods < 1:
            raise InputError(f"{pods} would leave nothing to run", where="pods")
        hard["pods"] = str(pods)
    if not hard:
        raise InputError("no limit is named", hint="give cpu or pods")
    return QuotaPlan(namespace, name, hard, reason)


def _cores(cpu: float) -> str:
    if not 0.001 <= cpu < 1e9:
        raise InputError(f"{cpu:g} is no number of cores", where="cpu")
    thousandths = round(cpu * 1000)
    return f"{thousandths}m" if thousandths % 1000 else str(thousandths // 1000)


class Cluster(Protocol):
    """A way to a cluster."""

    def read(self, plan: QuotaPlan) -> Quota:
        """The quota as it stands."""

    def patch(self, plan: QuotaPlan) -> Quota:
        """Changes it; answers with what it is then."""


def apply(plan: QuotaPlan, cluster: Cluster | None = None) -> QuotaApplied:
    """Carries a plan out; the same plan again changes nothing.

    Args:
        plan: What to change.
        cluster: The way to the cluster; `find_cluster` otherwise.

    Raises:
        ActuationError: The cluster refused or did not answer.
        InputError: There is no way to a cluster.
    """
    way = cluster or find_cluster()
    before = way.read(plan).hard
    return QuotaApplied(plan, before, way.patch(plan).hard)


def find_cluster(kubeconfig: Path | str | None = None) -> Cluster:
    """kubectl where it is installed, else the API by a kubeconfig, else from inside a pod.

    Raises:
        InputError: None of them is there.
    """
    if program := shutil.which("kubectl"):
        return Kubectl(program, str(kubeconfig) if kubeconfig else None)
    chosen = kubeconfig or os.environ.get("KUBECONFIG", "").split(os.pathsep)[0]
    place = Path(chosen) if chosen else _usual_kubeconfig()
    if place is not None and place.is_file():
        return KubeApi.from_kubeconfig(place)
    if (_SERVICE_ACCOUNT / "token").is_file():
        return KubeApi.from_pod()
    raise InputError("no way to a cluster", hint="install kubectl, or set KUBECONFIG")


def _usual_kubeconfig() -> Path | None:
    try:
        return Path.home() / ".kube" / "config"
    except RuntimeError:  # a user without a home, as in containers
        return None


class _Spec(msgspec.Struct):
    """What a quota allows."""

    hard: dict[str, str] = {}


class _Metadata(msgspec.Struct):
    """What is said about a quota."""

    annotations: dict[str, str] = {}
    resource_version: str = msgspec.field(default="", name="resourceVersion")


class _Quota(msgspec.Struct):
    """A ResourceQuota, what we read of it."""

    spec: _Spec = msgspec.field(default_factory=_Spec)
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)


class _Status(msgspec.Struct):
    """Why the API refuses."""

    message: str = ""


def _quota(answer: bytes, whence: str) -> Quota:
    try:
        found = msgspec.json.decode(answer, type=_Quota)
        return Quota(found.spec.hard, found.metadata.annotations, found.metadata.resource_version)
    except msgspec.DecodeError as error:
        raise ActuationError(f"{whence} did not answer with a quota: {error}") from None


class Kubectl(msgspec.Struct, frozen=True):
    """A cluster by way of kubectl, with whatever rights its user has.

    Attributes:
        program: Where it is.
        kubeconfig: A kubeconfig of its own; kubectl's otherwise.
    """

    program: str
    kubeconfig: str | None = None

    def read(self, plan: QuotaPlan) -> Quota:
        """The quota as it stands."""
        return self._run(plan, "get", "resourcequota", plan.name)

    def patch(self, plan: QuotaPlan) -> Quota:
        """Changes it; answers with what it is then."""
        patch = plan.body().decode()
        return self._run(plan, "patch", "resourcequota", plan.name, "--type=merge", "-p", patch)

    def _run(self, plan: QuotaPlan, *arguments: str) -> Quota:
        config = ["--kubeconfig", self.kubeconfig] if self.kubeconfig else []
        timeout_s, patience_s = REQUEST_TIMEOUT_S, 2 * REQUEST_TIMEOUT_S
        command = [
            self.program, *config, f"--request-timeout={timeout_s:g}s", "-n", plan.namespace,
            *arguments, "-o", "json",
        ]  # fmt: skip
        try:
            done = subprocess.run(
                command, capture_output=True, timeout=patience_s, check=False,
                stdin=subprocess.DEVNULL,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise ActuationError(f"kubectl did not end within {patience_s:g} s") from None
        except OSError as error:
            raise ActuationError(f"kubectl cannot be run: {error.strerror or error}") from None
        if done.returncode:
            said = done.stderr.decode(errors="replace").strip().splitlines()
            why = said[-1] if said else f"it ended with {done.returncode}"
            raise _kind_of_error(why)(f"kubectl refused: {why}")
        return _quota(done.stdout, "kubectl")


def _kind_of_error(said: str) -> type[ActuationError]:
    """What an error of kubectl's means; its last line names the API's reason in brackets."""
    if "(NotFound)" in said:
        return QuotaGone
    reasons = ("(BadRequest)", "(Conflict)", "(Forbidden)", "(Invalid)", "(Unauthorized)")
    return QuotaRefused if any(reason in said for reason in reasons) else ActuationError


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect would carry the token to wherever it points."""

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str,
        headers: Message, newurl: str,
    ) -> None:  # fmt: skip
        raise ActuationError(f"the cluster redirects to {urlsplit(newurl).hostname}")


class KubeApi:
    """A cluster by its API, with a bearer token. The token is never part of an error."""

    def __init__(
        self, server: str, token: str | Path, *, authority: str | None = None,
        timeout_s: float = REQUEST_TIMEOUT_S,
    ) -> None:  # fmt: skip
        """Remembers where the cluster is.

        Args:
            server: Its address; https, unless it is on loopback.
            token: The bearer token; or the file that it is in, read for each request: whoever
                issues tokens puts another there before one runs out.
            authority: The certificate of the cluster's authority, PEM; the system's otherwise.
            timeout_s: How long an answer may take.
        """
        parts = urlsplit(server)
        is_safe = parts.scheme == "https" or parts.hostname in _LOOPBACK
        if parts.scheme not in ("http", "https") or not parts.hostname or not is_safe:
            raise InputError("a cluster's address begins with https://", where="server")
        _token_of(token)  # none is told at once
        self._server, self._token, self._timeout_s = server.rstrip("/"), token, timeout_s
        self._host = parts.netloc.rpartition("@")[2]
        try:
            context = ssl.create_default_context(cadata=authority)
        except ssl.SSLError:
            raise InputError("no certificate in PEM", where="certificate-authority") from None
        handlers = [_NoRedirect(), urllib.request.HTTPSHandler(context=context)]
        if parts.hostname in _LOOPBACK:
            handlers.append(urllib.request.ProxyHandler({}))
        self._opener = urllib.request.build_opener(*handlers)

    @classmethod
    def from_kubeconfig(cls, path: Path | str, context: str | None = None) -> KubeApi:
        """The cluster of a kubeconfig's context, where the user has a token.

        Raises:
            InputError: It cannot be read, or the user proves himself by something else.
        """
        where = str(path)
        document = _load_yaml(Path(path))
        chosen = context or str(document.get("current-context", ""))
        ways = _named(document, "contexts", chosen, "context", where)
        cluster = _named(document, "clusters", str(ways.get("cluster", "")), "cluster", where)
        user = _named(document, "users", str(ways.get("user", "")), "user", where)
        if cluster.get("insecure-skip-tls-verify"):
            raise InputError("would not verify the cluster", where=where, hint="use kubectl")
        token: str | Path = str(user.get("token") or "").strip()
        if not token and (name := user.get("tokenFile")):
            token = Path(path).parent / str(name)
        if not token:
            raise InputError(
                "the user has no token", where=where,
                hint="certificates and login programs are kubectl's affair: install it",
            )  # fmt: skip
        return cls(
            str(cluster.get("server", "")), token, authority=_authority(cluster, Path(path))
        )

    @classmethod
    def from_pod(cls) -> KubeApi:
        """The cluster that this pod runs in, with the rights of its service account.

        Raises:
            InputError: Its token or the cluster's certificate cannot be read.
        """
        host = os.environ.get("KUBERNETES_SERVICE_HOST", "kubernetes.default.svc")
        port = os.environ.get("KUBERNETES_SERVICE_PORT", "443")
        host = f"[{host}]" if ":" in host else host
        return cls(
            f"https://{host}:{port}", _SERVICE_ACCOUNT / "token",
            authority=_text_of(_SERVICE_ACCOUNT / "ca.crt"),
        )  # fmt: skip

    def read(self, plan: QuotaPlan) -> Quota:
        """The quota as it stands."""
        return self._ask(plan, "GET", None)

    def patch(self, plan: QuotaPlan) -> Quota:
        """Changes it; answers with what it is then."""
        return self._ask(plan, "PATCH", plan.body())

    def _bearer(self) -> str:
        try:
            return _token_of(self._token)
        except InputError as error:  # it was there before: the cluster's affair, not the user's
            raise ActuationError(str(error)) from None

    def _ask(self, plan: QuotaPlan, method: str, body: bytes | None) -> Quota:
        url = f"{self._server}/api/v1/namespaces/{plan.namespace}/resourcequotas/{plan.name}"
        headers = {
            "Authorization": f"Bearer {self._bearer()}", "Accept": "application/json",
            "User-Agent": "gnomon", "Content-Type": "application/merge-patch+json",
        }  # fmt: skip
        request = urllib.request.Request(url, data=body, headers=headers, method=method)
        try:
            with self._opener.open(request, timeout=self._timeout_s) as answer:
                return _quota(answer.read(_MOST_BYTES), self._host)
        except urllib.error.HTTPError as error:
            with error:
                raise _kind_of_code(error.code)(f"{self._host} refused: {_why(error)}") from None
        except urllib.error.URLError as error:
            raise ActuationError(f"{self._host} cannot be reached: {error.reason}") from None
        except TimeoutError:
            raise ActuationError(
                f"{self._host} did not answer within {self._timeout_s:g} s"
            ) from None
        except (OSError, http.client.HTTPException) as error:
            raise ActuationError(f"{self._host} broke off: {type(error).__name__}") from None


def _kind_of_code(code: int) -> type[ActuationError]:
    if code == 404:
        return QuotaGone
    # A server that ran out of time, or broke, may have done it.
    return QuotaRefused if 400 <= code < 500 and code != 408 else ActuationError


def _token_of(given: str | Path) -> str:
    token = _text_of(given).strip() if isinstance(given, Path) else given
    if not token or not token.isprintable():
        where = str(given) if isinstance(given, Path) else "token"
        raise InputError("no token to show to the cluster", where=where)
    return token


def _why(error: urllib.error.HTTPError) -> str:
    with contextlib.suppress(msgspec.DecodeError, OSError):
        if said := msgspec.json.decode(error.read(_MOST_BYTES), type=_Status).message:
            return f"{error.code} {said[:300]}"
    return f"{error.code} {error.reason}"


def _load_yaml(path: Path) -> Mapping[str, Any]:
    try:
        document = yaml.safe_load(path.read_text())
    except OSError as error:
        raise InputError(error.strerror or str(error), where=str(path)) from None
    except (yaml.YAMLError, UnicodeDecodeError):
        raise InputError("not a kubeconfig: no YAML", where=str(path)) from None
    if not isinstance(document, dict):
        raise InputError("not a kubeconfig", where=str(path))
    return document


def _named(
    document: Mapping[str, Any], group: str, name: str, kind: str, where: str
) -> Mapping[str, Any]:
    """An entry of one of a kubeconfig's lists of named things."""
    entries = document.get(group)
    for entry in entries if isinstance(entries, list) else ():
        if isinstance(entry, dict) and entry.get("name") == name:
            inner = entry.get(kind)
            if isinstance(inner, dict):
                return inner
    raise InputError(f"no {kind} {name!r} in it", where=where)


def _authority(cluster: Mapping[str, Any], config: Path) -> str | None:
    if data := cluster.get("certificate-authority-data"):
        try:
            return base64.b64decode(str(data), validate=True).decode("ascii")
        except ValueError:
            raise InputError(
                "certificate-authority-data is no base64", where=str(config)
            ) from None
    return _read(cluster.get("certificate-authority"), config)


def _read(name: object, config: Path) -> str | None:
    """A file that a kubeconfig names, beside it unless its path is whole."""
    return _text_of(config.parent / str(name)) if name else None


def _text_of(place: Path) -> str:
    try:
        return place.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot be read: {type(error).__name__}", where=str(place)) from None
