"""Strings of an original, and words that reveal nothing about it.

Public is what every C program on this machine has, what the protocols' commands are called, and
what is written in gnomon itself: a clone is made of our own texts and of numbers.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from functools import cache
from importlib.resources import as_file, files
from pathlib import Path

from gnomon.systems.clone.audit.elf import read_elf
from gnomon.systems.clone.vocabulary import HTTP, MEMCACHED, RESP

#: Shorter strings appear everywhere by chance; names of files may be a little shorter.
SHORTEST, _SHORTEST_NAME = 6, 4
_LETTER = (
    rb"[\x20-\x7e]|[\xc2-\xdf][\x80-\xbf]|[\xe0-\xef][\x80-\xbf]{2}|[\xf0-\xf4][\x80-\xbf]{3}"
)
_TEXT = re.compile(rb"(?:" + _LETTER + rb"){%d,}" % SHORTEST)
_WIDE = re.compile(rb"(?:[\x20-\x7e]\0){%d,}" % SHORTEST)
#: Parts of a text that may be secret where the whole is not there: names, hosts, addresses.
_PARTS = (re.compile(rf"\w{{{SHORTEST},}}"), re.compile(rf"[\w.@-]{{{SHORTEST},}}"))
_MOST_LETTERS = 4096
_WORDS = re.compile(r"[^\W\d_]+")
#: Also checksums.
_NUMBER = re.compile(
    r"\b(?:0[xX][0-9a-fA-F]+|[0-9a-f]{64}|\d+(?:\.\d*)?(?:[eE][-+]?\d+)?)[uUlLfF]*\b"
)
_EMPTY_PROGRAM = "int main(void) { return 0; }\n"
#: What compilers add to names.
_COMPILERS = (
    "__compound_literal constprop isra part cold lto_priv str1 str8 rodata cst16 cst8 cst4"
)
_AROUND = " \t.,:;@%-+=()[]{}<>'\"`*&!?#/\\|$"
_LIBRARIES = ("libc.so.6", "libm.so.6", "libpthread.so.0", "ld-linux-x86-64.so.2")
_SUFFIXES = (".py", ".c", ".h", ".txt", ".toml", ".S")


def strings_of(content: bytes) -> set[str]:
    """Printable texts of a file; of a program, those outside its code.

    >>> sorted(strings_of(b"\\0\\1port=80\\0s\\0e\\0c\\0r\\0e\\0t\\0\\0short"))
    ['0secret', 'port=80', 'secret']
    """
    elf = read_elf(content)
    pieces = [content] if elf is None else [one.data for one in elf.data]
    found: set[str] = set()
    for piece in pieces:
        texts = (one[0] for one in _TEXT.finditer(piece) if len(one[0]) <= _MOST_LETTERS)
        found |= {text.decode(errors="ignore") for text in texts}
        for one in _WIDE.finditer(piece):
            text = one[0].decode("utf-16-le")
            # A letter and a zero may also be the end of a string of narrow letters.
            is_end = one.start() > 0 and piece[one.start() - 1 : one.start()].isascii()
            found |= {text, text[1:]} if is_end and len(text) > SHORTEST else {text}
    return found


def sought_of(path: Path, content: bytes) -> dict[str, str]:
    """What is searched for, and what it is: texts, words in them, and the name of the file."""
    texts = strings_of(content)
    found = {word: "word" for text in texts for part in _PARTS for word in part.findall(text)}
    found |= dict.fromkeys(texts, "string")
    names = {path.name, path.stem, *re.split(r"[-_.]", path.name)}
    found |= {name: "file name" for name in names if len(name) >= _SHORTEST_NAME}
    return {text: kind for text, kind in found.items() if not text.strip().isdigit()}


class Public:
    """Whether a text reveals nothing.

    >>> public = Public(["pthread_create", "GCC: (Debian 12)"])
    >>> [public.has(text) for text in ("pthread_create", "gnc_model", "epoll_wait", "acme_login")]
    [True, True, True, False]
    """

    def __init__(self, common: Iterable[str] = ()) -> None:
        """Learns from gnomon's own sources, and from strings of other programs."""
        self._text = "\n".join([*own_sources(), *common, *RESP, *MEMCACHED, *HTTP, _COMPILERS])
        self._words = frozenset(re.findall(r"\w+", self._text))
        self._letters = frozenset(one.lower() for one in _WORDS.findall(self._text))
        self._asked: dict[str, bool] = {}

    def has(self, text: str) -> bool:
        if text not in self._asked:
            plain = text.strip(_AROUND)
            self._asked[text] = plain in self._words or self._appears(plain) or _is_register(plain)
        return self._asked[text]

    def has_letters(self, word: str) -> bool:
        """Whether a word without digits is one of ours, or of assembly."""
        low = word.lower()
        names = _instruction_names()
        return low in self._letters or low in names or low.rstrip("bwlq") in names

    def _appears(self, text: str) -> bool:
        """As a whole: `step` is not known for `steps` being there."""
        if not text or text not in self._text:
            return not text
        before = r"(?<!\w)" if re.match(r"\w", text[0]) else ""
        after = r"(?!\w)" if re.match(r"\w", text[-1]) else ""
        return re.search(f"{before}{re.escape(text)}{after}", self._text) is not None


def _is_register(text: str) -> bool:
    """Or another name of assembly, with or without a number: xmm10."""
    return text.isalnum() and text.rstrip("0123456789").lower() in _instruction_names()


@cache
def public_here() -> Public:
    """With what every program on this machine has."""
    return Public(text for one in common_programs() for text in strings_of(one))


@cache
def own_runtime() -> dict[str, bytes]:
    """The files of the runtime, as every clone has them."""
    with as_file(files("gnomon.systems.clone") / "runtime") as folder:
        return {one.name: one.read_bytes() for one in folder.iterdir() if one.is_file()}


@cache
def own_sources() -> tuple[str, ...]:
    """What clones are written by: templates, the runtime, and words about them.

    Not what audits are: their examples are of others.
    """
    with as_file(files("gnomon.systems.clone")) as folder:
        return tuple(
            one.read_text(errors="replace")
            for one in sorted(folder.rglob("*"))
            if one.suffix in _SUFFIXES and one.parent.name != "audit" and one.is_file()
        )


@cache
def _instruction_names() -> frozenset[str]:
    """Mnemonics and registers, as far as the disassembler is installed."""
    try:
        import capstone
        from capstone import arm64_const, x86_const
    except ImportError:
        return frozenset()
    del capstone
    names = {*vars(x86_const), *vars(arm64_const)}
    found = [re.fullmatch(r"(?:X86|ARM64)_(?:INS|REG)_(\w+)", name) for name in names]
    letters = {part for one in found if one for part in _WORDS.findall(one[1].lower())}
    return frozenset(letters)


@cache
def common_programs() -> tuple[bytes, ...]:
    """An empty C program compiled here, and the libraries that programs on this machine share."""
    return (*_empty_program(), *(path.read_bytes() for path in common_libraries()))


@cache
def common_libraries() -> tuple[Path, ...]:
    """The C library and what comes with it."""
    folders = ("/lib/x86_64-linux-gnu", "/lib64", "/usr/lib64", "/lib/aarch64-linux-gnu", "/lib")
    found = []
    for name in _LIBRARIES:
        paths = [Path(folder) / name for folder in folders]
        found += [path for path in paths if path.is_file()][:1]
    return tuple(found)


def _empty_program() -> Iterator[bytes]:
    compiler = shutil.which("cc")
    if compiler is None:
        return
    with tempfile.TemporaryDirectory(prefix="gnomon-audit-") as name:
        source, program = Path(name) / "empty.c", Path(name) / "empty"
        source.write_text(_EMPTY_PROGRAM)
        done = subprocess.run([compiler, source, "-o", program], capture_output=True, check=False)
        if done.returncode == 0:
            yield program.read_bytes()


def strange_words(text: str, public: Public) -> Iterator[tuple[int, str]]:
    """Words of a generated text that are none of ours, with the number of their line.

    Digits and signs are left out: what remains is what our templates are written with, names of
    instructions and of registers.
    """
    for number, line in enumerate(text.splitlines(), 1):
        for word in _WORDS.findall(_NUMBER.sub(" ", line)):
            plain = word.removeprefix("L") if f".{word}" in line else word
            if len(plain) >= _SHORTEST_NAME and not public.has_letters(plain):
                yield number, word
