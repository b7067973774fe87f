"""Asking a service for JSON, with bounds on everything: time, size, attempts.

Standard library alone. A key travels in a header and is never part of an error or of the cache.
"""

from __future__ import annotations

import http.client
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from email.message import Message
from typing import IO, Any
from urllib.parse import urlsplit

from gnomon.errors import GnomonError, InputError

_MOST_BYTES = 64 << 20
_ATTEMPTS = 3
_LONGEST_PAUSE_S = 10.0
_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_AGAIN = {429, 500, 502, 503, 504}


class RequestFailed(GnomonError):
    """A service did not answer as it should.

    Attributes:
        status: Its HTTP status, if it has one.
        body: The beginning of what it answered all the same.
    """

    def __init__(self, what: str, status: int | None = None, body: bytes = b"") -> None:
        self.status, self.body = status, body
        super().__init__(what)


class _RefuseRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect would carry the key to wherever it points."""

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str,
        headers: Message, newurl: str,
    ) -> None:  # fmt: skip
        raise RequestFailed(f"it redirects to {_host(newurl)}", code)


def get_bytes(
    url: str,
    headers: Mapping[str, str],
    *,
    data: bytes | None = None,
    timeout_s: float = 10.0,
    attempts: int = _ATTEMPTS,
    sleep: Callable[[float], None] = time.sleep,
) -> bytes:
    """The body of an answer; tried again, a bounded number of times, while the service is busy.

    Args:
        data: A form to post; without it the request is a GET.

    Raises:
        RequestFailed: No answer, or none of use. Its text names the host and not the key.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InputError(f"{_host(url)!r} is no address", hint="it begins with https://")
    failure = RequestFailed("never asked")
    for attempt in range(attempts):
        try:
            return _get(url, headers, data, timeout_s)
        except _Busy as busy:
            failure = busy.failure
            if attempt + 1 < attempts:
                pause_s = 0.5 * 2**attempt if busy.pause_s is None else busy.pause_s
                sleep(min(pause_s, _LONGEST_PAUSE_S))
    what = f"{failure} ({attempts} attempts)" if attempts > 1 else str(failure)
    raise RequestFailed(what, failure.status, failure.body)


class _Busy(Exception):
    """Worth another attempt."""

    def __init__(self, failure: RequestFailed, pause_s: float | None = None) -> None:
        self.failure, self.pause_s = failure, pause_s
        super().__init__(str(failure))


def _get(url: str, headers: Mapping[str, str], data: bytes | None, timeout_s: float) -> bytes:
    host = _host(url)
    request = urllib.request.Request(
        url, data, headers={"Accept": "application/json", "User-Agent": "gnomon", **headers}
    )
    opener = urllib.request.build_opener(_RefuseRedirect)
    deadline = time.monotonic() + timeout_s
    try:
        with opener.open(request, timeout=timeout_s) as answer:
            return _read(answer, deadline, host)
    except urllib.error.HTTPError as error:
        with error:
            what = f"{host} answered {error.code} {error.reason}"
            failure = RequestFailed(what, error.code, _beginning(error))
            if error.code in _AGAIN:
                raise _Busy(failure, _retry_after(error.headers)) from None
            raise failure from None
    except TimeoutError:
        raise RequestFailed(f"{host} did not answer within {timeout_s:g} s") from None
    except urllib.error.URLError as error:
        if isinstance(error.reason, TimeoutError):
            raise RequestFailed(f"{host} did not answer within {timeout_s:g} s") from None
        raise RequestFailed(f"{host} cannot be reached: {_reason(error.reason)}") from None
    except ValueError:  # its text would show a header, and the key in it
        raise RequestFailed("the key cannot be sent: it holds odd characters") from None
    except (OSError, http.client.HTTPException) as error:
        raise RequestFailed(f"{host} broke off: {_reason(error)}") from None


def _beginning(answer: Any) -> bytes:
    try:
        return bytes(answer.fp.read1(1 << 14))  # what is there: more may never come
    except (OSError, http.client.HTTPException):
        return b""  # the status alone says enough


def is_private(url: str) -> bool:
    """True where others cannot read a key: over TLS, or on loopback without a proxy."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    if parts.scheme == "http" and host in _LOOPBACK:
        return "http" not in urllib.request.getproxies() or urllib.request.proxy_bypass(host)
    return parts.scheme == "https" and bool(host)


def _host(url: str) -> str:
    """Host and port; an address may hold a password as well."""
    netloc = urlsplit(url).netloc
    return netloc.rpartition("@")[2] or "nowhere"


def _read(answer: Any, deadline: float, host: str) -> bytes:
    """The body, within the time-out as a whole: a byte now and then would keep us for ever."""
    pieces: list[bytes] = []
    size = 0
    while piece := answer.read1(1 << 16):
        pieces.append(piece)
        size += len(piece)
        if size > _MOST_BYTES:
            raise RequestFailed(f"{host} sent more than {_MOST_BYTES >> 20} MiB")
        if time.monotonic() > deadline:
            raise TimeoutError
    return b"".join(pieces)


def _reason(error: object) -> str:
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return " ".join(str(text).split())[:120]


def _retry_after(headers: Any) -> float | None:
    given = headers.get("Retry-After", "") if headers is not None else ""
    return float(given) if given.isdecimal() and len(given) < 6 else None
