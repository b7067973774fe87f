"""gnomon completion: the words of your shell."""

from __future__ import annotations

from typing import Annotated, Literal

from cyclopts import Parameter


def completion(
    shell: Literal["bash", "zsh", "fish"],
    *,
    install: Annotated[bool, Parameter(negative=())] = False,
) -> None:
    """Print the completion script of a shell: `eval "$(gnomon completion bash)"`.

    Args:
        shell: bash, zsh or fish.
        install: Write it to the shell's own place instead, for every session to come.
    """
    from gnomon.cli.app import app

    if install:
        print(f"wrote {app.install_completion(shell=shell, add_to_startup=False)}")
    else:
        print(app.generate_completion(shell=shell))
