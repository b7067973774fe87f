"""Found before any other by every Python that `gnomon training record` starts.

Waits for torch's optimizers to be imported, and records from there. A Python that never imports
them runs on as if this were not here, with the sitecustomize of its own that this one hides.
"""

from __future__ import annotations

import os
import sys
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

_HERE = os.path.dirname(os.path.abspath(__file__))
_WANTED = "torch.optim.optimizer"


class _OptimizerFinder:
    """Finds one module as it would be found anyway, and does something once it is loaded."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name != _WANTED:
            return None
        sys.meta_path.remove(self)
        from importlib.util import find_spec

        spec = find_spec(name)
        if spec is not None and spec.loader is not None:
            _call_after_loading(spec.loader)
        return spec


def _call_after_loading(loader: Any) -> None:
    load = loader.exec_module

    def exec_module(module: ModuleType) -> None:
        load(module)
        try:
            _record(module)
        except Exception as error:
            print(f"gnomon: not recorded: {error}", file=sys.stderr)

    loader.exec_module = exec_module


def _record(optimizers: ModuleType) -> None:
    import json

    _provide_gnomon()
    from gnomon.systems.training.recording.autostep import AutoStep, watch_optimizers

    watch_optimizers(optimizers, AutoStep(**json.loads(os.environ["GNOMON_RECORD"])))


def _provide_gnomon() -> None:
    """Our own package, from beside this file: this Python may have none, or another version.

    Not by a folder on sys.path, which would offer all that lies beside gnomon as well.
    """
    if "gnomon" in sys.modules:
        return
    from importlib.util import module_from_spec, spec_from_file_location

    root = os.path.abspath(os.path.join(_HERE, *[os.pardir] * 4))
    spec = spec_from_file_location("gnomon", os.path.join(root, "__init__.py"))
    assert spec is not None
    assert spec.loader is not None
    package = module_from_spec(spec)
    sys.modules["gnomon"] = package
    spec.loader.exec_module(package)


def _load_the_one_behind() -> None:
    """The sitecustomize that this Python would have found without us."""
    sys.path[:] = [folder for folder in sys.path if os.path.abspath(folder) != _HERE]
    spec = PathFinder.find_spec("sitecustomize", sys.path)
    if spec is None or spec.loader is None:
        return
    from importlib.util import module_from_spec

    module = module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


# Not when a test or a tool imports this file under another name.
if __name__ == "sitecustomize" and "GNOMON_RECORD" in os.environ:
    sys.meta_path.insert(0, _OptimizerFinder())
    _load_the_one_behind()
