"""What a refusal looks like: exit code 2, one line on stderr, nothing else."""

from __future__ import annotations

import json

from gnomon.cli import main


def answer(capsys, *words, code=0):
    """What a command prints as JSON."""
    assert main([*map(str, words), "--json"]) == code
    return json.loads(capsys.readouterr().out)


def refused(capsys, *words):
    """The line that a command is refused with."""
    assert main([*map(str, words)]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("gnomon: ")
    assert shown.err.count("\n") == 1
    return shown.err
