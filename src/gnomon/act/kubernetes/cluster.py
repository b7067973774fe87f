"""A Kubernetes cluster over HTTP: login by kr8s, requests with a deadline, typed answers."""

from __future__ import annotations

import contextlib
import os
import re
import ssl
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
from urllib.parse import urlsplit

import msgspec

from gnomon.errors import ActuationError, InputError, MissingExtra
from gnomon.ingest.http_json import is_private

if TYPE_CHECKING:
    from kr8s.asyncio import Api

#: Names of namespaces and objects, as Kubernetes has them (RFC 1123).
NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
#: How long a request may take, the login included.
REQUEST_TIMEOUT_S = 15.0
MERGE_PATCH = "application/merge-patch+json"
#: Lists of containers are merged by name.
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
_SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
T = TypeVar("T")


class Refused(ActuationError):
    """The cluster refused: nothing was changed. After other errors that is not known."""

    def __init__(self, what: str, code: int = 400) -> None:
        self.code = code
        super().__init__(what)


class Gone(Refused):
    """There is no such object."""


class Answer(NamedTuple):
    """What the server answered, and which server it was."""

    code: int
    content: bytes
    host: str

    def decode(self, kind: type[T], what: str) -> T:
        """The object in the answer.

        Args:
            kind: Its type: the parts that are read.
            what: What an error calls it.

        Raises:
            Refused: The server refused.
            ActuationError: It broke, or answered with something else.
        """
        if self.code not in (200, 201):
            raise self._refusal()
        try:
            return msgspec.json.decode(self.content, type=kind)
        except msgspec.DecodeError as error:
            raise ActuationError(f"{self.host} did not answer with {what}: {error}") from None

    def _refusal(self) -> ActuationError:
        try:
            message = msgspec.json.decode(self.content, type=_Status).message[:300]
        except msgspec.DecodeError:
            message = ""
        text = f"{self.host} refused: {self.code} {message}".rstrip()
        if self.code == 404:
            return Gone(text, self.code)
        # A server that broke, or ran out of time, may have made the change.
        is_refusal = 400 <= self.code < 500 and self.code != 408
        return Refused(text, self.code) if is_refusal else ActuationError(text)


class _Status(msgspec.Struct):
    """What a server answers with where it refuses."""

    message: str = ""


def kubeconfig_path(kubeconfig: Path | str | None = None) -> str:
    """The given kubeconfig, else that of `KUBECONFIG`, else `~/.kube/config`."""
    chosen = str(kubeconfig or os.environ.get("KUBECONFIG") or "~/.kube/config")
    # kr8s fails for a user without a home, as in containers, where ~ stays.
    expanded = os.path.expanduser(chosen)
    return os.path.abspath(expanded) if expanded.startswith("~") else expanded


class Connection:
    """Requests to a cluster, with the credentials that its configuration names.

    Each request logs in again, so that renewed tokens and certificates count. Credentials are
    never part of an error.
    """

    def __init__(
        self, kubeconfig: str, *, context: str | None = None,
        timeout_s: float = REQUEST_TIMEOUT_S,
    ) -> None:  # fmt: skip
        self._kubeconfig, self._context, self._timeout_s = kubeconfig, context, timeout_s

    def check_login(self) -> None:
        """Reads the credentials; sends nothing.

        Raises:
            InputError: There are none, or the connection would not be safe.
        """

        async def login() -> None:
            async with _login(self._kubeconfig, self._context):
                pass

        self._run(login)

    def request(
        self, method: str, path: str, body: bytes | None = None, *,
        content_type: str = MERGE_PATCH,
    ) -> Answer:  # fmt: skip
        """Sends one request; whatever the server answers.

        Args:
            path: From the root of the API: `api/v1/namespaces/...`.

        Raises:
            ActuationError: There was no answer.
        """
        root, _, rest = path.partition("/")
        # Of a request without a body, the list of kinds is refused: 406.
        headers = _HEADERS | ({} if body is None else {"Content-Type": content_type})

        async def request() -> Answer:
            async with (
                _login(self._kubeconfig, self._context) as api,
                api.call_api(
                    method, base=f"/{root}", version="", url=rest, content=body,
                    headers=headers, raise_for_status=False, follow_redirects=False,
                ) as answer,
            ):  # fmt: skip
                host = urlsplit(api.auth.server).netloc.rpartition("@")[2]
                return Answer(answer.status_code, answer.content, host)

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
            raise MissingExtra("kr8s", "k8s", "Kubernetes") from None

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


_HEADERS = {"Accept": "application/json", "User-Agent": "gnomon", "Connection": "close"}


@contextlib.asynccontextmanager
async def _login(kubeconfig: str, context: str | None) -> AsyncIterator[Api]:
    """kr8s with credentials, after a check of the server that they would be sent to.

    `kr8s.api()` would send them before that check, and without a timeout.
    """
    from kr8s.asyncio import Api

    api = Api(
        bypass_factory=True, kubeconfig=kubeconfig, context=context,
        serviceaccount=str(_SERVICE_ACCOUNT),
    )  # fmt: skip
    auth: Any = api.auth
    try:
        try:
            await auth.reauthenticate()
            auth.token = _token(auth)
            secure = await auth.ssl_context()
        except (KeyError, OSError, RuntimeError, ValueError) as error:
            lines = str(error).splitlines() or [type(error).__name__]
            raise _no_cluster(lines[-1]) from None
        except Exception as error:  # the text of others may quote the file
            raise _no_cluster(type(error).__name__) from None
        if secure is not True and secure.verify_mode is ssl.CERT_NONE:
            raise _no_cluster("insecure-skip-tls-verify would not verify the server")
        if not is_private(auth.server):
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
