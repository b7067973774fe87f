"""Configuration: what is trained, and how it is spread over GPUs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from gnomon.errors import InputError

#: What `--set` and `--model` also understand.
_ALIASES = {
    "micro_batches": "accumulation",
    "microbatches": "accumulation",
    "micro_batch": "batch",
    "sequence": "seq",
    "virtual_stages": "interleave",
    "kv-heads": "kv_heads",
}
_AT_LEAST_ONE = (
    "layers", "hidden", "heads", "seq", "batch", "accumulation", "vocab",
    "dp", "pp", "tp", "cp", "ep", "interleave", "top_k",
)  # fmt: skip


#: Sizes that follow from others unless they are set.
_FOLLOWS = ("ffn", "kv_heads", "head_dim", "v_dim", "expert_ffn")
#: More than these is a slip of the keyboard.
_MOST = {"layers": 10**5, "accumulation": 10**4, "pp": 10**4}


class Configuration(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A transformer and its parallel layout.

    Attributes:
        batch: Sequences in one micro-batch of one data-parallel rank.
        accumulation: Micro-batches of one data-parallel rank in a step.
        ffn: Width of the feed-forward part; 0 means four times `hidden`.
        kv_heads: Heads of keys and values; 0 means as many as `heads`.
        head_dim: Width of a head; 0 means `hidden / heads`.
        gated: The feed-forward part has a gate (SwiGLU): three matrices rather than two.
        interleave: Chunks of layers a pipeline rank holds (virtual stages); 1 is plain 1F1B.
        cp: Ranks that share one sequence (context parallelism).
        experts: Experts of a layer; 0 means a dense model. `top_k` of them see each token,
            `expert_ffn` is the width of one (0: `ffn`), `shared_ffn` of the part that every
            token sees, `dense_layers` come first and have none; `ep` ranks share the experts.
        q_rank, kv_rank: Ranks of compressed queries and keys/values (latent attention); 0 for
            plain attention. `rope_dim` is the part of a head that carries the position,
            `v_dim` the width of a head's values (0: as `head_dim`).
        gpu, network: Names in the catalogue of machines; "" where unknown.
        dtype: Of weights and activations.
    """

    layers: int
    hidden: int
    heads: int
    seq: int
    batch: int
    ffn: int = 0
    kv_heads: int = 0
    head_dim: int = 0
    vocab: int = 50304
    accumulation: int = 1
    gated: bool = False
    dp: int = 1
    pp: int = 1
    tp: int = 1
    cp: int = 1
    ep: int = 1
    interleave: int = 1
    experts: int = 0
    top_k: int = 1
    expert_ffn: int = 0
    shared_ffn: int = 0
    dense_layers: int = 0
    q_rank: int = 0
    kv_rank: int = 0
    rope_dim: int = 0
    v_dim: int = 0
    gpu: str = ""
    network: str = ""
    dtype: str = "bf16"

    def __post_init__(self) -> None:
        for name in _AT_LEAST_ONE:
            if getattr(self, name) < 1:
                raise InputError(f"{name} has to be at least 1, not {getattr(self, name)}")
        for name, value in msgspec.structs.asdict(self).items():
            if isinstance(value, int) and not 0 <= value <= _MOST.get(name, 10**9):
                what = "cannot be negative" if value < 0 else "is too large"
                raise InputError(f"{name}={value}: it {what}")
        self._fill()
        self._check_splits()

    def _fill(self) -> None:
        set_ = msgspec.structs.force_setattr
        if not self.head_dim:
            if self.hidden % self.heads:
                raise InputError(
                    f"hidden={self.hidden} does not divide into {self.heads} heads; "
                    "set heads or head_dim too"
                )
            set_(self, "head_dim", self.hidden // self.heads)
        if not self.ffn:
            set_(self, "ffn", 4 * self.hidden)
        if not self.kv_heads:
            set_(self, "kv_heads", self.heads)
        if not self.v_dim:
            set_(self, "v_dim", self.head_dim)
        if self.experts and not self.expert_ffn:
            set_(self, "expert_ffn", self.ffn)

    def _check_splits(self) -> None:
        holders = self.dp * self.cp * self.tp
        chunks = f" of {self.interleave} chunks each" if self.interleave > 1 else ""
        checks: list[tuple[object, str]] = [
            (self.heads % self.kv_heads,
             f"{self.heads} heads cannot share {self.kv_heads} heads of keys"),
            (self.heads % self.tp, f"tp={self.tp} does not divide {self.heads} heads"),
            (self.ffn % self.tp, f"tp={self.tp} does not divide ffn={self.ffn}"),
            (self.pp * self.interleave > self.layers,
             f"{self.layers} layers cannot fill pp={self.pp} stages{chunks}"),
            (self.interleave > 1 and self.pp == 1, "interleave needs a pipeline: set pp too"),
            (self.seq % self.cp, f"cp={self.cp} does not divide seq={self.seq}"),
            (self.dense_layers > self.layers,
             f"{self.dense_layers} dense layers of only {self.layers}"),
            (not self.experts and self.ep > 1, f"ep={self.ep} splits experts: set experts too"),
            (self.experts and holders % self.ep,
             f"ep={self.ep} does not divide the {holders} ranks that hold a layer (dp x cp x tp)"),
            (self.experts and self.top_k > self.experts,
             f"top_k={self.top_k} of only {self.experts} experts"),
            (self.experts % self.ep, f"ep={self.ep} does not divide {self.experts} experts"),
        ]  # fmt: skip
        for is_wrong, what in checks:
            if is_wrong:
                raise InputError(what)

    @property
    def world(self) -> int:
        """GPUs of the job."""
        return self.dp * self.pp * self.tp * self.cp

    @property
    def tokens(self) -> int:
        """Tokens of one micro-batch on one rank."""
        return self.batch * self.seq // self.cp

    @property
    def global_batch(self) -> int:
        """Sequences in one step of the whole job."""
        return self.batch * self.accumulation * self.dp

    def changed(self, settings: Mapping[str, Any]) -> Configuration:
        """This configuration with some settings changed.

        What follows from others follows again unless it was set to something else: heads keep
        their width, and the feed-forward part its proportion to `hidden`.

        >>> base = Configuration(layers=12, hidden=2048, heads=16, seq=2048, batch=4)
        >>> wider = base.changed({"hidden": 4096})
        >>> wider.heads, wider.head_dim, wider.ffn
        (32, 128, 16384)
        """
        # Zero asks for what follows from the rest, as where it was never set.
        settings = {k: v for k, v in settings.items() if v or k not in _FOLLOWS}
        values = msgspec.structs.asdict(self) | dict(settings)
        if "head_dim" in settings and "v_dim" not in settings and self.v_dim == self.head_dim:
            values["v_dim"] = 0
        if "hidden" in settings and settings["hidden"] != self.hidden:
            self._follow_hidden(values, settings)
        elif "heads" in settings and "head_dim" not in settings:
            # More heads of the same hidden size are narrower ones.
            values["head_dim"] = 0 if self.heads * self.head_dim == self.hidden else self.head_dim
            if "v_dim" not in settings:
                values["v_dim"] = 0
        if "heads" in settings and "kv_heads" not in settings:
            values["kv_heads"] = _proportional(self.kv_heads, settings["heads"], self.heads)
        try:
            return Configuration(**values)
        except TypeError as error:
            raise InputError(str(error)) from None

    def _follow_hidden(self, values: dict[str, Any], settings: Mapping[str, Any]) -> None:
        hidden = settings["hidden"]
        if "ffn" not in settings:
            values["ffn"] = _proportional(self.ffn, hidden, self.hidden)
        if "heads" in settings or "head_dim" in settings:
            if "head_dim" not in settings:
                values["head_dim"] = 0
            if "v_dim" not in settings:
                values["v_dim"] = 0
            if "heads" not in settings:
                values["heads"] = hidden // settings["head_dim"]
        elif self.heads * self.head_dim == self.hidden and hidden % self.head_dim == 0:
            values["heads"] = hidden // self.head_dim
        else:
            values["head_dim"] = 0
            values["v_dim"] = 0
        if "kv_heads" not in settings:
            values["kv_heads"] = _proportional(self.kv_heads, values["heads"], self.heads)

    def differences(self, other: Configuration) -> dict[str, tuple[Any, Any]]:
        """What is different in the other one: name to (here, there)."""
        mine, theirs = msgspec.structs.asdict(self), msgspec.structs.asdict(other)
        return {k: (mine[k], theirs[k]) for k in mine if mine[k] != theirs[k]}

    def short(self) -> str:
        """The sizes in one line, without what is at its default.

        >>> Configuration(layers=2, hidden=64, heads=4, seq=8, batch=1, tp=2).short()
        'layers=2 hidden=64 heads=4 seq=8 batch=1 ffn=256 vocab=50304 tp=2'
        """
        always = ("layers", "hidden", "heads", "seq", "batch", "ffn", "vocab")
        default = msgspec.structs.asdict(
            Configuration(
                layers=self.layers, hidden=self.hidden, heads=self.heads, seq=self.seq, batch=1
            )
        ) if self.hidden % self.heads == 0 else {}  # fmt: skip
        shown = [
            f"{k}={v}"
            for k, v in msgspec.structs.asdict(self).items()
            if k in always or k not in default or v != default[k]
        ]
        return " ".join(shown)


def _proportional(value: int, new: int, old: int) -> int:
    return max(1, value * int(new) // old)


def parse_settings(texts: Iterable[str], what: str = "--set") -> dict[str, Any]:
    """`["layers=24,tp=2", "gpu=a100"]` as a mapping of names to values.

    >>> parse_settings(["layers=24,tp=2", "gpu=a100"])
    {'layers': 24, 'tp': 2, 'gpu': 'a100'}
    """
    types = {f.name: f.type for f in msgspec.structs.fields(Configuration)}
    settings: dict[str, Any] = {}
    for text in texts:
        for item in filter(None, (piece.strip() for piece in text.split(","))):
            name, equals, value = (part.strip() for part in item.partition("="))
            name = _ALIASES.get(name, name)
            if not equals or not value:
                raise InputError(f"{what} {item!r} is not of the form name=value")
            if name not in types:
                known = ", ".join(types)
                raise InputError(f"{what} knows no {name!r}; it knows {known}")
            parsed = _value(name, value, types[name], what)
            if settings.get(name, parsed) != parsed:
                raise InputError(f"{what} gives {name} twice")
            settings[name] = parsed
    return settings


def _value(name: str, text: str, kind: Any, what: str) -> Any:
    if kind is str:
        return text
    if kind is bool:
        text = {"yes": "true", "no": "false"}.get(text.lower(), text)
    try:
        return msgspec.convert(text, kind, strict=False)
    except msgspec.ValidationError:
        needs = "yes or no (true, false)" if kind is bool else "a whole number"
        raise InputError(f"{what} {name}={text}: {name} is {needs}") from None
