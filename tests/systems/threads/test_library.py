"""The C library as a stranger uses it: headers, pkg-config, CMake, the examples, safety under torture."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from gnomon import _core

ROOT = Path(__file__).resolve().parents[3]
PREFIX = Path(_core.__file__).parent
POLLED, SIGNALS = ("safepoint", "clock"), ("signal", "sleeper", "posix_timer")
FIGURES = {
    *(f"{kind}_{share}_us" for kind in ("get", "scan") for share in ("p50", "p99", "p999")),
    "policy", "utilisation", "late_send_p99_us", "compressed_mb_per_s", "preemptions", "answered", "lost",
    "get_p99_gain",
}  # fmt: skip


def find(tool):
    """A program of the system, or one beside Python."""
    found = shutil.which(tool) or shutil.which(tool, path=str(Path(sys.executable).parent))
    if found is None:
        pytest.skip(f"{tool} is absent")
    return found


def run(*command, **how):
    return subprocess.run(
        [str(one) for one in command], capture_output=True, text=True, check=False, timeout=280, **how
    )  # fmt: skip


def built(*command, **how):
    done = run(*command, **how)
    assert done.returncode == 0, done.stderr


def flags(*wanted):
    done = run(find("pkg-config"), *wanted, "gnomon-threads",
               env=os.environ | {"PKG_CONFIG_PATH": str(PREFIX / "lib" / "pkgconfig")})  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("programs")
    for one in (made, *made.parents[:2]):  # an ordinary user runs some of them
        one.chmod(0o755)
    return made


@pytest.fixture(scope="module")
def kv(folder):
    (folder / "zlib.cpp").write_text("#include <zlib.h>\n")
    if run(find("c++"), "-fsyntax-only", folder / "zlib.cpp").returncode != 0:
        pytest.skip("the headers of zlib are absent")
    built(find("cmake"), "-S", ROOT / "examples" / "threads_kv", "-B", folder / "kv",
          f"-DCMAKE_PREFIX_PATH={PREFIX}", "-DCMAKE_BUILD_TYPE=Release")  # fmt: skip
    built(find("cmake"), "--build", folder / "kv")
    return folder / "kv" / "kv"


@pytest.fixture(scope="module")
def native(folder):
    """Programs of native/threads/tests, linked with the installed library."""

    def build(name):
        target = folder / name
        if not target.exists():
            built(find("c++"), "-std=c++20", "-O2", ROOT / "native" / "threads" / "tests" / f"{name}.cpp",
                  "-o", target, *flags("--cflags", "--libs"))  # fmt: skip
        return target

    return build


def test_the_headers_compile_without_a_warning(folder):
    strict = ("-Wall", "-Wextra", "-Werror", "-fsyntax-only", f"-I{PREFIX}/include")
    for standard in ("gnu99", "c11"):
        built(
            find("cc"), f"-std={standard}", *strict, "-x", "c", PREFIX / "include/gnomon/threads.h"
        )
    (folder / "wrapper.cpp").write_text("#include <gnomon/threads.hpp>\n")
    built(find("c++"), "-std=c++20", *strict, folder / "wrapper.cpp")
    (folder / "paper.c").write_text(
        "#define GNT_PAPER_NAMES\n#include <gnomon/threads.h>\n"
        "static intptr_t f(void *a) { utimer_arm_deadline(gnt_now() + 1000); return (intptr_t)a; }\n"
        "int main(void) { gnt_source *s = utimer_init(\"none\"); utimer_register(s);\n"
        "  gnt_context *c = gnt_context_new(0); fn_launch(f, (void *)3, c, 1000);\n"
        "  return fn_completed(c) && gnt_result(c) == 3 ? 0 : 1; }\n"
    )  # fmt: skip
    built(find("cc"), "-Wall", "-Werror", folder / "paper.c", "-o", folder / "paper",
          *flags("--cflags", "--libs"))  # fmt: skip
    assert run(folder / "paper").returncode == 0


@pytest.mark.parametrize("is_static", [False, True])
def test_hello_says_what_it_should(folder, is_static):
    example = ROOT / "examples" / "threads_c"
    libraries = (
        [PREFIX / "lib" / "libgnomon_threads.a", "-lstdc++", "-ldl", "-pthread", "-lm"]
        if is_static else flags("--libs")
    )  # fmt: skip
    target = folder / f"hello{is_static:d}"
    built(find("cc"), "-Wall", "-Wextra", "-Werror", example / "hello.c", "-o", target,
          *flags("--cflags"), *libraries)  # fmt: skip
    done = run(target)
    assert (done.returncode, done.stdout) == (0, (example / "hello.out").read_text()), done.stderr


def test_code_without_polls_is_given_some_by_the_compiler(folder):
    (folder / "auto.c").write_text(
        "#include <gnomon/threads.h>\n#include <stdio.h>\n"
        "static volatile int resumed;\n"
        "static intptr_t loop(void *a) { while (resumed < 3) ; return (intptr_t)a; }\n"
        "int main(void) {\n"
        "  gnt_source *s = gnt_source_open(\"safepoint\", NULL, 0); gnt_attach(s);\n"
        "  gnt_context *c = gnt_context_new(0);\n"
        "  int status = gnt_launch(c, loop, (void *)5, 10000);\n"
        "  for (; status == GNT_PREEMPTED; status = gnt_resume(c, 10000)) resumed++;\n"
        "  printf(\"%d\\n\", (int)gnt_result(c)); gnt_detach(); gnt_source_close(s); return 0; }\n"
    )  # fmt: skip
    built(find("cc"), "-O1", "-fsanitize-coverage=trace-pc", folder / "auto.c", "-o", folder / "auto",
          *flags("--cflags"), PREFIX / "lib" / "libgnomon_threads_autopoll.a", *flags("--libs"))  # fmt: skip
    assert run(folder / "auto").stdout == "5\n"


OVERFLOW = """
#include <gnomon/threads.h>
static intptr_t big(void *a) { volatile char room[96 * 1024]; room[0] = 1; return room[0] + (intptr_t)a; }
int main(void) {
  gnt_pool_options o = GNT_POOL_OPTIONS; o.source = "none";
  gnt_pool *p = gnt_pool_start(&o, 0, 0); gnt_job j = {.function = big};
  gnt_submit(p, &j, 0); gnt_pool_stop(p, 1); return 0; }
"""
STATIC = """
#include <gnomon/threads.h>
static intptr_t nothing(void *a) { return (intptr_t)a; }
int main(void) {
  gnt_pool_options o = GNT_POOL_OPTIONS; o.source = "posix_timer";
  gnt_pool *p = gnt_pool_start(&o, 0, 0); gnt_job j = {.function = nothing};
  int status = gnt_submit(p, &j, 0); gnt_pool_stop(p, 1); return status == GNT_ESTATIC ? 0 : 1; }
"""
STATICS = """
#include <gnomon/threads.h>
#include <cstdio>
static std::FILE *file;
static long spin() { for (long end = gnt_now() + 300000; gnt_now() < end;) {} return 1; }
static intptr_t work(void *) {
  static long once = spin();
  for (int i = 0; i < 20000; ++i) std::fputc('x', file);
  return once; }
int main() {
  gnt_allow_everything(1);
  file = std::fopen("/dev/null", "w");
  gnt_pool_options o = GNT_POOL_OPTIONS; o.source = "posix_timer"; o.policy = GNT_ROUND_ROBIN; o.quantum_ns = 50000;
  gnt_pool *p = gnt_pool_start(&o, nullptr, 0); gnt_job j = {}; j.function = work;
  for (int i = 0; i < 4; ++i) gnt_submit(p, &j, nullptr);
  gnt_pool_stop(p, 1); std::fclose(file); return 0; }
"""


def test_a_frame_larger_than_a_page_is_an_overflow_too(folder):
    (folder / "big.c").write_text(OVERFLOW)
    built(find("cc"), "-O0", folder / "big.c", "-o", folder / "big", *flags("--cflags", "--libs"))
    done = run(folder / "big")
    assert done.returncode == -signal.SIGSEGV
    assert "overflowed its stack of 64 KiB" in done.stderr


@pytest.mark.parametrize("how", ["-static", "-static-pie"])
def test_programs_that_contain_libc_are_refused(folder, how):
    (folder / "static.c").write_text(STATIC)
    made = run(find("cc"), how, folder / "static.c", "-o", folder / "static", *flags("--cflags"),
               PREFIX / "lib" / "libgnomon_threads.a", "-lstdc++", "-lm", "-pthread")  # fmt: skip
    if made.returncode != 0:
        pytest.skip(f"no {how} programs here")
    assert run(folder / "static").returncode == 0


def test_statics_and_single_characters_with_the_guard_library(folder):
    (folder / "statics.cpp").write_text(STATICS)
    built(
        find("c++"), folder / "statics.cpp", "-o", folder / "statics", *flags("--cflags", "--libs")
    )
    guard = PREFIX / "lib" / "libgnomon_threads_guard.so"
    assert run(folder / "statics", env=os.environ | {"LD_PRELOAD": str(guard)}).returncode == 0


@pytest.mark.parametrize("source", [*POLLED, *SIGNALS])
def test_the_key_value_server_answers(kv, source):
    done = run(kv, "--rounds", 1, "--requests", 300, "--source", source, "--json")
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["source"] == source
    assert min(answer["get_service_us"], answer["scan_service_us"]) > 0
    assert [one["policy"] for one in answer["policies"]] == ["fcfs", "two-queue"]
    for mine in answer["policies"]:
        assert set(mine) == FIGURES
        assert mine["answered"] + mine["lost"] == 300
        assert mine["answered"] > 0
        assert mine["get_p50_us"] <= mine["get_p99_us"]


def test_best_effort_beside_the_server(kv):
    done = run(kv, "--rounds", 1, "--requests", 300, "--best-effort", "--json")
    assert done.returncode == 0, done.stderr
    assert all(one["compressed_mb_per_s"] > 0 for one in json.loads(done.stdout)["policies"])


def test_an_ordinary_user_can_run_it(kv):
    if os.geteuid() != 0:
        pytest.skip("this is an ordinary user already")
    done = run("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", kv, "--rounds", 1,
               "--requests", 300, "--realtime", cwd="/")  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "worse" in done.stdout + done.stderr


@pytest.mark.parametrize(
    "wrong", [["--load", "7"], ["--policy", "magic"], ["--source", "magic"], ["--rubbish"],
              ["--requests", "many"], ["--load"]],
)  # fmt: skip
def test_rubbish_gets_one_line(kv, wrong):
    done = run(kv, *wrong)
    assert done.returncode == 2
    assert len(done.stderr.strip().splitlines()) == 1


@pytest.mark.parametrize("source", ["clock", "safepoint", "signal"])
@pytest.mark.parametrize(
    ("case", "code"),
    [("fork-and-exit", 7), ("fork-and-return", 0), ("exit-inside", 5), ("stop-inside", 6),
     ("never-stopped", 4)],
)  # fmt: skip
def test_processes_end_and_forks_are_told(native, case, code, source):
    done = run(native("processes"), case, source)
    assert done.returncode == code, done.stderr


def torture(native, mode, source, seconds, preemptions):
    environment = dict(os.environ)
    if mode == "guard-library":
        environment["LD_PRELOAD"] = str(PREFIX / "lib" / "libgnomon_threads_guard.so")
    done = run(native("torture"), mode, source, seconds, preemptions, env=environment)
    assert done.returncode == 0, done.stderr
    assert "preemptions" in done.stdout


@pytest.mark.parametrize("mode", ["allow-list", "guard-library"])
@pytest.mark.parametrize("source", ["signal", "posix_timer"])
def test_nothing_breaks_under_torture(native, mode, source):
    torture(native, mode, source, 0.5, 300)


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize("mode", ["allow-list", "guard-library"])
@pytest.mark.parametrize("source", ["signal", "posix_timer"])
def test_nothing_breaks_under_a_minute_of_torture(native, mode, source):
    torture(native, mode, source, 60, 10_000)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_library_works_on_aarch64(folder):
    """In an emulator, where timers of the kernel fire before a function gets on at all."""
    compiler, emulator = find("aarch64-linux-gnu-g++"), find("qemu-aarch64")
    native = ROOT / "native"
    sources = [
        one for one in (native / "threads").glob("*.cpp") if one.stem not in ("guard", "autopoll")
    ]
    target = folder / "aarch64"
    for alone in ("guard", "autopoll"):
        built(compiler, "-std=c++20", "-fno-builtin", f"-I{native}/threads/include", "-c",
              native / "threads" / f"{alone}.cpp", "-o", folder / "alone.o")  # fmt: skip
    built(compiler, "-std=c++20", "-O2", "-ffp-contract=off", "-pthread", f"-I{native}", f"-I{native}/threads/include",
          native / "threads" / "tests" / "threads_test.cpp", *sources, *(native / "engine" / "cores").glob("*.cpp"),
          "-o", target)  # fmt: skip
    done = run(emulator, "-L", "/usr/aarch64-linux-gnu", target, *POLLED, "signal", "sleeper")
    assert done.returncode == 0, done.stderr
    assert "checks" in done.stdout
