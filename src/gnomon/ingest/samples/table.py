"""Tables of times: a request a row, of load testers or of anyone's own log.

Of JMeter, hey, k6, ab and vegeta the column and its unit are known. In any other table the column
of times is found by its name, which may end in a unit (`latency_ms`, `Duration (us)`), and that of
classes likewise. A file of bare numbers, or of names and numbers, needs no header but a unit.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterable, Iterator

import msgspec

from gnomon.errors import InputError
from gnomon.ingest.delimited import Decimals, Delimited, header_of, read_lines
from gnomon.ingest.moment import is_time
from gnomon.ingest.samples.outcome import Judge, Outcome, find_outcomes, is_http
from gnomon.ingest.samples.samples import UNIT_HINT, UNITS_NS, SampleRows, Samples

_UNIT_WORDS = {
    **dict.fromkeys(("ns", "nanos", "nsec", "nanosecond", "nanoseconds"), "ns"),
    **dict.fromkeys(("us", "µs", "μs", "micros", "usec", "microsecond", "microseconds"), "us"),
    **dict.fromkeys(("ms", "millis", "msec", "millisecond", "milliseconds"), "ms"),
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), "s"),
}
#: Names of columns in small letters, without marks and units; the first that is there counts.
_SERVICE = (
    "servicetime", "service", "processingtime", "processing", "executiontime", "execution",
    "exectime", "selftime", "owntime", "cputime", "handlertime", "worktime", "runtime",
)  # fmt: skip
_LATENCY = (
    "duration", "elapsed", "elapsedtime", "latency", "responsetime", "requesttime", "totaltime",
    "requestduration", "responselatency", "took", "rt", "time",
)  # fmt: skip
_KINDS = (
    "class", "kind", "label", "operation", "operationname", "op", "requesttype", "type", "name",
    "endpoint", "route", "handler", "command", "function", "func", "method", "path", "url", "uri",
)  # fmt: skip
_MOMENT = re.compile(r"stamp|start|begin|end|date|epoch|offset|^time$")
#: A rate, not a time: `Requests/s`.
_RATE = re.compile(r"/\s*[a-zµμ]+\W*$", re.IGNORECASE)
#: What may as well say how long a test has run: it does where it only rises.
_CLOCKS = frozenset({"time", "elapsed", "elapsedtime"})
#: Load testers that write no header.
_VEGETA = re.compile(r"\d{19},\d{1,3},\d{1,19},\d+,\d+,")
_BARE_JMETER = re.compile(r"\d{13},\d{1,9},[^\n]*,(true|false),")
_AS_TABLE = "write the times as a table: class,service_us"
#: What is not read, by how its text begins: what it is, and what to do.
_UNREAD = (
    (re.compile(r"Running \S+ test @"), "the output of wrk, a summary without single times",
     "wrk2 --latency prints a distribution"),
    (re.compile(r"<(?:.*?<)?testResults", re.DOTALL), "JMeter's XML", "save results as CSV"),
    (re.compile(r"<"), "XML", _AS_TABLE),
    (re.compile(r"\{[^\n]*\n\s*\{"), "JSON lines", f"vegeta: encode --to csv; else {_AS_TABLE}"),
    (re.compile(r"[{\[]"), "JSON of no known kind", _AS_TABLE),
    (re.compile(r"\S+(?: \S+){1,4} \[\d\d/\w{3}/\d{4}:"), "an access log", _AS_TABLE),
    (re.compile(r"Type,Name,Request Count|Timestamp,User Count"), "a summary of Locust",
     "log the time of each request as a table: name,latency_ms"),
)  # fmt: skip
#: Lines that are looked at before a table is read.
_PEEK = 20


class Tool(msgspec.Struct, frozen=True):
    """A load tester's table: columns that give it away, and those that are read."""

    name: str
    has: frozenset[str]
    time: str
    unit: str
    kind: str = ""


_TOOLS = (
    Tool("JMeter", frozenset({"timestamp", "elapsed", "label"}), "elapsed", "ms", "label"),
    Tool("hey", frozenset({"responsetime", "dnsdialup"}), "responsetime", "s"),
    Tool("k6", frozenset({"metricname", "timestamp", "metricvalue"}), "metricvalue", "ms", "name"),
    Tool("ab", frozenset({"ctime", "dtime", "ttime", "wait"}), "ttime", "ms"),
    Tool("ab's percentiles", frozenset({"percentageserved", "time"}), "time", "ms"),
)
#: What k6 calls the time of a request among its metrics.
_K6_TIMES = frozenset({"http_req_duration", "grpc_req_duration"})


class _Layout(msgspec.Struct, frozen=True):
    """Which column is what; -1 where there is none.

    Attributes:
        only: A column, and what has to be in it for a row to count.
        may_be_clock: Its name leaves open whether it says how long or when.
    """

    width: int
    time: int
    unit: str | None
    is_latency: bool
    about: str
    kind: int = -1
    outcomes: tuple[Outcome, ...] = ()
    only: tuple[int, frozenset[str]] | None = None
    is_headed: bool = True
    may_be_clock: bool = False


def is_load_test(head: bytes) -> bool:
    """Whether a file begins as the table of a known load tester does.

    >>> is_load_test(b"timeStamp,elapsed,label,responseCode\\n"), is_load_test(b"a,elapsed\\n")
    (True, False)
    """
    text = head.decode("utf-8", "replace").lstrip()
    stems = [_stem(name) for name in header_of(head)]
    is_bare = _VEGETA.match(text) is not None or _BARE_JMETER.match(text) is not None
    return is_bare or _tool(stems) is not None


def looks_like_samples(head: bytes) -> bool:
    """Whether a file begins as a table with a named column of times does.

    >>> looks_like_samples(b"class,service_us\\nGET,5\\n"), looks_like_samples(b"a,b\\n1,2\\n")
    (True, False)
    """
    if b"\0" in head or head[:1] in (b"{", b"["):
        return False
    try:
        _, layout, _ = _open(head.decode("utf-8", "replace").splitlines(True)[:_PEEK], "")
    except InputError:
        return False
    return layout.is_headed


def read_sample_table(path: str | os.PathLike[str], unit: str | None = None) -> Samples:
    """The times of a table, row by row; rows of failed requests are counted and left out."""
    where = os.fspath(path)
    table, layout, first = _open(read_lines(where), where)
    chosen = unit or layout.unit
    if chosen is None:
        hint = f"{UNIT_HINT}{', or in its name: latency_ms' if layout.is_headed else ''}"
        raise InputError(f"nothing says the unit of {layout.about}", where=where, hint=hint)
    rows, scale, decimals = SampleRows(where), UNITS_NS[chosen], Decimals(table.separator)
    judge = Judge(layout.outcomes, lambda at: _holds_http(where, at))
    before, is_rising = -1.0, True
    for row in itertools.chain([] if layout.is_headed else [first], table):
        if row == first and layout.is_headed:
            continue  # files that were put together repeat it
        _check_shape(table, row, layout)
        if layout.only and row[layout.only[0]] not in layout.only[1]:
            rows.left_out["rows of other metrics"] += 1
        elif (by := judge.failed_by(row)) is not None:
            rows.left_out[f"requests that failed (by {by!r})"] += 1
        elif not (cell := row[layout.time].strip()):
            rows.left_out["rows without a time"] += 1
        else:
            kind = row[layout.kind].partition("?")[0] if layout.kind >= 0 else ""
            time = _time(table, decimals, cell)
            before, is_rising = time, is_rising and time > before
            rows.add(kind, time * scale)
    rows.notes += [f"Times are those of {layout.about}, in {chosen}.", *judge.notes]
    samples = rows.build(is_latency=layout.is_latency)
    if layout.may_be_clock and is_rising and len(samples) > 2:
        hint = "call the column of times service_us or latency_ms"
        raise InputError(f"{layout.about} only rises: it is a clock", where=where, hint=hint)
    return samples


def _time(table: Delimited, decimals: Decimals, cell: str) -> float:
    try:
        number = decimals.number(cell)
    except InputError as error:
        raise table.error(error.what, error.hint) from None
    if number is None or not number < 1e300:
        raise table.error(f"{cell[:40]!r} is no time", "a missing one is an empty cell")
    if number < 0:
        raise table.error(f"a time of {cell[:40]} is negative")
    return number


def _check_shape(table: Delimited, row: list[str], layout: _Layout) -> None:
    if len(row) == layout.width and "\n" not in row[layout.time]:
        return
    if (lines := "".join(row).rstrip().count("\n")) or row[-1].endswith("\n"):
        raise table.error("a quote that is not closed", "double it inside of a cell",
                          max(table.line - lines, 1))  # fmt: skip
    table.check_width(row, layout.width)


def _holds_http(where: str, at: int) -> bool:
    """Whether codes of HTTP are anywhere in a column."""
    table, _, first = _open(read_lines(where), where)
    return any(is_http(row[at]) for row in itertools.chain([first], table) if at < len(row))


def _open(lines: Iterable[str], where: str) -> tuple[Delimited, _Layout, list[str]]:
    """A table behind its first row, which of its columns is what, and that row."""
    whole = iter(lines)
    peeked = list(itertools.islice(whole, _PEEK))
    _refuse_unread("".join(peeked).lstrip(), where)
    table = Delimited(_apart(itertools.chain(peeked, whole), peeked), where)
    first = next(table, None)
    if first is None:
        raise InputError("the file is empty", where=where)
    is_number = _numbers(first, table.separator)
    if any(is_number):
        return table, _bare(first, is_number, where), first
    shown = [
        _numbers(row, table.separator)
        for row in itertools.islice(Delimited(_apart(peeked, peeked), where), 1, None)
    ]
    if not shown:
        raise InputError("there is a header and nothing below it", where=where)
    is_number = [any(row[at : at + 1] == [True] for row in shown) for at in range(len(first))]
    return table, _headed(first, is_number, where), first


def _refuse_unread(text: str, where: str) -> None:
    for begin, what, hint in _UNREAD:
        if begin.match(text):
            raise InputError(f"this is {what}", where=where, hint=hint)


def _numbers(row: list[str], separator: str) -> list[bool]:
    return [Decimals(separator).is_number(cell.strip()) for cell in row]


def _apart(lines: Iterable[str], peeked: list[str]) -> Iterator[str]:
    """Lines with tabs between cells, where blanks part them."""
    shown = [line for line in peeked if line.strip() and not line.startswith("#")][:2]
    widths = {len(line.split()) for line in shown}
    is_blank = len(widths) == 1 and widths != {1} and not re.search(r"[,;|\t]", "".join(shown))
    return ("\t".join(line.split()) + "\n" for line in lines) if is_blank else iter(lines)


def _bare(first: list[str], is_number: list[bool], where: str) -> _Layout:
    """A table without a header: bare numbers, names and numbers, or a load tester's."""
    if _VEGETA.match(",".join(first)):
        return _Layout(len(first), 2, "ns", True, "vegeta", kind=10 if len(first) > 10 else -1,
                       outcomes=(Outcome(1, "code", "code"), Outcome(5, "error", "error")),
                       is_headed=False)  # fmt: skip
    if match := _BARE_JMETER.match(",".join(first)):
        success = Outcome(first.index(match[1]), "success", "flag")
        return _Layout(len(first), 1, "ms", True, "JMeter", 2, (success,), is_headed=False)
    if sum(is_number) != 1 or len(first) > 2:
        what = f"{len(first)} columns and no header: which one is the time?"
        raise InputError(what, where=where, hint="name them in the first line: class,service_us")
    kind = is_number.index(False) if len(first) == 2 else -1
    if is_time(first[kind].strip()):  # when, not what
        kind = -1
    return _Layout(len(first), is_number.index(True), None, False, "its numbers", kind,
                   is_headed=False)  # fmt: skip


def _headed(names: list[str], is_number: list[bool], where: str) -> _Layout:
    stems = [_stem(name) for name in names]
    outcomes = find_outcomes(names, [name if _unit(name) else _stem(name) for name in names])
    if (tool := _tool(stems)) is not None:
        kind = stems.index(tool.kind) if tool.kind in stems else -1
        only = (stems.index("metricname"), _K6_TIMES) if tool.name == "k6" else None
        return _Layout(len(names), stems.index(tool.time), tool.unit, True,
                       f"{tool.name} ({names[stems.index(tool.time)]!r})", kind, outcomes,
                       only)  # fmt: skip
    time = _time_column(names, stems, is_number, where)
    kind = next((stems.index(name) for name in _KINDS if name in stems), -1)
    return _Layout(len(names), time, _unit(names[time]), stems[time] not in _SERVICE,
                   f"column {names[time].strip()!r}", kind, outcomes,
                   may_be_clock=stems[time] in _CLOCKS and len(names) > 1)  # fmt: skip


def _time_column(names: list[str], stems: list[str], is_number: list[bool], where: str) -> int:
    """By its name; else the one that has a unit of time, or the only one."""
    numeric = [at for at in range(len(names)) if is_number[at]]
    # A bare 'time' says when, as a rule; and of 'service' without numbers a unit has to say more.
    sure = [at for at, stem in enumerate(stems)
            if _unit(names[at]) or (stem in _LATENCY and stem != "time")]  # fmt: skip
    named = [at for at in numeric if stems[at] != "time" or at in sure or len(names) == 1]
    for known, at in itertools.chain(
        itertools.product((*_SERVICE, *_LATENCY), named),
        itertools.product((*_SERVICE, *_LATENCY), sure),
    ):
        if stems[at] == known:
            return at
    lengths = [at for at in sure if not _MOMENT.search(stems[at])]
    timed = [at for at in lengths if is_number[at]] or lengths
    if len(timed) == 1:
        return timed[0]
    if len(names) == 1 and numeric:
        return 0
    listed = ", ".join(repr(name.strip()[:40]) for name in names[:12])
    what = "more than one column may be the time" if timed else "no column says how long it took"
    hint = f"call one service_us or latency_ms; columns are {listed}"
    raise InputError(what, where=where, hint=hint)


def _tool(stems: list[str]) -> Tool | None:
    return next((tool for tool in _TOOLS if tool.has <= set(stems)), None)


def _words(name: str) -> list[str]:
    apart = re.sub(r"([a-z0-9])([A-Z])", r"\1 \2", name).lower()
    return [word for word in re.split(r"[^a-z0-9µμ]+", apart) if word and word != "in"]


def _unit(name: str) -> str | None:
    words = _words(name)
    if len(words) < 2 or words[-2] == "per":
        return None
    is_rate = _RATE.search(name) and "".join(words[:-1]) not in (*_SERVICE, *_LATENCY)
    return None if is_rate else _UNIT_WORDS.get(words[-1])


def _stem(name: str) -> str:
    words = _words(name)
    return "".join(words[:-1] if _unit(name) else words)
