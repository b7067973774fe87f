"""The catalogue of machines: GPUs, and the networks between their nodes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import TypeVar

import msgspec

from gnomon.errors import InputError

_CATALOGUE = Path(__file__).with_name("gpus.toml")
#: Words that say who sells a board, not which one it is.
_VENDORS = ("nvidia", "amd", "tesla", "instinct")
_ALIKE = {"fp16": "bf16", "bf16": "fp16"}
_NAMES = {
    "float32": "fp32",
    "float16": "fp16",
    "half": "fp16",
    "bfloat16": "bf16",
    "float8": "fp8",
}


class Gpu(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One GPU of the catalogue, as its data sheet describes it.

    Attributes:
        memory_gb_s: Bandwidth of its memory, 1e9 bytes per second.
        tflops: Dense peak by data type (bf16, fp16, tf32, fp32, fp8, fp4).
        sms: Its processors (streaming multiprocessors, compute units).
        link: Class of the links to the other GPUs of its node.
        node_gpus: GPUs of a usual node.
        sustained: Share of the peak that long GEMMs keep up in training, where power limits
            the clock; 0 where nothing is known of it beyond the tables.
        price_usd_h: One GPU for an hour; 0 where no price was looked up.
        like: The GPU of the same design whose measurements speak for it too.

    >>> find_gpu("NVIDIA A100-SXM4-80GB").peak_tflops("bf16")
    312.0
    """

    name: str
    memory_gib: float
    memory_gb_s: float
    tflops: Mapping[str, float]
    sms: int
    power_w: float
    idle_w: float
    link: str
    node_gpus: int
    source: str
    sustained: float = 0.0
    price_usd_h: float = 0.0
    price_source: str = ""
    aliases: tuple[str, ...] = ()
    like: str = ""

    def peak_tflops(self, dtype: str) -> float:
        """Dense peak for a data type; a type that the GPU lacks runs as the next wider one."""
        wanted = canonical_dtype(dtype)
        for name in (wanted, _ALIKE.get(wanted, wanted), *_WIDER.get(wanted, ())):
            if name in self.tflops:
                return self.tflops[name]
        known = ", ".join(self.tflops)
        raise InputError(f"{self.name} has no rate for {dtype!r}", hint=f"known are {known}")


#: What replaces a type without units of its own.
_WIDER = {
    "fp4": ("fp8", "bf16", "fp16", "fp32"),
    "fp8": ("bf16", "fp16", "fp32"),
    "bf16": ("fp16", "fp32"),
    "fp16": ("bf16", "fp32"),
    "tf32": ("fp32",),
}


class Network(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What connects nodes.

    Attributes:
        gb_s: Line rate of one GPU's share, one direction, 1e9 bytes per second.
        latency_us: What a message waits before its first byte arrives.
    """

    name: str
    gb_s: float
    latency_us: float
    source: str
    aliases: tuple[str, ...] = ()


class _Catalogue(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    gpu: tuple[Gpu, ...]
    network: tuple[Network, ...]


_Entry = TypeVar("_Entry", bound=Gpu | Network)


def canonical_dtype(name: str) -> str:
    """`torch.bfloat16`, `BFloat16` and `bf16` are one type.

    >>> canonical_dtype("torch.bfloat16")
    'bf16'
    """
    plain = name.lower().removeprefix("torch.").removeprefix("c10::")
    return _NAMES.get(plain, plain)


def find_gpu(name: str) -> Gpu:
    """The GPU that goes by this name, however its vendor, a driver or a person writes it.

    >>> find_gpu("h200").name, find_gpu("Tesla V100-SXM2-32GB").name
    ('H200', 'V100')
    """
    return _find(name, _load().gpu, "GPU")


def find_network(name: str) -> Network:
    """The network that goes by this name.

    >>> find_network("ib-ndr").gb_s
    50.0
    """
    return _find(name, _load().network, "network")


def gpu_names() -> tuple[str, ...]:
    """The names of all GPUs of the catalogue."""
    return tuple(entry.name for entry in _load().gpu)


def network_names() -> tuple[str, ...]:
    """The names of all networks of the catalogue."""
    return tuple(entry.name for entry in _load().network)


def _find(name: str, entries: Iterable[_Entry], what: str) -> _Entry:
    candidates = list(entries)
    wanted = _words(name)
    for candidate in candidates:
        if any(wanted == _words(known) for known in (candidate.name, *candidate.aliases)):
            return candidate
    # A driver's name goes on after the part that matters: "H200 NVL 141GB".
    begins = [e for e in candidates if wanted[: len(_words(e.name))] == _words(e.name)]
    if begins:
        return max(begins, key=lambda e: len(_words(e.name)))
    names = ", ".join(candidate.name for candidate in candidates)
    raise InputError(f"no {what} is called {name!r}", hint=f"known are {names}")


def _words(name: str) -> tuple[str, ...]:
    words = name.lower().replace("-", " ").replace("_", " ").split()
    return tuple(word for word in words if word not in _VENDORS)


@cache
def _load() -> _Catalogue:
    return msgspec.toml.decode(_CATALOGUE.read_bytes(), type=_Catalogue)
