"""Compiled kernels, each from its own file."""

import importlib.util
from pathlib import Path

import torch


class Kernel:
    """Loads its file when it is first run: compiling takes a while."""

    first = True

    def __init__(self, number):
        self.number, self.launch = number, None

    def __call__(self, *args):
        if self.launch is None:
            path = Path(__file__).with_name("compiled") / f"kernel_{self.number}.py"
            spec = importlib.util.spec_from_file_location(path.stem, path)
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
            self.launch = getattr(module, path.stem).run
        # The last recorded argument is the stream it was launched on.
        self.launch(*args[:-1], stream=torch.cuda.current_stream().cuda_stream)


def ready(bench):
    names = [name for name in bench.program["operators"] if name.startswith("kernel.")]
    return {name: Kernel(int(name.split(".")[1])) for name in names}
