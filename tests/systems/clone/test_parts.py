"""Parts of a clone, each on inputs whose answer is known."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon.errors import InputError
from gnomon.systems.clone.bundle import (
    SLOWER,
    VERSION,
    Bundle,
    EdgeProfile,
    as_long,
    make_bundle,
    read_bundle,
    write_bundle,
)
from gnomon.systems.clone.instructions import CLASSES, INDEX, decode
from gnomon.systems.clone.kinds import Kind, kinds_of, nearest_kind, word_of
from gnomon.systems.clone.project import write_project
from gnomon.systems.clone.recording import (
    BUCKETS,
    Branches,
    Edge,
    Key,
    Recording,
    bucket_of,
    distance_of,
    read_recording,
)  # fmt: skip
from gnomon.systems.clone.server import Background, infer_server
from gnomon.systems.clone.skeleton import (
    FILLER,
    Block,
    Op,
    Skeleton,
)  # fmt: skip
from gnomon.systems.clone.skeleton import (
    Path as Walk,
)
from gnomon.systems.clone.traffic import RequestClass, Traffic
from gnomon.systems.clone.vocabulary import HTTP, MEMCACHED, RESP
from tests.systems.clone.counted import need
from tests.systems.clone.programs import make_program

ROOT = Path(__file__).parents[3]
RUNTIME = ROOT / "src" / "gnomon" / "systems" / "clone" / "runtime"
READ, WRITE, WAIT, ACCEPT, OPEN, CLOSE_CALL = 0, 1, 232, 288, 257, 3
CONNECTION, FILE = 1 << 12, 2 << 12


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


@pytest.mark.parametrize(
    ("code", "moves"),
    [("53", -8), ("4154", -8), ("5b", 8), ("e800000000", -8), ("ffd0", -8), ("c3", 8), ("4883ec18", -24),
     ("4881ec00010000", -256), ("4883c418", 24), ("488d642410", 16), ("c9", None), ("4889ec", None),
     ("4883e4f0", None), ("4829c4", None), ("4889e5", 0), ("90", 0)],
)  # fmt: skip
def test_how_far_the_stack_pointer_moves(code, moves):
    (one,) = decode(bytes.fromhex(code))
    assert one.stack == moves


@pytest.mark.parametrize(
    ("code", "frame"),
    [("4889442408", 8), ("488b0424", 0), ("488944c408", None), ("488b4508", None), ("4889d8", None),
     ("488b842400010000", 256)],
)  # fmt: skip
def test_where_in_the_stack_an_operand_lies(code, frame):
    (one,) = decode(bytes.fromhex(code))
    assert one.frame == frame


@pytest.mark.parametrize(
    ("code", "targets"),
    [("90e805000000", [None, 11]), ("eb10", [18]), ("75fe", [0]), ("90900f8400010000", [None, None, 264]),
     ("ffd0", [None]), ("c3", [None])],
)  # fmt: skip
def test_where_direct_jumps_go(code, targets):
    assert [one.target for one in decode(bytes.fromhex(code))] == targets


# --- distances -----------------------------------------------------------------------------------


@given(st.integers(0, 1 << 30), st.integers(0, 1 << 30))
def test_prop_farther_lines_are_in_no_lower_bucket(a, b):
    near, far = sorted((a, b))
    assert 0 <= bucket_of(near) <= bucket_of(far) <= BUCKETS - 2


def test_the_middle_of_a_bucket_is_in_it():
    middles = [distance_of(one) for one in range(BUCKETS - 1)]
    assert middles == sorted(set(middles))
    assert [bucket_of(int(one)) for one in middles] == list(range(BUCKETS - 1))
    assert [bucket_of(one) for one in (0, 1, 2, 3, 4, 7, 8, 15, 16, 19, 20, 31, 32)] == [
        0, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 8, 9,
    ]  # fmt: skip


def test_the_profilers_buckets_are_ours(tmp_path):
    need("c++")
    (tmp_path / "main.cpp").write_text(
        '#include <cstdio>\n#include <cstdlib>\n#include "profile/reuse.hpp"\n'
        "int main(int n, char** a) {\n"
        '  std::printf("%zu\\n", gnomon::profile::buckets);\n'
        "  for (int i = 1; i < n; ++i)\n"
        '    std::printf("%zu\\n", gnomon::profile::bucket_of(std::strtoull(a[i], nullptr, 10)));\n}\n'
    )
    subprocess.run(
        ["c++", "-std=c++20", f"-I{ROOT / 'native'}", "main.cpp", "-o", "main"],
        cwd=tmp_path,
        check=True,
    )
    distances = [
        *range(300),
        *((1 << i) + d for i in range(9, 40) for d in (-1, 0, 1, 1 << i - 2)),
    ]
    done = subprocess.run(
        [tmp_path / "main", *map(str, distances)], check=True, capture_output=True, text=True
    )
    assert list(map(int, done.stdout.split())) == [BUCKETS, *map(bucket_of, distances)]


# --- kinds of requests ---------------------------------------------------------------------------


def traffic(*classes, protocol="resp"):
    return Traffic(protocol, tuple(RequestClass(*one) for one in classes))


def test_requests_alike_are_of_one_kind():
    found = kinds_of(
        traffic(
            (0.5, "GET", 36, 264), (0.1, "GET", 40, 5), (0.3, "SET", 300, 5), (0.1, "GET", 4000, 5)
        )
    )
    assert found == [Kind("GET", 36, ((264, 0.5), (5, 0.1))), Kind("SET", 300, ((5, 0.3),)),
                     Kind("GET", 4000, ((5, 0.1),))]  # fmt: skip


def test_of_many_kinds_the_frequent_are_kept_and_no_reply_is_lost():
    many = [(0.01 * (40 - i), "GET", 100 * 2**i, i + 6) for i in range(20)]
    found = kinds_of(traffic(*many))
    assert len(found) == 8
    assert [one.request_bytes for one in found] == [size for _, _, size, _ in many[:8]]
    assert sum(weight for one in found for _, weight in one.replies) == pytest.approx(
        sum(w for w, *_ in many)
    )
    assert sorted(size for one in found for size, _ in one.replies) == [i + 6 for i in range(20)]


def test_the_command_comes_before_the_size():
    kinds = [Kind("GET", 30, ()), Kind("SET", 40, ()), Kind("GET", 900, ())]
    asked = [("GET", 31), ("GET", 800), ("SET", 900), ("PING", 41), ("PING", 2000)]
    assert [nearest_kind(kinds, *one) for one in asked] == [0, 2, 1, 1, 2]
    assert nearest_kind([], "GET", 1) == 0


@pytest.mark.parametrize(
    ("protocol", "verbs", "form"),
    [("RESP", RESP, "{} x\r\n"), ("RESP", RESP, "*1\r\n${n}\r\n{}\r\n"), ("MEMCACHED", MEMCACHED, "{} k 0 0 1\r\n"),
     ("HTTP", HTTP, "{} / HTTP/1.1\r\n\r\n")],
)  # fmt: skip
def test_words_of_commands_are_those_of_the_runtime(protocol, verbs, form, tmp_path):
    need("cc")
    (tmp_path / "main.c").write_text(
        f'#include <stdio.h>\n#include "{RUNTIME}/request.c"\n'
        f"const gnc_model gnc_the_model = {{.protocol = GNC_{protocol}}};\n"
        "int main(int n, char **a) {\n"
        "  for (int i = 1; i < n; i++) {\n"
        "    gnc_request r;\n"
        "    gnc_parse(a[i], (uint32_t)strlen(a[i]), &r);\n"
        '    printf("%u\\n", r.word);\n  }\n}\n'
    )
    subprocess.run(["cc", "-D_GNU_SOURCE", "main.c", "-o", "main"], cwd=tmp_path, check=True)
    spelled = [
        one
        for verb in sorted(verbs)
        for one in {verb, verb if protocol == "MEMCACHED" else verb.lower()}
    ]
    requests = [form.format(one, n=len(one)) for one in spelled]
    done = subprocess.run(
        [tmp_path / "main", *requests], check=True, capture_output=True, text=True
    )
    assert list(map(int, done.stdout.split())) == [word_of(one) for one in spelled]


# --- servers -------------------------------------------------------------------------------------


def rows(*calls):
    return np.array(
        [(0, key, first, 0, third, result) for key, first, third, result in calls], np.int64
    )


def recording(*calls):
    return recorded(rows(*calls))


def recorded(calls):
    none = np.zeros(0, np.int64)
    no_branches = Branches(none, none, none, none)
    return Recording(
        (),
        calls,
        0,
        no_branches,
        no_branches,
        (),
        none.reshape(-1, 4),
        b"",
        none,
        none.reshape(-1, 3),
        (),
        (),
    )


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
    tick = [(OPEN, -100, 0, 11), (READ | FILE, 11, 100, 30), (CLOSE_CALL | FILE, 11, 0, 0)]
    server = infer_server([recording(
        (WAIT, 5, 10, 0), *tick,
        (WAIT, 5, 10, 1), (ACCEPT, 4, 0, 7), (233, 5, 7, 0), (ACCEPT, 4, 0, -11),
        (WAIT, 5, 10, 1), (READ | CONNECTION, 7, 100, 20), *tick, (WRITE | CONNECTION, 7, 50, 50),
        (WAIT, 5, 10, 1), (READ | CONNECTION, 7, 100, 0), (CLOSE_CALL | CONNECTION, 7, 0, 0), (WAIT, 5, 10, 1),
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


def test_a_thread_that_waits_in_its_reads_may_wait_elsewhere_now_and_then():
    turn = [(READ | CONNECTION, 7, 5, 5), (READ | CONNECTION, 7, 40, 40),
            (WRITE | CONNECTION, 7, 50, 50)]  # fmt: skip
    server = infer_server([recording(*(100 * turn), (WAIT, 5, 10, 1))])
    assert server.requests == 100
    assert [step.label for step in server.scripts[0].steps] == [
        "read:connection",
        "write:connection",
    ]


def test_a_thread_that_reads_on_after_its_answer_needs_no_wake_up():
    """memcached: it reads from the connection that it has answered until that has nothing more."""
    again = -11  # EAGAIN
    request = [(READ | CONNECTION, 7, 100, 20), (WRITE | CONNECTION, 7, 50, 50)]
    turn = [(WAIT, 5, 10, 1), *request, *request, (READ | CONNECTION, 7, 100, again)]
    server = infer_server([recording(*(10 * turn), (WAIT, 5, 10, 1))])
    assert server.reads_on
    assert (server.requests, server.wakeups) == (20, 0.5)
    (script,) = server.scripts
    assert [step.label for step in script.steps] == ["read:connection", "write:connection"]


def test_who_answers_and_waits_does_not_read_on():
    turn = [(WAIT, 5, 10, 1), (READ | CONNECTION, 7, 100, 20), (WRITE | CONNECTION, 7, 50, 50)]
    server = infer_server([recording(*(10 * turn), (WAIT, 5, 10, 1))])
    assert not server.reads_on
    assert server.wakeups == 1.0


def test_a_thread_that_sleeps_in_between_works_in_the_background():
    """It asks for a millisecond while requests come, and for twenty while none do."""
    sleep, ms = 230, 1_000_000
    turn = [(0, WAIT, 5, 0, 10, 1), (0, READ | CONNECTION, 7, 0, 100, 20),
            (1, sleep, ms, 0, 0, 0), (0, WRITE | CONNECTION, 7, 0, 50, 50)]  # fmt: skip
    mine = np.array([*(20 * turn), *(10 * [(1, sleep, 20 * ms, 0, 0, 0)])], np.int64)
    server = infer_server([recorded(mine)])
    assert server.background == (Background("clock_nanosleep", 1.0, 20.0),)
    assert server.threads == 1


def test_an_answer_may_come_at_a_later_wake_up():
    """Event loops call handlers in their next turn, and proxies ask others first."""
    send, receive, close, other = 44, 45, 3, 20
    turn = [(WAIT, 5, 10, 2),
            (receive | CONNECTION, 7, 100, 30), (41, 2, 0, other), (send, other, 60, 60),
            (receive | CONNECTION, 8, 100, 30), (41, 2, 0, other + 1), (send, other + 1, 60, 60),
            (WAIT, 5, 10, 2),
            (receive, other + 1, 90, 80), (close, other + 1, 0, 0), (send | CONNECTION, 8, 80, 80),
            (receive, other, 90, 80), (close, other, 0, 0), (send | CONNECTION, 7, 80, 80)]  # fmt: skip
    (script,) = infer_server([recording(*(10 * turn), (WAIT, 5, 10, 1))]).scripts
    assert [[step.label for step in phase] for phase in script.phases] == [
        ["recvfrom:connection", "socket", "sendto"],
        ["epoll_wait", "recvfrom", "close", "sendto:connection"],
    ]
    assert script.reply_sizes == ((80, 20),)


def test_an_event_loop_that_looks_for_more_before_it_answers_has_no_timer():
    turn = [(WAIT, 5, 10, 1), (READ | CONNECTION, 7, 100, 20), (WAIT, 5, 10, 0),
            (WRITE | CONNECTION, 7, 50, 50)]  # fmt: skip
    server = infer_server([recording(*(10 * turn), (WAIT, 5, 10, 1))])
    assert [step.label for step in server.scripts[0].steps] == [
        "read:connection", "epoll_wait", "write:connection"]  # fmt: skip
    assert (server.timers, server.wakeups) == ((), 1.0)


def test_a_client_that_ends_as_soon_as_it_is_answered():
    other, close = 233, 3
    answered = [(WAIT, 5, 10, 1), (READ | CONNECTION, 7, 100, 20), (WAIT, 5, 10, 1),
                (WRITE | CONNECTION, 7, 50, 50)]  # fmt: skip
    ended = [(READ | CONNECTION, 7, 100, 0), (other, 5, 0, 0), (close | CONNECTION, 7, 0, 0)]
    server = infer_server([recording(*(10 * (answered + ended)), (WAIT, 5, 10, 1))])
    (script,) = server.scripts
    assert [step.label for step in script.steps] == [
        "read:connection", "epoll_wait", "write:connection"]  # fmt: skip
    assert [step.label for step in server.on_close.steps] == [
        "read:connection", "epoll_ctl", "close:connection"]  # fmt: skip


def test_a_request_may_be_handed_to_another_thread():
    """What the other one does from where it wakes up is done for the request, and counts once."""
    sleep, wake = 202, 1
    read = [(0, WAIT, 5, 0, 10, 2),
            (0, READ | CONNECTION, 7, 0, 100, 20), (0, sleep, 1, 0, wake, 1),
            (0, READ | CONNECTION, 8, 0, 100, 20), (0, sleep, 1, 0, wake, 1)]  # fmt: skip
    answered = [one for client in (7, 8) for one in (
        (1, sleep, 1, 0, 0, 0), (1, 5, 11, 0, 0, 0), (1, WRITE | CONNECTION, client, 0, 50, 50))]  # fmt: skip
    for order in (read + answered, [*read[:3], *answered[:3], *read[3:], *answered[3:]]):
        server = infer_server([recorded(np.array([*(10 * order), read[0]], np.int64))])
        (script,) = server.scripts
        assert [[step.label for step in phase] for phase in script.phases] == [
            ["read:connection"], ["fstat", "write:connection"]]  # fmt: skip
        assert (server.requests, server.threads, server.wakeups) == (20, 1, 0.5)
        assert server.handed_on == 1.0
        assert (script.reply_sizes, server.timers) == (((50, 20),), ())


def test_a_thread_may_do_other_things_before_it_answers():
    close, sleep = 3, 202
    turn = [(0, WAIT, 5, 0, 10, 1), (0, READ | CONNECTION, 7, 0, 100, 20),
            (1, sleep, 1, 0, 0, 0), (1, close | CONNECTION, 9, 0, 0, 0),
            (1, WRITE | CONNECTION, 7, 0, 50, 50)]  # fmt: skip
    server = infer_server([recorded(np.array([*(10 * turn), turn[0]], np.int64))])
    assert [step.label for step in server.scripts[0].steps] == [
        "read:connection", "write:connection"]  # fmt: skip
    assert (server.requests, server.handed_on) == (10, 1.0)


def test_answers_on_other_connections_are_a_clear_line():
    turn = [(WAIT, 5, 10, 1), (READ | CONNECTION, 7, 100, 20), (WRITE | CONNECTION, 8, 50, 50)]
    with pytest.raises(InputError, match="answered on the connection that it came from"):
        infer_server([recording(*(10 * turn))])


@pytest.mark.parametrize("calls", [[], [(READ | CONNECTION, 9, 100, 20)]])
def test_a_load_that_is_too_short_is_a_clear_line(calls):
    with pytest.raises(InputError, match="no request was answered while the load ran"):
        infer_server([recording((WAIT, 5, 10, 1), (288, 3, 0, 9), *calls)])


def test_nobody_served_is_a_clear_line():
    with pytest.raises(InputError, match="no request was served"):
        infer_server([recording((WAIT, 5, 10, 0))])


# --- bundles and projects ------------------------------------------------------------------------


def mix(**counts):
    made = np.zeros(len(CLASSES))
    for name, count in counts.items():
        made[INDEX[name]] = count
    return tuple(made.tolist())


def edge(before, after, per_request, **what):
    zero = (0.0,) * BUCKETS
    return EdgeProfile(before, after, per_request, what.get("mix", mix(alu=100)), what.get("code", zero),
                       what.get("load", zero), what.get("store", zero))  # fmt: skip


def bundle(skeleton=None):
    turn = [(WAIT, 5, 10, 1), (READ | CONNECTION, 7, 100, 20), (WRITE | CONNECTION, 7, 50, 50)]
    server = infer_server([recording(*turn, *turn, (WAIT, 5, 10, 1))])
    edges = (edge("read:connection", "write:connection", 1.0), edge("write:connection", "epoll_wait", 1.0),
             edge("epoll_wait", "read:connection", 1.0))  # fmt: skip
    made = skeleton or make_program(np.random.default_rng(1), edges=3)
    return Bundle(VERSION, "resp", server, traffic((0.9, "GET", 36, 264), (0.1, "SET", 300, 5)), edges, 0.5, 0.1,
                  (1.0, 0, 0, 0, 0, 0, 0, 0), 1.0, made, 0.25)  # fmt: skip


@given(st.integers(0, 2**31))
def test_prop_a_bundle_is_read_as_it_was_written(tmp_path_factory, seed):
    folder = tmp_path_factory.mktemp("bundle") / "x.bundle"
    whole = bundle(make_program(np.random.default_rng(seed), edges=3))
    write_bundle(whole, folder)
    assert read_bundle(folder) == whole
    assert not folder.with_name("x.bundle.part").exists()


@given(st.lists(st.lists(st.integers(1, 5000), min_size=1, max_size=30), min_size=1, max_size=3),
       st.floats(0, 1))  # fmt: skip
def test_prop_kept_executions_are_as_long_as_all_and_kinds_keep_their_share(kinds, place):
    lengths = {kind: np.array(mine, float) for kind, mine in enumerate(kinds)}
    weights = {kind: np.ones(len(mine)) * (1 + kind) for kind, mine in lengths.items()}

    def mean(found):
        total = sum(one.sum() for one in found.values())
        return sum(found[kind] @ lengths[kind] for kind in found) / total

    shortest, longest = (
        mean({kind: weights[kind].sum() * (one == pick(one)) / (one == pick(one)).sum()
              for kind, one in lengths.items()}) for pick in (np.min, np.max)
    )  # fmt: skip
    wanted = shortest + place * (longest - shortest)
    found = as_long(lengths, weights, wanted)
    for kind, one in found.items():
        assert one.sum() == pytest.approx(weights[kind].sum())
        ratios = one / weights[kind]
        assert ratios.max() <= 20.01 * ratios.min()
    is_bounded = any(one.max() >= 19.9 * one.min() for one in found.values())
    assert is_bounded or mean(found) == pytest.approx(wanted, rel=1e-3)
    # Nearer than before, or as near.
    assert abs(mean(found) - wanted) <= abs(mean(weights) - wanted) + 1e-6 * wanted


def test_branches_of_threads_that_work_by_the_clock_count_as_their_edges_do():
    """One branch is the service's, one the clock's; of a third block two thirds are the clock's."""
    sleep = 230
    turn = [(WAIT, 5, 10, 1), (READ | CONNECTION, 7, 100, 14), (WRITE | CONNECTION, 7, 50, 50)]
    calls = [(thread, *one) for _ in range(9)
             for thread, one in ((0, rows(turn[0])[0][1:]), (0, rows(turn[1])[0][1:]),
                                 (1, rows((sleep, 2_000_000, 0, 0))[0][1:]),
                                 (0, rows(turn[2])[0][1:]))]  # fmt: skip
    mix = (9.0,) * len(CLASSES)
    histogram = (0,) * BUCKETS
    edges = tuple(
        Edge(Key.of(a), Key.of(b), 9, mix, histogram, histogram, histogram)
        for a, b in ((READ | CONNECTION, WRITE | CONNECTION), (sleep, sleep))
    )
    outcomes = Branches(np.arange(3), np.array([900, 900, 900]), np.array([900, 0, 300]),
                        np.array([90, 0, 30]))  # fmt: skip
    made = msgspec.structs.replace(
        recorded(np.array(calls, np.int64)), edges=edges, branches=outcomes, indirect=outcomes,
        dependencies=(1.0,), block=np.zeros((3, 4), np.int64), executed=np.array([900, 900, 900]),
        by_edge=np.array([[0, 0, 900], [1, 1, 900], [0, 2, 300], [1, 2, 600]]),
        heads=tuple((i, b"*1\r\n$4\r\nPING\r\n") for i in range(1, 36, 4)),
    )  # fmt: skip
    found = make_bundle([made], seconds=1.0, with_paths=False)
    share = [1, 1 / SLOWER, 1 / 3 + 2 / 3 / SLOWER]
    assert found.taken == pytest.approx((900 * share[0] + 300 * share[2]) / 900 / sum(share))
    assert found.changed == pytest.approx((90 * share[0] + 30 * share[2]) / 900 / sum(share))
    assert found.turned == pytest.approx(found.changed)


def test_an_empty_skeleton_is_read_as_it_was_written(tmp_path):
    whole = bundle(Skeleton([], [], [], 1.0))
    write_bundle(whole, tmp_path / "x")
    assert read_bundle(tmp_path / "x") == whole


def test_a_bundle_is_written_over_a_bundle_and_nothing_else(tmp_path):
    write_bundle(bundle(), tmp_path / "x")
    other = msgspec.structs.replace(bundle(), seconds=9.0)
    write_bundle(other, tmp_path / "x")
    assert read_bundle(tmp_path / "x") == other
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("mine")
    with pytest.raises(InputError, match="is no bundle"):
        write_bundle(bundle(), tmp_path / "mine")
    assert (tmp_path / "mine" / "thesis.tex").read_text() == "mine"


def refused(folder):
    with pytest.raises(InputError) as error:
        read_bundle(folder)
    assert "\n" not in str(error.value)
    assert str(folder) in str(error.value)
    return str(error.value)


@pytest.mark.parametrize("name", ["blocks.arrow", "paths.arrow", "lines.arrow"])
@pytest.mark.parametrize("how", ["changed", "cut", "gone"])
def test_paths_that_are_not_as_they_were_written_are_refused(name, how, tmp_path):
    write_bundle(bundle(), tmp_path / "x")
    path = tmp_path / "x" / name
    data = path.read_bytes()
    if how == "gone":
        path.unlink()
        assert f"{name} cannot be read" in refused(tmp_path / "x")
        return
    path.write_bytes(
        data[: len(data) // 2]
        if how == "cut"
        else data[:200] + bytes([data[200] ^ 1]) + data[201:]
    )
    assert f"{name} was changed, or cut short" in refused(tmp_path / "x")


def test_manifests_that_are_none_are_refused(tmp_path):
    write_bundle(bundle(), tmp_path / "x")
    manifest = tmp_path / "x" / "manifest.json"
    text = manifest.read_text()
    assert '"seconds":1.0' in text
    for wrong, said in (
        (text.replace('"seconds":1.0', '"seconds":2.0'), "was changed"),
        (text.replace(f'"version":{VERSION}', '"version":9'), f"version 9, this is {VERSION}"),
        (text[: len(text) // 2], "not a bundle"), ("", "not a bundle"), ("{}", "not a bundle"), ("[]", "not a bundle"),
        (text.replace(f'"version":{VERSION},', ""), "not a bundle"),
    ):  # fmt: skip
        assert wrong != text
        manifest.write_text(wrong)
        assert said in refused(tmp_path / "x")
    manifest.write_bytes(b"\xff\xfe")
    assert "not a bundle" in refused(tmp_path / "x")
    manifest.unlink()
    assert "cannot be read" in refused(tmp_path / "x")
    assert "cannot be read" in refused(tmp_path / "none")


def test_a_manifest_that_leaves_files_out_is_refused(tmp_path):
    """Otherwise anything could be put in their place."""
    write_bundle(bundle(), tmp_path / "x")
    manifest = tmp_path / "x" / "manifest.json"
    text = manifest.read_text()
    for name, checksum in json.loads(text)["files"].items():
        less = (
            text.replace(f'"{name}":"{checksum}"', '"x":"y"')
            .replace(',"x":"y"', "")
            .replace('"x":"y",', "")
        )
        assert json.loads(less)["files"].keys() == json.loads(text)["files"].keys() - {name}
        manifest.write_text(less)
        refused(tmp_path / "x")


def test_a_project_is_not_written_over_something_else(tmp_path):
    (tmp_path / "thesis.tex").write_text("mine")
    with pytest.raises(InputError, match="no clone"):
        write_project(bundle(), tmp_path)
    write_project(bundle(), tmp_path / "new")
    first = (tmp_path / "new" / "edges.S").read_text()
    write_project(bundle(), tmp_path / "new")
    assert (tmp_path / "new" / "edges.S").read_text() == first


def test_edges_know_every_kind_that_the_runtime_may_name(tmp_path):
    """A table has a row for each kind, or one for all: the runtime would read beyond it otherwise."""
    ops = [Op(FILLER)]
    blocks = [
        Block(0, 9, ops, "branch", 2, 1),
        Block(9, 9, ops, "fall"),
        Block(18, 9, ops, "fall"),
    ]
    paths = [Walk(0, 0, 1.0, 0, [0, 1], []), Walk(0, 1, 1.0, 0, [0, 2], [])]
    many = traffic(*((0.1, verb, 36, 5) for verb in ("GET", "SET", "DEL", "INCR")))
    write_project(
        msgspec.structs.replace(bundle(Skeleton(blocks, paths, [])), traffic=many), tmp_path / "x"
    )
    assert ".kinds = 4," in (tmp_path / "x" / "model.c").read_text()
    table = (tmp_path / "x" / "edges.S").read_text().split(".Le0:\n")[1].split("    .text")[0]
    assert table.count(".quad") in (1, 4)


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
