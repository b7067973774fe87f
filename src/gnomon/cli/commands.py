"""What there is to call: one place, read by the tree of commands and by the tests."""

from __future__ import annotations

__all__ = ["NOUNS", "VERBS"]

NOUNS = {
    "training": "How long is the step, why, and what if? From PyTorch profiler traces.",
}
VERBS = {
    "inspect": "What is this file, and what is in it?",
    "compare": "Two results, traces or graphs: what changed? Exit 3 when worse.",
    "report": "Show a saved result again, or write its HTML page.",
    "export": "Turn a result, trace, graph or timeline into another format.",
    "doctor": "What does this machine allow?",
    "tour": "Every system on bundled data, in about a minute.",
}
