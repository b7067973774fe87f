"""Nothing of an original may be in its clone: what is planted is found."""

from __future__ import annotations

import gzip
import json
import shutil
import socket
import subprocess
import zipfile
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gnomon.cli import main
from gnomon.errors import InputError
from gnomon.systems.clone.audit import audit
from gnomon.systems.clone.audit.constants import data_words, is_rare, literals_of
from gnomon.systems.clone.audit.elf import read_elf
from gnomon.systems.clone.audit.opcodes import Stream, compare, match_lengths, read_code
from gnomon.systems.clone.audit.reveals import counts_of
from gnomon.systems.clone.audit.strings import Public, sought_of, strange_words, strings_of
from gnomon.systems.clone.traffic import RequestClass, Traffic, traffic_c
from gnomon.table import write_arrow

RUNTIME = Path(__file__).parents[3] / "src" / "gnomon" / "systems" / "clone" / "runtime"

ORIGINAL = r"""
#include <stdint.h>
#include <stdio.h>
static const char banner[] = "AcmeLedger 4.2 ready to reconcile";
static const uint16_t wide[] = {'G', 'r', 'i', 'm', 'b', 'l', 'e', 'w', 'o', 'r', 't', 0};
const uint64_t keys[] = {0x8f3a61c27d94be05, 0x13c7e9a85b60f24d, 0x6b1d0e97a2c5483f};
uint64_t ledger_mix(uint64_t a, uint64_t b, const unsigned char *p, long n) {
    for (long i = 0; i < n; i++) {
        a ^= p[i] + keys[i % 3];
        a = (a << 13 | a >> 51) * 0xd6e8feb86659fd93u;
        if ((a ^ b) & 0x40) b = __builtin_bswap64(b) - 0x5bd1e995u * (uint32_t)i;
        else b += __builtin_popcountll(a) * 31 + (int64_t)a / 1000003;
    }
    return a ^ b;
}
uint32_t ledger_fold(const uint32_t *p, int n) {
    uint32_t s = 0x7a3c19e5, t = 0;
    while (n-- > 0) {
        s = (s >> 7 | s << 25) ^ *p++;
        t += s * 33 + (t >> 3);
        if (t % 97 == 5) s = ~s + n * 12;
    }
    return s ^ t;
}
int main(int argc, char **argv) {
    printf("%s %s %d\n", banner, argv[0], wide[argc]);
    return (int)ledger_mix(argc, 2, (unsigned char *)argv[0], argc) + (int)ledger_fold((uint32_t *)keys, argc);
}
"""
MODEL = """/* Generated: what the clone does. */
#include <stddef.h>

#include "model.h"

static const gnc_edge edges[4] = {0};
const gnc_model gnc_the_model = {.keys = 2, .edges = edges, .data_bytes = 4096};
"""
EDGES = """    .text
    .globl gnc_edge_0
    .type gnc_edge_0, @function
gnc_edge_0:
    push %rbx
    mov %rdi, %rax
    add $17, %rax
    test $0x7fe00000, %eax
    jz 1f
    imul %rax, %rbx
1:  paddd %xmm1, %xmm2
    pop %rbx
    ret
    .section .note.GNU-stack,"",@progbits
"""


def need(*programs):
    for one in programs:
        if shutil.which(one) is None:
            pytest.skip(f"{one} is absent")


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    need("cc")
    pytest.importorskip("capstone")
    folder = tmp_path_factory.mktemp("original")
    (folder / "a.c").write_text(ORIGINAL)
    subprocess.run(["cc", "-O2", "-s", folder / "a.c", "-o", folder / "ledgerd"], check=True)
    return folder / "ledgerd"


@pytest.fixture
def clone(tmp_path):
    folder = tmp_path / "clone"
    shutil.copytree(RUNTIME, folder / "runtime", ignore=shutil.ignore_patterns("CMakeLists.txt"))
    shutil.copy(RUNTIME / "CMakeLists.txt", folder)
    (folder / "model.c").write_text(MODEL)
    (folder / "edges.S").write_text(EDGES)
    (folder / "traffic.c").write_text(
        traffic_c(Traffic("resp", (RequestClass(1, "GET", 36, 264),)))
    )
    (folder / "README.md").write_text("# A clone\n\n    cmake -B build && cmake --build build\n")
    return folder


def add(path, text):
    path.write_text(path.read_text() + text)


def kinds(found):
    return {(one.kind, one.file) for one in found}


def test_a_clean_clone(clone, original):
    done = audit(clone, [original])
    assert [one.text for one in done.found] == []
    assert done.is_clean
    assert done.files == len(list(RUNTIME.iterdir())) + 4
    assert done.searched > 20
    assert done.overlap.bits < done.overlap.limit
    assert done.notes == ()


SECRETS = {
    "AcmeLedger 4.2 ready to reconcile": "string", "AcmeLedger": "word", "reconcile": "word", "Grimblewort": "string",
    "ledgerd": "file name", "Tr0ub4dor": "word", "vault-7.corp.example": "word", "/srv/acme/books.db": "string",
}  # fmt: skip


@pytest.mark.parametrize(
    "place", ["README.md", "model.c", "edges.S", "runtime/loop.c", "extra/notes.bin"]
)
def test_planted_strings_are_found(clone, original, tmp_path, place):
    settings = tmp_path / "server.conf"
    settings.write_text(
        "password Tr0ub4dor&3\nhost = vault-7.corp.example:99\n/srv/acme/books.db\n"
    )
    (clone / "extra").mkdir()
    with (clone / place).open("ab") as file:
        for secret in SECRETS:
            line = {".S": f'    .ascii "{secret}"\n', ".bin": f"\0{secret}\0"}
            file.write(line.get(Path(place).suffix, f"/* {secret} */\n").encode())
    found = audit(clone, [original, settings]).found
    texts = {one.what: one for one in found if one.kind in ("string", "word", "file name")}
    assert {one.file for one in texts.values()} == {place}
    # Parts of the first string are found where they stand alone, too, but said once.
    assert {what: one.kind for what, one in texts.items()} == {
        secret: kind
        for secret, kind in SECRETS.items()
        if secret not in ("AcmeLedger", "reconcile")
    }


@pytest.mark.parametrize("secret", ["AcmeLedger", "reconcile"])
def test_a_word_of_a_string_is_found(clone, original, secret):
    add(clone / "README.md", f"see {secret}.\n")
    (found,) = audit(clone, [original]).found
    assert (found.kind, found.what, found.file, found.place) == ("word", secret, "README.md", 4)


def test_strings_in_programs_names_archives_and_wide_letters(clone, original, tmp_path):
    (clone / "build").mkdir()
    (tmp_path / "x.c").write_text(
        '#include <stdio.h>\nint main(void) { return puts("AcmeLedger"); }\n'
    )
    subprocess.run(["cc", tmp_path / "x.c", "-o", clone / "build" / "clone"], check=True)
    (clone / "build" / "CMakeCache.txt").write_text("AcmeLedger of this machine")
    (clone / "reconcile.txt").write_text("")
    (clone / "packed.gz").write_bytes(gzip.compress(gzip.compress(b"Grimblewort")))
    (clone / "wide.bin").write_bytes(b"\0" + "reconcile".encode("utf-16-le"))
    found = audit(clone, [original]).found
    assert kinds(found) == {
        ("word", "build/clone"),
        ("word", "reconcile.txt"),
        ("string", "packed.gz"),
        ("word", "wide.bin"),
    }
    with zipfile.ZipFile(tmp_path / "clone.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("notes.txt", "AcmeLedger")
    assert ("word", "notes.txt") in kinds(audit(tmp_path / "clone.zip", [original]).found)


def test_words_that_are_nobody_s_are_reported_too(clone, original):
    add(clone / "model.c", 'static const char *zanzibar = "mumbo jumbo";\n')
    found = audit(clone, [original]).found
    assert {one.what for one in found} == {"zanzibar", "mumbo", "jumbo"}
    assert {one.place for one in found} == {MODEL.count("\n") + 1}


@pytest.mark.parametrize(
    "line",
    ["    movabs $0xd6e8feb86659fd93, %rax", "    imul $0x5bd1e995, %eax, %ecx", "    .data\n    .quad 0x13c7e9a85b60f24d",
     "    .data\n    .long 0x5b60f24d, 0x13c7e9a8", "    movabs $0x6b1d0e97a2c5483f, %rdx"],
)  # fmt: skip
def test_a_planted_constant_is_found(clone, original, line):
    add(clone / "edges.S", f"    .text\n{line}\n")
    found = audit(clone, [original]).found
    assert kinds(found) == {("constant", "edges.S")}
    assert "ledgerd" in found[0].why


def test_a_constant_in_c_is_found(clone, original):
    add(clone / "model.c", "const uint64_t gnc_data[] = {1, 2, 0x8f3a61c27d94be05, 3};\n")
    assert kinds(audit(clone, [original]).found) == {("constant", "model.c")}


def test_a_planted_run_of_code_is_found(clone, original):
    """The bytes of a function of the original, among code of our own."""
    elf = read_elf(original.read_bytes())
    (text,) = [one for one in elf.code if one.name == ".text"]
    stream = read_code(elf)
    first = next(i for i, name in enumerate(stream.names) if name.startswith("bswap")) - 14
    start, end = (stream.places[i] - text.at for i in (first, first + 26))
    stolen = ", ".join(map(hex, text.data[start:end]))
    add(
        clone / "edges.S",
        f"    .text\n    .globl gnc_edge_1\ngnc_edge_1:\n    .byte {stolen}\n    ret\n",
    )
    done = audit(clone, [original])
    (found, *_) = [one for one in done.found if one.kind == "code"]
    assert found.file == "edges.S"
    assert found.what.count(";") >= 20
    assert done.overlap.bits > done.overlap.limit


def test_addresses_are_found(clone, original):
    add(clone / "model.c", "const uint64_t gnc_at = 0x7f13a04c5e80;\n")
    (found,) = audit(clone, [original]).found
    assert (found.kind, found.what, found.file) == ("address", "0x7f13a04c5e80", "model.c")


def test_addresses_in_tables_are_found(tmp_path, original):
    write_arrow(
        tmp_path / "paths.arrow",
        {"depth": np.array([8, 274946097352]), "weight": np.array([0.5, 1e12])},
    )
    (found,) = audit(tmp_path, [original]).found
    assert (found.kind, found.file) == ("address", "paths.arrow")
    assert "depth" in found.why


def test_what_does_not_compile_is_not_called_clean(clone, original):
    add(clone / "edges.S", "    push push push\n")
    assert ("not compared", "edges.S") in kinds(audit(clone, [original]).found)


def test_without_a_program_code_is_not_compared(clone, tmp_path):
    (tmp_path / "server.conf").write_text("password Tr0ub4dor&3\n")
    done = audit(clone, [tmp_path / "server.conf"])
    assert done.is_clean
    assert done.overlap is None
    assert "not compared" in done.notes[0]


# --- a bundle ------------------------------------------------------------------------------------


def fake_bundle(count):
    step = SimpleNamespace(label="read:connection")
    script = SimpleNamespace(share=1.0, reply_sizes=((264, 90), (5, count)), steps=[step])
    server = SimpleNamespace(scripts=[script], covered=1.0, requests=100, timers=[(None, 7)], wait="epoll_wait",
                             processes=1, threads=1, background=())  # fmt: skip
    edge = SimpleNamespace(before="read:connection", after="epoll_wait", per_request=0.5)
    return SimpleNamespace(
        server=server, edges=[edge], protocol="resp", instructions=4000.0, skeleton=SimpleNamespace(blocks=[], paths=[]),
        traffic=Traffic("resp", (RequestClass(1.0, "GET", 36, 264),)), is_background=lambda _: False,
    )  # fmt: skip


@pytest.mark.parametrize(("count", "is_clean"), [(10, True), (5, True), (4, False), (1, False)])
def test_rare_counts_of_a_bundle(tmp_path, original, monkeypatch, count, is_clean):
    (tmp_path / "manifest.json").write_text('{"protocol": "resp"}')
    monkeypatch.setattr(
        "gnomon.systems.clone.audit.search.read_bundle", lambda path: fake_bundle(count)
    )
    done = audit(tmp_path, [original])
    assert done.is_clean is is_clean
    assert done.counts == len(list(counts_of(fake_bundle(count)))) == 6
    assert any("GET" in one for one in done.reveals)
    if not is_clean:
        assert [(one.kind, one.what) for one in done.found] == [
            ("rare count", "replies of 5 bytes, script 0")
        ]


# --- the parts -----------------------------------------------------------------------------------


def test_strings_of_files():
    text = "short\nlonger one\x01ünïcödé text\x00".encode()
    assert strings_of(text) == {"longer one", "ünïcödé text"}
    assert strings_of("wide letters".encode("utf-16-le")) == {"wide letters"}
    assert set(sought_of(Path("/opt/acme-api"), b"user=frieda.example")) >= {
        "acme-api",
        "acme",
        "frieda.example",
        "frieda",
    }
    assert "1234567" not in sought_of(Path("x"), b"1234567")


def test_our_own_texts_have_no_strange_words():
    public = Public()
    assert list(strange_words(EDGES, public)) == []
    assert (
        list(
            strange_words("gnc_edge_12 movdqu %xmm10 0xdeadbeefcafe 1e5 .Lgnc_3: cmovneq", public)
        )
        == []
    )
    assert [word for _, word in strange_words("mov frobnicate, %rax", public)] == ["frobnicate"]


@pytest.mark.parametrize(
    ("value", "rare"),
    [(0x5BD1E995, True), (0xD6E8FEB86659FD93, True), (0x7FE00000, False), ((1 << 64) - 8, False), (0x1000, False),
     (0x3FF0000000000000, False), (0x0101010101010101, False), (0xFFFFFFFF, False), (1 << 45, False)],
)  # fmt: skip
def test_rare_numbers(value, rare):
    assert is_rare(value) is rare


def test_numbers_in_texts():
    assert literals_of(["x = 0x1Fu, 1234567ul, 0.1234567, a1234567, 12"]) == {0x1F, 1234567}
    assert read_elf(b"\x7fELF\x02\x01" + bytes(10)) is None
    elf = read_elf(Path("/bin/sh").read_bytes())
    assert {".text", ".rodata"} <= {one.name for one in elf.sections}
    assert len(data_words(elf)) > 100


@given(st.lists(st.integers(0, 3), max_size=40), st.lists(st.integers(0, 3), max_size=40))
@settings(max_examples=200)
def test_prop_lengths_of_matches_are_those_of_a_slow_search(mine, theirs):
    lengths, where = match_lengths(np.array(mine, np.int64), np.array(theirs, np.int64))
    for at in range(len(mine)):
        wanted = max((n for n in range(len(mine) - at + 1)
                      for b in range(len(theirs) - n + 1) if mine[at : at + n] == theirs[b : b + n]), default=0)  # fmt: skip
        assert lengths[at] == wanted
        assert theirs[where[at] : where[at] + wanted] == mine[at : at + wanted]


def stream(names):
    names = list(names)
    return Stream(names, list(range(len(names))), {})


def test_what_repeats_itself_or_is_ordinary_tells_little():
    rng = np.random.default_rng(1)
    ordinary = stream([*(f"op{i}" for i in rng.integers(0, 40, 20_000)), *["jmp m", "op1"] * 20])
    noise = [f"op{i}" for i in rng.integers(0, 40, 3000)]
    other = [f"op{i}" for i in rng.integers(0, 40, 3000)]
    assert compare(stream(noise), stream(other), ordinary).runs == ()
    table = ["jmp m"] * 60
    assert compare(stream(noise + table), stream(other + table), ordinary).runs == ()
    public = ordinary.names[500:530]
    assert compare(stream(noise + public), stream(other + public), ordinary).runs == ()
    secret = [f"op{i}" for i in rng.integers(0, 40, 24)]
    (found,) = compare(stream(noise + secret), stream(other + secret), ordinary).runs
    assert list(found.instructions)[-24:] == secret
    rare = ["aesenc r", "pclmulqdq r", "crc32 r", "sha256 r", "xgetbv"]
    assert compare(stream(noise + rare), stream(other + rare), ordinary).runs
    assert compare(stream([]), stream(other), ordinary).bits == 0


# --- the command ---------------------------------------------------------------------------------


def test_the_command(clone, original, capsys):
    assert main(["clone", "audit", str(clone), "--against", str(original)]) == 0
    assert "Clean" in capsys.readouterr().out
    add(clone / "README.md", "AcmeLedger\n")
    assert main(["clone", "audit", str(clone), "--against", str(original), "--json"]) == 3
    said = json.loads(capsys.readouterr().out)
    assert said["clean"] is False
    assert said["found"] == [
        {
            "kind": "word",
            "what": "AcmeLedger",
            "file": "README.md",
            "at": 4,
            "why": "as in ledgerd",
        }
    ]
    assert said["overlap"]["limit_bits"] > said["overlap"]["bits"]


@pytest.mark.parametrize(
    ("words", "said"),
    [(["{none}", "--against", "{original}"], "no such folder"), (["{clone}", "--against", "{none}"], "cannot be read"),
     (["{clone}"], "against"), (["{empty}", "--against", "{original}"], "empty")],
)  # fmt: skip
def test_what_cannot_be_audited_gets_a_line(clone, original, tmp_path, capsys, words, said):
    (tmp_path / "empty").mkdir()
    places = {
        "none": tmp_path / "none",
        "original": original,
        "clone": clone,
        "empty": tmp_path / "empty",
    }
    assert main(["clone", "audit", *(one.format(**places) for one in words)]) in (1, 2)
    err = capsys.readouterr().err
    assert said in err.lower()
    assert "Traceback" not in err


def test_an_audit_needs_an_original(clone):
    with pytest.raises(InputError):
        audit(clone, [])


# --- a real one ----------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_clone_of_redis_is_clean(tmp_path):
    need("redis-server", "redis-benchmark", "qemu-x86_64", "cc")
    pytest.importorskip("capstone")
    from gnomon.systems.clone import profile, write_project

    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    bundle = profile(
        ["redis-server", "--port", str(port), "--save", ""],
        f"redis-benchmark -p {port} -t get -n 2000 -r 100 -d 64 -c 8 -q", protocol="resp",
    )  # fmt: skip
    write_project(bundle, tmp_path / "clone")
    done = audit(tmp_path / "clone", [Path(shutil.which("redis-server"))])
    assert [one.text for one in done.found] == []
    assert done.searched > 5000
