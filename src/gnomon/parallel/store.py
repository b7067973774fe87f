"""Finished results on disk, so that an interrupted map goes on where it stopped."""

from __future__ import annotations

import functools
import hashlib
import inspect
import os
import pickle
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gnomon.errors import InputError
from gnomon.parallel.call import Done, MappedCall, dump, dump_item
from gnomon.table.atomic import atomic_file

_MAGIC = b"gnomon.parallel.1\n"
_DIGEST_BYTES = hashlib.sha256().digest_size


class Store:
    """A folder of results, one file an item.

    The key covers the function's qualified name, its own source, what it carries (the arguments
    of a partial, the fields of a callable object), the item, and, with a seed, the index; of a
    function of gnomon all of gnomon. Other source that the function merely calls is not covered:
    use another folder after changing it.
    Entries are pickles: point this only at folders you trust.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     store = Store(folder, MappedCall(abs))
    ...     key = store.key(0, -3)
    ...     before = store.load(key)
    ...     store.save(key, Done(3))
    ...     before, store.load(key).value
    (None, 3)
    """

    def __init__(self, folder: str | os.PathLike[str], call: MappedCall) -> None:
        name, source = _identity(call.function)
        try:
            carried = dump(call.function)
        except Exception as error:
            raise InputError(
                f"resume cannot recognise {name} again: {error}",
                hint="use a module-level function",
            ) from error
        self._seed = call.seed
        ours = _package_digest() if name.startswith("gnomon.") else b""
        self._prefix = _digest(_MAGIC, name.encode(), source.encode(), carried, ours)
        self._folder = Path(folder) / re.sub(r"[^\w.]+", "_", name)
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(
                f"cannot make the folder: {error.strerror}", where=str(folder)
            ) from error

    def key(self, index: int, item: object) -> str:
        # The seed is part of the key only with the index: the generator depends on both.
        place = b"" if self._seed is None else f"{self._seed}/{index}".encode()
        return _digest(self._prefix, place, dump_item(index, item)).hex()

    def load(self, key: str) -> Done | None:
        try:
            entry = self._path(key).read_bytes()
        except OSError:
            return None
        data = entry[len(_MAGIC) + _DIGEST_BYTES :]
        if entry[: -len(data) or None] != _MAGIC + hashlib.sha256(data).digest():
            return None
        try:
            return Done(pickle.loads(data), data)
        except Exception:
            # Sound bytes of a class that has since changed or gone: as good as absent.
            return None

    def save(self, key: str, done: Done) -> None:
        try:
            data = done.data if done.data is not None else dump(done.value)
        except Exception as error:
            raise InputError(f"resume cannot keep a result: {error}") from error
        path = self._path(key)
        # No fsync: what a power cut leaves behind fails the digest and is computed again.
        with atomic_file(path) as file:
            file.write(_MAGIC + hashlib.sha256(data).digest() + data)

    def _path(self, key: str) -> Path:
        return self._folder / f"{key}.result"


@functools.cache
def _package_digest() -> bytes:
    """Of gnomon as it is installed here, native core, models and catalogues included."""
    from gnomon import _core

    root = Path(__file__).parents[1]
    files = {path for path in root.rglob("*") if path.is_file() and path.suffix != ".pyc"}
    # An editable installation has the core elsewhere.
    files.add(Path(_core.__file__ or __file__))
    digest = hashlib.sha256()
    for path in sorted(files, key=lambda path: (path.name, path)):
        digest.update(path.name.encode() + b"\0" + hashlib.sha256(path.read_bytes()).digest())
    return digest.digest()


def _identity(function: Callable[..., Any]) -> tuple[str, str]:
    """Qualified name and source of what is really called; the source is empty for builtins."""
    target: Any = function
    while isinstance(target, functools.partial):
        target = target.func
    if not hasattr(target, "__qualname__"):
        target = type(target)
    target = inspect.unwrap(target)
    module = getattr(target, "__module__", None) or "builtins"
    try:
        source = inspect.getsource(target)
    except (OSError, TypeError):
        source = ""
    return f"{module}.{target.__qualname__}", source


def _digest(*parts: bytes) -> bytes:
    total = hashlib.sha256()
    for part in parts:
        total.update(len(part).to_bytes(8, "little"))
        total.update(part)
    return total.digest()
