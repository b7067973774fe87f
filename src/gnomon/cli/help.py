"""Help pages, printed without the parser's own renderer: it takes as long as all the rest.

The first page needs no parser at all (`commands.first_help`).
"""

from __future__ import annotations

import dataclasses
import re
import shutil
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gnomon.cli.commands import EPILOGUE

_INDENT = 2


def help_page(words: Sequence[str]) -> str | None:
    """The page of the command that the words name; None when they name none."""
    from gnomon.cli.app import app

    command, path = app, ["gnomon"]
    for word in words:
        if word.startswith("-"):
            break
        if word not in command:
            # A verb takes arguments: what follows it is not the name of a command.
            if command.default_command is None:
                return None
            break
        command = command[word]
        path.append(word)
    lines = _noun(command, path) if command.default_command is None else _verb(command, path)
    return "\n".join([*lines, "", EPILOGUE])


def _noun(command: Any, path: list[str]) -> list[str]:
    verbs = [name for name in command if not name.startswith("-")]
    rows = [(verb, _summary(command[verb].help)) for verb in verbs]
    return [f"Usage: {' '.join(path)} COMMAND ...", "", _summary(command.help), "",
            "Commands:", *_table(rows)]  # fmt: skip


def _verb(command: Any, path: list[str]) -> list[str]:
    from docstring_parser import parse

    about = parse(command.help or "")
    described = {parameter.arg_name: parameter.description or "" for parameter in about.params}
    required, options = [], []
    for argument in command.assemble_argument_collection():
        if dataclasses.is_dataclass(argument.hint):  # options in a group
            grouped = parse(argument.hint.__doc__ or "").params
            described |= {field.arg_name: field.description or "" for field in grouped}
            continue
        if not argument.show:
            continue
        name = argument.names[0]
        plain = name.removeprefix("--").replace("-", "_").lower()
        plain = plain if plain in described else f"{plain}_"  # --from is from_
        text = argument.parameter.help or described.get(plain, "")
        is_option = argument.field_info.kind is argument.field_info.KEYWORD_ONLY
        if argument.required and is_option:
            required.append((f"{name}{_placeholder(argument)}", text))
        elif argument.required:
            required.append((name.removeprefix("--").upper(), text))
        else:
            options.append((f"{name}{_placeholder(argument)}", f"{text} {_default(argument)}"))
    usage = " ".join(["Usage:", *path, *(name for name, _ in required), "[OPTIONS]"])
    lines = [usage, "", _summary(command.help)]
    if about.long_description:
        lines += ["", about.long_description]
    for heading, rows in (("Arguments", required), ("Options", options)):
        if rows:
            lines += ["", f"{heading}:", *_table(rows)]
    return lines


def _placeholder(argument: Any) -> str:
    hint = str(argument.hint)
    if "Literal[" in hint:
        choices = re.findall(r"'([^']*)'", hint.partition("Literal[")[2].partition("]")[0])
        return f" {'|'.join(choices)}"
    if "bool" in hint:
        return ""
    for kind, word in (("Path", "PATH"), ("float", "NUMBER"), ("int", "NUMBER")):
        if kind in hint:
            return f" {word}"
    return " TEXT"


def _default(argument: Any) -> str:
    """What holds when nothing is given, where that says something."""
    value = argument.field_info.default
    if value is True:
        return f"[on; {argument.names[0].replace('--', '--no-', 1)} turns it off]"
    if isinstance(value, tuple):
        value = ",".join(str(part) for part in value)
    if not isinstance(value, str | int | float | Path) or value is False or value == "":
        return ""
    return f"[{value:g}]" if isinstance(value, float) else f"[{value}]"


def _summary(text: str | None) -> str:
    return " ".join((text or "").strip().split("\n\n")[0].split())


def _table(rows: Sequence[tuple[str, str]]) -> list[str]:
    width = max(len(name) for name, _ in rows) + 2 + _INDENT
    columns = max(shutil.get_terminal_size().columns, width + 30)
    lines = []
    for name, text in rows:
        folded = textwrap.wrap(
            " ".join(text.split()), columns - width, break_long_words=False, break_on_hyphens=False
        ) or [""]
        lines.append(f"{' ' * _INDENT}{name}".ljust(width) + folded[0])
        lines += [" " * width + more for more in folded[1:]]
    return lines
