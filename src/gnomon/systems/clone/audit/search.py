"""Everything that is handed over, searched for strings, code and numbers of the original."""

from __future__ import annotations

import io
import platform
import shutil
import subprocess
import tempfile
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

import msgspec
import numpy as np

from gnomon.errors import InputError
from gnomon.ingest.search import find_place, find_present, read_files, unpacked
from gnomon.systems.clone.audit.constants import (
    Words,
    data_words,
    is_address,
    literals_of,
    shared_immediates,
    shared_words,
)
from gnomon.systems.clone.audit.elf import AARCH64, X86_64, Elf, read_elf
from gnomon.systems.clone.audit.opcodes import Overlap, Stream, compare, read_code
from gnomon.systems.clone.audit.reveals import FEWEST, counts_of, reveals
from gnomon.systems.clone.audit.strings import (
    Public,
    common_programs,
    own_runtime,
    own_sources,
    public_here,
    sought_of,
    strange_words,
)
from gnomon.systems.clone.bundle import read_bundle
from gnomon.table import ListOf, read_arrow

_MANIFEST = "manifest.json"
#: Of a build folder these are handed over; the rest is of this machine.
_PROGRAMS = ("build/clone", "build/load")
#: Sources whose code and data are generated.
_GENERATED = ("edges.S", "edges-aarch64.S", "edges.c", "memory.c", "model.c", "traffic.c")
#: Of these, the ones for one kind of machine only.
_MACHINES = {"edges.S": "x86_64", "edges-aarch64.S": "aarch64"}
_MOST_WORDS = 20
_NONE = np.zeros(0, np.uint64)


class Finding(msgspec.Struct, frozen=True):
    """Something of the original in what is handed over.

    Attributes:
        kind: `string`, `word`, `file name`; `unknown word`: none of ours; `code`, `constant`,
            `address`; `rare count`; `not compared`.
        place: A line of a text, an offset in another file.
        why: Where it is from, or what is wrong about it.
    """

    kind: str
    what: str
    file: str
    place: int | None = None
    why: str = ""

    @property
    def text(self) -> str:
        """In words.

        >>> Finding("string", "hunter2!", "README.md", 12, "as in app.conf").text
        "string 'hunter2!' in README.md at 12, as in app.conf"
        """
        place = "" if self.place is None else f" at {self.place}"
        why = f", {self.why}" if self.why else ""
        return f"{self.kind} {self.what!r} in {self.file}{place}{why}"


class Audit(msgspec.Struct, frozen=True):
    """What was searched, and what was found.

    Attributes:
        searched: Distinct strings of the original.
        overlap: Of generated code with the original's, the most telling; None: not compared.
        reveals: What a bundle says about the service.
        notes: What could not be searched.
    """

    searched: int
    files: int
    bytes: int
    allowed: int
    found: tuple[Finding, ...]
    overlap: Overlap | None = None
    counts: int = 0
    reveals: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def is_clean(self) -> bool:
        return not self.found


class _File(msgspec.Struct, frozen=True):
    name: str
    content: bytes

    @property
    def is_text(self) -> bool:
        return b"\0" not in self.content and self.content[:4] != b"\x7fELF"

    def line_of(self, at: int) -> int:
        return self.content.count(b"\n", 0, at) + 1 if self.is_text else at


def audit(target: Path, originals: Sequence[Path]) -> Audit:
    """Searches a clone's folder, or a bundle, for what is the original's.

    Args:
        originals: Its program; also libraries, settings or data of it.

    Raises:
        InputError: One of them cannot be read, or is not what it should be.
    """
    contents = {path: _read(path) for path in originals}
    if not contents:
        raise InputError("an audit needs the original", hint="--against its program")
    everything = list(_handed_over(target))
    runtime = own_runtime()
    files = [one for one in everything if runtime.get(Path(one.name).name) != one.content]
    public = public_here()
    sought: dict[str, tuple[str, str]] = {}
    for path, content in contents.items():
        sought |= {text: (kind, path.name) for text, kind in sought_of(path, content).items()}
    present = _present(sought, files)
    hidden = {text for text in present if not public.has(text)}
    found = [
        *_find_strings(hidden, sought, files, public), *_find_words(files, public, hidden),
        *_find_addresses(files, target),
    ]  # fmt: skip
    notes: list[str] = []
    overlap = None
    if any(one.name in _GENERATED for one in files):
        overlap, more = _compare_code(files, contents, notes)
        found += more
    elif any(one.name in _PROGRAMS for one in files):
        notes.append("Without its sources a program is searched for strings only.")
    counts, told = 0, []
    if (target / _MANIFEST).is_file():
        bundle = read_bundle(target)
        pairs = list(counts_of(bundle))
        found += [Finding("rare count", what, _MANIFEST, None, f"fewer than {FEWEST}: {count:.3g}")
                  for what, count in pairs if 0 < round(count, 3) < FEWEST]  # fmt: skip
        counts, told = len(pairs), reveals(bundle)
    return Audit(
        len(sought), len(everything), sum(len(one.content) for one in everything),
        len(present) - len(hidden), tuple(found), overlap, counts, tuple(told), tuple(notes),
    )  # fmt: skip


# --- what is read --------------------------------------------------------------------------------


def _read(path: Path) -> bytes:
    try:
        return unpacked(path.read_bytes())
    except OSError as error:
        what = f"cannot be read: {error.strerror or error}"
        raise InputError(what, where=str(path)) from None


def _handed_over(target: Path) -> Iterator[_File]:
    """Files of a folder, but for what building left; members of an archive."""
    if target.is_file():
        content = _read(target)
        if not zipfile.is_zipfile(io.BytesIO(content)):
            yield _File(target.name, content)
            return
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            for name in sorted(archive.namelist()):
                yield _File(name, unpacked(archive.read(name)))
        return
    for name, content in read_files(target, what="a clone's folder, or a bundle"):
        if not name.startswith("build/") or name in _PROGRAMS:
            yield _File(name, content)


# --- strings -------------------------------------------------------------------------------------


def _present(sought: dict[str, tuple[str, str]], files: Sequence[_File]) -> set[str]:
    """Which appear in a file or in its name, in letters of one byte or of two."""
    whole = b"\0".join(part for one in files for part in (one.name.encode(), one.content))
    plain = {text.encode(): text for text in sought}
    wide = {text.encode("utf-16-le"): text for text in sought}
    return {plain[one] for one in find_present(plain, whole)} | {
        wide[one] for one in find_present(wide, whole)
    }


def _find_strings(
    hidden: set[str], sought: dict[str, tuple[str, str]], files: Sequence[_File], public: Public
) -> Iterator[Finding]:
    """The longest first; parts of what was found are not said once more."""
    done: dict[str, list[range]] = {one.name: [] for one in files}
    for text in sorted(hidden, key=lambda one: (-len(one), one)):
        kind, of = sought[text]
        for one in files:
            if find_place(text.encode(), one.name.encode(), public.has) is not None:
                yield Finding(kind, text, one.name, None, f"as in {of}")
            for letters in (text.encode(), text.encode("utf-16-le")):
                at = find_place(letters, one.content, public.has)
                if at is not None and not any(at in other for other in done[one.name]):
                    done[one.name].append(range(at, at + len(letters)))
                    yield Finding(kind, text, one.name, one.line_of(at), f"as in {of}")


def _find_words(files: Sequence[_File], public: Public, known: set[str]) -> Iterator[Finding]:
    """Words in texts that are none of ours, whoever's they are."""
    reported = {part.lower() for text in known for part in text.split()}
    for one in files:
        if not one.is_text:
            continue
        words: dict[str, int] = {}
        for line, word in strange_words(one.content.decode(errors="replace"), public):
            words.setdefault(word, line)
        fresh = {word: line for word, line in words.items() if word.lower() not in reported}
        for word, line in list(fresh.items())[:_MOST_WORDS]:
            yield Finding("unknown word", word, one.name, line)


def _find_addresses(files: Sequence[_File], target: Path) -> Iterator[Finding]:
    """In texts and tables: numbers that were addresses while the original ran."""
    known = literals_of(own_sources())
    for one in files:
        values: dict[str, set[int]] = {}
        if one.name.endswith(".arrow") and target.is_dir():
            values = _table_numbers(target / one.name)
        elif one.is_text:
            values[""] = literals_of([one.content.decode(errors="replace")])
        for column, seen in values.items():
            addresses = sorted(value for value in seen - known if is_address(value))
            if addresses:
                where = f"column {column}, " if column else ""
                yield Finding("address", hex(addresses[0]), one.name, None,
                              f"{where}{len(addresses)} of them")  # fmt: skip


def _table_numbers(path: Path) -> dict[str, set[int]]:
    columns = dict(read_arrow(path).columns)
    for name, column in tuple(columns.items()):
        if isinstance(column, ListOf):
            inner = column.child if isinstance(column.child, Mapping) else {"": column.child}
            columns |= {f"{name}.{part}": child for part, child in inner.items()}
    return {
        name: set(np.unique(column).tolist())
        for name, column in columns.items()
        if isinstance(column, np.ndarray) and column.dtype.kind in "iu"
    }


# --- code and numbers ----------------------------------------------------------------------------


class _Object(msgspec.Struct, frozen=True):
    """Code and data of a file."""

    name: str
    elf: Elf
    code: Stream


def _object(name: str, content: bytes) -> Iterator[_Object]:
    """None of what is no program, or for a machine that cannot be disassembled."""
    elf = read_elf(content)
    if elf is not None and elf.machine in (X86_64, AARCH64):
        yield _Object(name, elf, read_code(elf))


@cache
def _ordinary() -> tuple[Stream, Words]:
    """Code and data that every program here has."""
    found = [each for one in common_programs() for each in _object("", one)]
    words = [data_words(one.elf) for one in found]
    return Stream.join([one.code for one in found]), np.unique(np.concatenate([_NONE, *words]))


def _compare_code(
    files: Sequence[_File], contents: dict[Path, bytes], notes: list[str]
) -> tuple[Overlap | None, list[Finding]]:
    """Generated code and data against that of each original."""
    theirs = [one for path, content in contents.items() for one in _object(path.name, content)]
    if not theirs:
        notes.append("None of the originals is a program: code and numbers were not compared.")
        return None, []
    found: list[Finding] = []
    mine = list(_compiled(files, found, notes))
    ordinary, usual = _ordinary()
    known = {*ordinary.immediates, *literals_of(own_sources())}
    most: Overlap | None = None
    for one in theirs:
        same = [other for other in mine if other.elf.machine == one.elf.machine]
        if len(same) < len(mine):
            notes.append(f"{one.name} is for another machine: its code was not compared.")
        ends = np.cumsum([len(other.code) + 1 for other in same])
        overlap = compare(Stream.join([other.code for other in same]), one.code, ordinary)
        for run in overlap.runs[:_MOST_WORDS]:
            file = same[int(np.searchsorted(ends, run.number, "right"))].name
            why = f"as at {run.original:#x} of {one.name}, {run.bits:.0f} bits"
            found.append(Finding("code", "; ".join(run.instructions), file, run.place, why))
        if most is None or overlap.bits - overlap.limit > most.bits - most.limit:
            most = overlap
        for other in same:
            found += _find_constants(other, one, known, usual)
    return most, found


def _compiled(
    files: Sequence[_File], failed: list[Finding], notes: list[str]
) -> Iterator[_Object]:
    """The generated sources as objects: what is in them is what is executed."""
    here = platform.machine()
    compiler = shutil.which("cc")
    if compiler is None:
        raise InputError("there is no C compiler, which comparing code needs",
                         hint="the distribution's package gcc")  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="gnomon-audit-") as name:
        folder = Path(name)
        for file, content in own_runtime().items():
            (folder / file).write_bytes(content)
        for one in files:
            if one.name not in _GENERATED:
                continue
            if _MACHINES.get(one.name, here) != here:
                notes.append(f"{one.name} is for another machine: its code was not compared.")
                continue
            source, made = folder / one.name, folder / f"{one.name}.o"
            source.write_bytes(one.content)
            done = subprocess.run(
                [compiler, "-c", "-O2", f"-I{folder}", source, "-o", made],
                capture_output=True, text=True, check=False,
            )  # fmt: skip
            if done.returncode == 0:
                yield from _object(one.name, made.read_bytes())
            else:
                failed.append(Finding("not compared", "does not compile here", one.name))


def _find_constants(
    mine: _Object, theirs: _Object, known: set[int], usual: Words
) -> Iterator[Finding]:
    at = theirs.code.immediates
    for value in shared_immediates(mine.code.immediates, at, known):
        yield Finding("constant", hex(value), mine.name, mine.code.immediates[value],
                      f"as at {at[value]:#x} of {theirs.name}")  # fmt: skip
    in_code = np.array([one for one in mine.code.immediates if one >= 1 << 32], np.uint64)
    public = np.union1d(usual, np.array(sorted(known), np.uint64))
    words = np.union1d(data_words(mine.elf), in_code)
    for value in shared_words(words, data_words(theirs.elf), public):
        yield Finding("constant", hex(value), mine.name, None, f"as in data of {theirs.name}")
