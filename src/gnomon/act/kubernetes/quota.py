"""A limit for a namespace on Kubernetes: a ResourceQuota, patched.

    plan = quota_patch("spark", "executors", pods=4)
    print(plan.describe())
    find_cluster().patch(plan)             # KUBECONFIG, ~/.kube/config or a pod's service account

A quota keeps new pods from starting; running pods are not affected. `held_quota` restores it.
"""

from __future__ import annotations

import contextlib
import os
import re
import ssl
import tempfile
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

import msgspec

from gnomon.errors import ActuationError, InputError, MissingExtra

if TYPE_CHECKING:
    from kr8s.asyncio import Api

#: Names of namespaces and objects, as Kubernetes has them (RFC 1123).
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
#: How long a request may take, the login included.
REQUEST_TIMEOUT_S = 15.0
_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
T = TypeVar("T")


class QuotaRefused(ActuationError):
    """The cluster refused: nothing was changed. After other errors that is not known."""


class QuotaGone(QuotaRefused):
    """There is no such quota."""


class QuotaPlan(msgspec.Struct, frozen=True):
    """A change of a ResourceQuota's limits.

    Attributes:
        namespace: Where it is.
        name: The quota's name; it must exist.
        hard: Limits to set, as Kubernetes writes them; None removes one. Others stay.
        reason: Why, in words.
        annotations: Annotations to set, or to remove with None.
        version: The resourceVersion that the quota must have; any where empty.
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
        metadata = {"annotations": self.annotations, "resourceVersion": self.version}
        if given := {key: value for key, value in metadata.items() if value}:
            patch["metadata"] = given
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
    """A ResourceQuota as it is now.

    Attributes:
        hard: Its limits.
        annotations: Its annotations.
        version: Its resourceVersion, another after every change.
    """

    hard: dict[str, str]
    annotations: dict[str, str] = {}
    version: str = ""


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
        InputError: An invalid name, or a limit that would leave nothing to run.
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


def find_cluster(kubeconfig: Path | str | None = None) -> Cluster:
    """The cluster of a kubeconfig, else of `KUBECONFIG`, `~/.kube/config` or this pod.

    Raises:
        InputError: There is none, the login failed, or the connection would not be safe.
        ActuationError: The login took too long.
        MissingExtra: kr8s is not installed.
    """
    chosen = str(kubeconfig or os.environ.get("KUBECONFIG") or "~/.kube/config")
    # kr8s fails for a user without a home, as in containers, where ~ stays.
    expanded = os.path.expanduser(chosen)
    cluster = Cluster(os.path.abspath(expanded) if expanded.startswith("~") else expanded)
    cluster.check_login()
    return cluster


class Cluster:
    """A Kubernetes cluster by kr8s, with the credentials that its configuration names.

    Each request logs in again, so that renewed tokens and certificates count. Credentials are
    never part of an error.
    """

    def __init__(self, kubeconfig: str, *, timeout_s: float = REQUEST_TIMEOUT_S) -> None:
        self._kubeconfig, self._timeout_s = kubeconfig, timeout_s

    def check_login(self) -> None:
        """Reads the credentials; sends nothing.

        Raises:
            InputError: There are none, or the connection would not be safe.
        """

        async def login() -> None:
            async with _login(self._kubeconfig):
                pass

        self._run(login)

    def read(self, plan: QuotaPlan) -> Quota:
        """The quota that a plan names.

        Raises:
            ActuationError: The cluster refused or did not answer.
        """
        return self._request(plan, "GET")

    def patch(self, plan: QuotaPlan) -> Quota:
        """Applies a plan; the quota after it. The same plan again changes nothing.

        Raises:
            ActuationError: The cluster refused or did not answer.
        """
        return self._request(plan, "PATCH", plan.body())

    def _request(self, plan: QuotaPlan, method: str, body: bytes | None = None) -> Quota:
        async def request() -> Quota:
            async with (
                _login(self._kubeconfig) as api,
                api.call_api(
                    method, namespace=plan.namespace, url=f"resourcequotas/{plan.name}",
                    content=body, headers=_HEADERS, raise_for_status=False,
                    follow_redirects=False,
                ) as answer,
            ):  # fmt: skip
                host = urlsplit(api.auth.server).netloc.rpartition("@")[2]
                return _quota(answer.status_code, answer.content, host)

        try:
            return self._run(request)
        except InputError as error:  # the login worked before: it may work again
            raise ActuationError(str(error)) from None

    def _run(self, request: Callable[[], Awaitable[T]]) -> T:
        try:
            import anyio.from_thread
            import httpx
            import kr8s.asyncio  # noqa: F401
        except ImportError:
            raise MissingExtra("kr8s", "k8s", "a quota on Kubernetes") from None

        async def in_time() -> T:
            with anyio.fail_after(self._timeout_s):
                return await request()

        try:
            # A thread of its own: the caller may have an event loop already.
            with anyio.from_thread.start_blocking_portal() as portal:
                result: T = portal.call(in_time)
                return result
        except TimeoutError:
            raise ActuationError(
                f"no answer of the cluster within {self._timeout_s:g} s"
            ) from None
        except httpx.ConnectError as error:
            raise ActuationError(f"the cluster cannot be reached: {error}") from None
        except (httpx.HTTPError, httpx.InvalidURL) as error:  # its text may quote a header
            raise ActuationError(f"the connection broke: {type(error).__name__}") from None


_HEADERS = {
    "Accept": "application/json", "Content-Type": "application/merge-patch+json",
    "User-Agent": "gnomon", "Connection": "close",
}  # fmt: skip


@contextlib.asynccontextmanager
async def _login(kubeconfig: str) -> AsyncIterator[Api]:
    """kr8s with credentials, after a check of the server that they would be sent to.

    `kr8s.api()` would send them before that check, and without a timeout.
    """
    from kr8s.asyncio import Api

    api = Api(bypass_factory=True, kubeconfig=kubeconfig, serviceaccount=str(_SERVICE_ACCOUNT))
    auth: Any = api.auth
    try:
        try:
            await auth.reauthenticate()
            auth.token = _token(auth)
            context = await auth.ssl_context()
        except (KeyError, OSError, RuntimeError, ValueError) as error:
            lines = str(error).splitlines() or [type(error).__name__]
            raise _no_cluster(lines[-1]) from None
        except Exception as error:  # the text of others may quote the file
            raise _no_cluster(type(error).__name__) from None
        if context is not True and context.verify_mode is ssl.CERT_NONE:
            raise _no_cluster("insecure-skip-tls-verify would not verify the server")
        if not _is_private(auth.server):
            raise _no_cluster("the address of its server does not begin with https://")
        yield api
    finally:
        # kr8s leaves keys and certificates of a kubeconfig in temporary files.
        for place, kind, file in (
            (auth._user, "client-key", auth.client_key_file),
            (auth._user, "client-certificate", auth.client_cert_file),
            (auth._cluster, "certificate-authority", auth.server_ca_file),
        ):
            is_copy = f"{kind}-data" in place and kind not in place
            if is_copy and file and os.path.dirname(file) == tempfile.gettempdir():
                os.unlink(file)


def _no_cluster(why: str) -> InputError:
    return InputError(f"no Kubernetes cluster found: {why}", hint="set KUBECONFIG")


def _token(auth: Any) -> str | None:
    """The token, also of a `tokenFile`, which kr8s does not read."""
    token: str | None = auth.token
    if token is None and (name := auth._user.get("tokenFile")):
        token = (Path(auth.kubeconfig.path).parent / name).read_text()
    if token is None:
        return None
    # Otherwise an error of the HTTP client quotes it.
    if not (token := token.strip()) or not (token.isascii() and token.isprintable()):
        raise ValueError("the token is empty or not printable")
    return token


def _is_private(server: str) -> bool:
    """True where others cannot read the token: over TLS, or on loopback without a proxy."""
    parts = urlsplit(server)
    host = parts.hostname or ""
    if parts.scheme == "http" and host in _LOOPBACK:
        return "http" not in urllib.request.getproxies() or urllib.request.proxy_bypass(host)
    return parts.scheme == "https" and bool(host)


class _Spec(msgspec.Struct):
    hard: dict[str, str] = {}


class _Metadata(msgspec.Struct):
    annotations: dict[str, str] = {}
    resource_version: str = msgspec.field(default="", name="resourceVersion")


class _Answer(msgspec.Struct):
    """A ResourceQuota, or a Status with the reason of a refusal: the parts that are read."""

    spec: _Spec = msgspec.field(default_factory=_Spec)
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)
    message: str = ""


def _quota(code: int, content: bytes, host: str) -> Quota:
    """The quota in an answer; an error where it holds none."""
    try:
        answer = msgspec.json.decode(content, type=_Answer)
    except msgspec.DecodeError as error:
        if code == 200:
            raise ActuationError(f"{host} did not answer with a quota: {error}") from None
        answer = _Answer()
    if code == 200:
        return Quota(
            answer.spec.hard, answer.metadata.annotations, answer.metadata.resource_version
        )
    if code == 404:
        kind: type[ActuationError] = QuotaGone
    else:
        # A server that broke, or ran out of time, may have made the change.
        kind = QuotaRefused if 400 <= code < 500 and code != 408 else ActuationError
    raise kind(f"{host} refused: {code} {answer.message[:300]}".rstrip())
