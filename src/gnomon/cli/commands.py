"""What there is to call: read by the tree of commands, the first page of help, and the tests.

Nothing is imported here: help at the top must not wait for a parser.
"""

from __future__ import annotations

ABOUT = "Read what a datacenter workload left behind, rebuild it, play it again, decide."
EPILOGUE = """\
Every command takes --help and --verbose, and --json where it answers something.
Exit codes: 0 done, 1 internal error, 2 wrong input or usage, 3 the answer is "no"."""

NOUNS = {
    "training": "How long is the step, why, and what if? From PyTorch profiler traces.",
    "aibench": "Hand over an AI workload without the model: benchmarks from execution traces.",
    "batch": "When should which stage run, given the grid? Spark jobs, PCAPS and CAP.",
    "services": "How little CPU meets this SLA? Microservices: simulator, process lab, managers.",
    "clone": "Hand over a service without its code: profile it, generate a clone, tune it.",
    "threads": "Which policy and quantum keep short requests short? Simulator and C library.",
    "carbon": "What does it emit, and which number should I minimise? Grids, accounts, placement.",
}
VERBS = {
    "inspect": "What is this file, and what is in it?",
    "compare": "Two results, traces or graphs: what changed? Exit 3 when worse.",
    "report": "Show a saved result again, or write its HTML page.",
    "export": "Turn a result, trace, graph or timeline into another format.",
    "doctor": "What does this machine allow?",
    "completion": "Completion for bash, zsh and fish.",
    "tour": "Every system on bundled data, in about a minute.",
}


def first_help() -> str:
    """The first page of help.

    >>> print(first_help().splitlines()[0])
    Usage: gnomon COMMAND ...
    """
    width = max(map(len, (*NOUNS, *VERBS))) + 2
    parts = ["Usage: gnomon COMMAND ...", "", ABOUT]
    for heading, commands in (("Systems", NOUNS), ("Shared", VERBS)):
        parts += ["", f"{heading}:"]
        parts += [f"  {name:<{width}}{about}" for name, about in commands.items()]
    parts += [
        "",
        "Options:",
        f"  {'--help':<{width}}This page.",
        f"  {'--version':<{width}}The version.",
    ]
    return "\n".join([*parts, "", EPILOGUE])
