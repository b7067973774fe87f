"""The data of a benchmark: made up, in range, and the same for the same seed."""

import sys

import torch


def refuse(line):
    print(f"run.py: {line}", file=sys.stderr)
    sys.exit(2)


def peak_bytes():
    """Most memory that this process had, 0 where the system does not report it."""
    try:
        import resource
    except ImportError:
        return 0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def free_bytes():
    """Memory that this machine can still give; unlimited where it does not report it."""
    try:
        with open("/proc/meminfo") as lines:
            known = dict(line.split(":") for line in lines)
        return int(known["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        return sys.maxsize


def spin_rate():
    """Cycles of the device's sleep in a tenth of a microsecond."""
    cycles = 10_000_000
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda._sleep(cycles)
    begin.record()
    torch.cuda._sleep(cycles)
    end.record()
    end.synchronize()
    return cycles / (begin.elapsed_time(end) * 1e4)


def view_as(base, dtype, shape, strides, offset):
    """A tensor of another type on the same memory."""
    raw = torch.empty(0, dtype=dtype, device=base.device)
    return raw.set_(base.untyped_storage(), offset, shape, strides)


class Data:
    """Tensors that are there before the first step."""

    def __init__(self, program, device, args):
        self.program, self.device, self.looked = program, device, {}
        self.how, _, self.how_much = args.indices.partition(":")
        self.weights = self.read_weights()
        self.seeds = {d: torch.Generator(d).manual_seed(args.seed) for d in ("cpu", str(device))}
        self.fits()
        storages = [self.fill(*row) for row in self.kinds()]
        self.made = [
            view_as(storages[number], *self.look(meta)[:3], offset)
            for number, offset, meta in program["made"]
        ]
        for (number, *_), tensor in zip(program["made"], self.made):
            kind, *rest = program["storages"][number][2] or [""]
            if kind == "o":
                self.ramp(tensor, *rest)

    def ramp(self, offsets, count, ends):
        """Offsets that begin with zero and never fall; the last is the end where they have one."""
        steps = max(offsets.numel() - ends, 1)
        even = torch.arange(offsets.numel(), device=offsets.device) * count // steps
        offsets.copy_(even.view(offsets.shape))

    def read_weights(self):
        try:
            if self.how == "histogram":
                return torch.tensor([float(line) for line in open(self.how_much)])
            if self.how == "zipf":
                return float(self.how_much or 1.0)
            if self.how == "uniform":
                return None
            refuse(f"--indices {self.how}: uniform, zipf:EXPONENT or histogram:FILE")
        except (OSError, ValueError) as error:
            refuse(f"--indices: {error}")

    def fits(self):
        """Refuses what has no room, before the machine runs out of memory."""
        needed = self.program["settings"].get("peak_bytes", 0)
        if self.device.type == "cuda":
            room = torch.cuda.mem_get_info()[0]
        else:
            room = free_bytes()
        if needed > room:
            refuse(
                f"needs about {needed / 2**30:.1f} GiB, and {self.device} has "
                f"{room / 2**30:.1f} GiB free"
            )

    def kinds(self):
        """Each storage with its type and the width of its rows, from the tensors on it."""
        looks = {}
        for number, _, meta in self.program["made"]:
            looks.setdefault(number, self.program["metas"][meta])
        for number, (nbytes, on_cpu, fill) in enumerate(self.program["storages"]):
            dtype, shape = looks.get(number, ["uint8", []])[:2]
            width = shape[-1] if len(shape) == 2 else 1
            if len(shape) > 2:
                width = max(1, torch.Size(shape[1:]).numel())
            if not hasattr(torch, dtype) or dtype.startswith(("q", "bits", "float4")):
                refuse(f"cannot make data of type {dtype}")
            yield nbytes, on_cpu, fill, getattr(torch, dtype), width

    def look(self, number):
        dtype, shape, strides, on_cpu = self.program["metas"][number]
        if strides is None:
            strides = torch.empty(shape, device="meta").stride()
        return getattr(torch, dtype), shape, strides, "cpu" if on_cpu else self.device

    def new(self, number):
        """A tensor that looks as recorded; who asks for the same look gets the same one."""
        if number not in self.looked:
            dtype, shape, strides, device = self.look(number)
            reach = 1 + sum((size - 1) * step for size, step in zip(shape, strides))
            nbytes = dtype.itemsize * (reach if 0 not in shape else 0)
            width = shape[-1] if shape else 1
            flat = self.fill(nbytes, device == "cpu", [], dtype, width)
            self.looked[number] = flat.as_strided(shape, strides)
        return self.looked[number]

    def fit(self, tensor, number):
        """What came out, where it has the recorded shape; else something that has."""
        is_right = list(tensor.shape) == self.program["metas"][number][1]
        return tensor if is_right else self.new(number)

    def fill(self, nbytes, on_cpu, fill, dtype, width):
        device = torch.device("cpu") if on_cpu else self.device
        size = -(-nbytes // dtype.itemsize)
        pin = on_cpu == 2 and self.device.type == "cuda"
        flat = torch.empty(size, dtype=dtype, device=device, pin_memory=pin)
        seed = self.seeds[str(device)]
        kind, *rest = fill or [""]
        if kind == "i":
            return self.indices(flat, *rest)
        if kind == "o":
            return flat.zero_()  # each row of offsets begins at zero, see `ramp`
        if kind == "t":
            flat.zero_()
            flat[torch.randperm(size, device=device, generator=seed)[: rest[0]]] = 1
            return flat
        if kind == "c" or size == 1:  # a lone number may well be divided by
            return flat.fill_(rest[0] if rest else 1)
        if dtype == torch.bool:
            return flat.copy_(torch.rand(size, device=device, generator=seed) < 0.5)
        if not (dtype.is_floating_point or dtype.is_complex):
            return flat.zero_()
        if dtype.itemsize == 1:  # eight bits cannot be drawn
            return flat.copy_(torch.randn(size, device=device, generator=seed))
        if kind in ("p", "u"):
            return flat.uniform_(0.1, 0.9, generator=seed)
        return flat.normal_(0.0, max(width, 1) ** -0.5, generator=seed)

    def indices_like(self, index, bound):
        return self.indices(torch.empty_like(index), 0, bound)

    def indices(self, flat, low, bound):
        """Whole numbers from `low` up to `bound`, spread as asked."""
        seed, span, size = self.seeds[str(flat.device)], bound - low, flat.numel()
        if self.weights is None or not size:
            return flat.random_(low, max(bound, low + 1), generator=seed)
        share = torch.rand(flat.shape, device=flat.device, generator=seed, dtype=torch.float64)
        if self.how == "zipf":
            weights = torch.arange(1, span + 1, device=flat.device, dtype=torch.float64)
            weights = weights**-self.weights
        else:
            weights = self.weights.to(flat.device, torch.float64)
        steps = weights.cumsum(0) / weights.sum()
        rank = torch.searchsorted(steps, share).clamp_(max=len(weights) - 1)
        return flat.copy_(rank * span // len(weights) + low)
