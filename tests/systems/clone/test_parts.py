"""Parts of a clone, each on inputs whose answer is known."""

from __future__ import annotations

import shutil
import subprocess

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gnomon.errors import InputError
from gnomon.systems.clone.body import Memory, Target, bin_branches, state_of, write_body
from gnomon.systems.clone.bundle import Bundle, EdgeProfile, read_bundle, write_bundle
from gnomon.systems.clone.instructions import CLASSES, INDEX, decode
from gnomon.systems.clone.layout import LineStack, bucket_of, plan_code
from gnomon.systems.clone.project import plan_pieces, write_project
from gnomon.systems.clone.recording import BUCKETS, Branches, Recording, read_recording
from gnomon.systems.clone.server import infer_server
from gnomon.systems.clone.tune import correct

READ, WRITE, WAIT, ACCEPT, OPEN, CLOSE, CONNECTION, FILE = 0, 1, 232, 288, 257, 3, 1 << 12, 2 << 12


@pytest.mark.parametrize(
    ("code", "kind"),
    [("4801d8", "alu"), ("480303", "alu_load"), ("480103", "alu_store"), ("4889d8", "mov"),
     ("488b03", "load"), ("488903", "store"), ("488d4308", "lea"), ("53", "push"), ("5b", "pop"),
     ("e800000000", "call"), ("ffd0", "call_indirect"), ("c3", "ret"), ("eb00", "jmp"),
     ("ff2500000000", "jmp_indirect"), ("7400", "branch"), ("480f44c3", "cmov"), ("480fafc3", "mul"),
     ("48f7f3", "div"), ("660ffec1", "vector"), ("f30f6f03", "vector_load"), ("f30f7f03", "vector_store"),
     ("f348ab", "string"), ("f083030a", "atomic"), ("0f1f00", "nop"), ("f30f1efa", "nop"), ("0fa2", "other")],
)  # fmt: skip
def test_classes_of_instructions(code, kind):
    (one,) = decode(bytes.fromhex(code))
    assert CLASSES[one.kind] == kind


def test_parts_of_a_register_are_that_register():
    one, other = decode(bytes.fromhex("4801d8" + "00d8"))  # add rbx to rax, bl to al
    assert set(one.reads) == set(other.reads) == {0, 3}
    assert set(one.writes) == set(other.writes) == {0}


@given(st.lists(st.integers(0, 30), max_size=200))
def test_prop_a_line_stack_knows_distances(lines):
    stack, seen = LineStack(), []
    for line in lines:
        wanted = bucket_of(seen.index(line)) if line in seen else BUCKETS - 1
        assert stack.visit(line) == wanted
        if line in seen:
            seen.remove(line)
        seen.insert(0, line)


def test_a_path_has_about_the_distances_that_were_wanted():
    """Those that Redis has between two reads."""
    wanted = np.zeros(BUCKETS)
    wanted[:10] = [432, 43, 42, 40, 60, 48, 56, 26, 38, 291]
    path = plan_code(wanted, 113, np.random.default_rng(1))
    found = path.reuse()
    assert found[1:].sum() == pytest.approx(wanted[1:].sum(), rel=0.1)
    assert (
        np.abs(np.cumsum(found - wanted)[1:] - (found - wanted)[0]).max() < 0.12 * wanted[1:].sum()
    )


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.floats(0, 300), min_size=12, max_size=12),
    st.integers(0, 200),
    st.integers(0, 2**31),
)
def test_prop_any_wish_has_a_path(wish, calls, seed):
    wanted = np.zeros(BUCKETS)
    wanted[: len(wish)] = wish
    path = plan_code(wanted, calls, np.random.default_rng(seed))
    assert path.own >= 1
    assert len(path.calls) == path.own
    assert all(0 <= leaf < len(path.leaves) for called in path.calls for leaf in called)


def mix(**counts):
    made = np.zeros(len(CLASSES))
    for name, count in counts.items():
        made[INDEX[name]] = count
    return tuple(made.tolist())


def histogram(*counts):
    return tuple(float(one) for one in (*counts, *([0] * (BUCKETS - len(counts)))))


TARGET = Target(
    "body", mix(alu=300, load=120, store=60, mov=90, branch=110, call=20, ret=20, push=40, pop=40, jmp=10, lea=30),
    histogram(100, 10, 8, 8, 10, 8, 40), histogram(80, 30, 20, 20, 15, 10, 5, 0, 0, 3),
    histogram(60, 20, 10, 5, 5), 100.0,
)  # fmt: skip


def test_a_body_assembles_and_returns(tmp_path):
    if shutil.which("cc") is None:
        pytest.skip("cc is absent")
    memory = Memory()
    bins = bin_branches(np.array([900.0, 50, 50]), np.array([0.0, 50, 20]), np.array([0.0, 0, 15]))
    text = write_body(TARGET, bins, (0.3, 0.2, 0.2, 0.1, 0.1, 0.05, 0.03, 0.02), memory,
                      np.random.default_rng(0))  # fmt: skip
    (tmp_path / "body.S").write_text(
        "    .text\n" + text + '    .section .note.GNU-stack,"",@progbits\n'
    )
    (tmp_path / "memory.c").write_text(state_of(memory))
    (tmp_path / "main.c").write_text(
        "#include <stdlib.h>\nvoid body(void); void gnc_edges_begin(void *);\n"
        f"int main(void) {{ gnc_edges_begin(aligned_alloc(64, {64 * memory.lines}));\n"
        "  for (int i = 0; i < 1000; ++i) body(); return 7; }\n"
    )
    subprocess.run(
        ["cc", "-O1", "main.c", "memory.c", "body.S", "-o", "body"], cwd=tmp_path, check=True
    )
    assert subprocess.run([tmp_path / "body"], check=False, timeout=60).returncode == 7
    again = write_body(TARGET, bins, (0.3, 0.2, 0.2, 0.1, 0.1, 0.05, 0.03, 0.02), Memory(),
                       np.random.default_rng(0))  # fmt: skip
    assert again == text


COUNTS = st.floats(0, 120)


@settings(max_examples=30, deadline=None)
@given(st.lists(COUNTS, min_size=len(CLASSES), max_size=len(CLASSES)),
       *(st.lists(COUNTS, min_size=0, max_size=BUCKETS) for _ in range(3)), st.integers(0, 2**31))  # fmt: skip
def test_prop_any_target_has_a_body(counts, code, load, store, seed):
    target = Target("body", tuple(counts), histogram(*code), histogram(*load), histogram(*store))
    bins = bin_branches(np.array([5.0, 3, 2]), np.array([0.0, 3, 1]), np.array([0.0, 0, 1]))
    text = write_body(
        target, bins, (1.0, 0, 0, 0, 0, 0, 0, 0), Memory(), np.random.default_rng(seed)
    )
    defined = {line[:-1] for line in text.splitlines() if line.endswith(":")}
    wanted = {
        word for line in text.splitlines() for word in line.split() if word.startswith(".Lbody")
    }
    assert {one for one in wanted if not one.endswith((":", "(%rip)"))} <= defined


def rows(*calls):
    return np.array(
        [(0, key, first, 0, third, result) for key, first, third, result in calls], np.int64
    )


def recording(*calls):
    none = np.zeros(0, np.int64)
    return Recording((), rows(*calls), 0, Branches(none, none, none), ())


def test_reads_of_all_before_writes_to_all_are_phases():
    turn = [(WAIT, 5, 10, 3), *((READ | CONNECTION, c, 100, 20) for c in (7, 8, 9)),
            *((WRITE | CONNECTION, c, 50, 50) for c in (9, 8, 7))]  # fmt: skip
    server = infer_server([recording(*turn, *turn, (WAIT, 5, 10, 1))])
    (script,) = server.scripts
    assert [[step.label for step in phase] for phase in script.phases] == [
        ["read:connection"],
        ["write:connection"],
    ]
    assert server.requests == 6
    assert script.reply_sizes == ((50, 6),)
    assert server.wakeups == pytest.approx(2 / 6)


def test_connections_and_timers_are_no_requests():
    tick = [(OPEN, -100, 0, 11), (READ | FILE, 11, 100, 30), (CLOSE | FILE, 11, 0, 0)]
    server = infer_server([recording(
        (WAIT, 5, 10, 0), *tick,
        (WAIT, 5, 10, 1), (ACCEPT, 4, 0, 7), (233, 5, 7, 0), (ACCEPT, 4, 0, -11),
        (WAIT, 5, 10, 1), (READ | CONNECTION, 7, 100, 20), *tick, (WRITE | CONNECTION, 7, 50, 50),
        (WAIT, 5, 10, 1), (READ | CONNECTION, 7, 100, 0), (CLOSE | CONNECTION, 7, 0, 0), (WAIT, 5, 10, 1),
    )])  # fmt: skip
    assert server.requests == 1
    assert [step.label for step in server.scripts[0].steps] == [
        "read:connection",
        "write:connection",
    ]
    assert server.on_accept is not None
    assert [step.label for step in server.on_accept.steps] == ["accept4", "epoll_ctl"]
    assert server.on_close is not None
    ((timer, count),) = server.timers
    assert ([step.label for step in timer.steps], count) == (
        ["openat", "read:file", "close:file"],
        2,
    )


def test_nobody_served_is_a_clear_line():
    with pytest.raises(InputError, match="no request was served"):
        infer_server([recording((WAIT, 5, 10, 0))])


def edge(before, after, per_request, **what):
    zero = histogram()
    return EdgeProfile(before, after, per_request, what.get("mix", mix(alu=100)), what.get("code", zero),
                       what.get("load", zero), what.get("store", zero))  # fmt: skip


def bundle():
    turn = [(WAIT, 5, 10, 1), (READ | CONNECTION, 7, 100, 20), (WRITE | CONNECTION, 7, 50, 50)]
    server = infer_server([recording(*turn, *turn, (WAIT, 5, 10, 1))])
    edges = (edge("read:connection", "write:connection", 1.0, mix=TARGET.mix, code=TARGET.code),
             edge("write:connection", "epoll_wait", 1.0), edge("epoll_wait", "read:connection", 1.0))  # fmt: skip
    return Bundle(1, "resp", server, edges, tuple(bin_branches(np.ones(1), np.zeros(1), np.zeros(1))),
                  (1.0, 0, 0, 0, 0, 0, 0, 0), 1.0)  # fmt: skip


def test_a_bundle_is_read_as_it_was_written_and_not_otherwise(tmp_path):
    path = tmp_path / "x.bundle"
    write_bundle(bundle(), path)
    assert msgspec.structs.replace(read_bundle(path), checksum="") == bundle()
    text = path.read_text()
    for wrong in (text.replace('"seconds": 1.0', '"seconds": 2.0'), text[: len(text) // 2],
                  text.replace('"version": 1', '"version": 9'), "{}", ""):  # fmt: skip
        path.write_text(wrong)
        with pytest.raises(InputError) as refused:
            read_bundle(path)
        assert "\n" not in str(refused.value)
    with pytest.raises(InputError, match="cannot be read"):
        read_bundle(tmp_path / "none")


def test_edges_after_one_call_share_what_they_have_in_common():
    long, short = mix(alu=500, load=100), mix(alu=300, load=200)
    pieces = plan_pieces(
        [edge("read", "read", 0.9, mix=long), edge("read", "write", 0.1, mix=short)]
    )
    common = next(one for one in pieces.targets if one.name.startswith("gnc_after"))
    assert (common.mix[INDEX["alu"]], common.mix[INDEX["load"]]) == (300, 100)
    for (_, after), wanted in {("read", "read"): long, ("read", "write"): short}.items():
        names = pieces.edges["read", after]
        total = np.sum([one.mix for one in pieces.targets if one.name in names], axis=0)
        assert total.tolist() == list(wanted)


def test_what_is_off_is_corrected():
    want, seen = edge("a", "b", 1.0, mix=mix(alu=100)), edge("a", "b", 1.0, mix=mix(alu=130))
    (asked,) = correct([want], [seen], [want])
    assert asked.mix[INDEX["alu"]] == pytest.approx(76)
    (same,) = correct([want], [], [want])
    assert same == want


def test_a_project_is_not_written_over_something_else(tmp_path):
    (tmp_path / "thesis.tex").write_text("mine")
    with pytest.raises(InputError, match="no clone"):
        write_project(bundle(), tmp_path)
    write_project(bundle(), tmp_path / "new")
    first = (tmp_path / "new" / "edges.S").read_text()
    write_project(bundle(), tmp_path / "new")
    assert (tmp_path / "new" / "edges.S").read_text() == first


def test_recordings_that_are_none(tmp_path):
    for content in (
        b"",
        b"GNPROF01"
        + b"block"
        + bytes(11)
        + (8).to_bytes(8, "little")
        + (99).to_bytes(8, "little"),
    ):
        (tmp_path / "out").write_bytes(content)
        with pytest.raises(InputError):
            read_recording(tmp_path / "out")
