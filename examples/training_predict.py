"""Predict training steps that nobody ran, from one trace of a small model.

Scenario: a six-layer GPT was traced on one H200; what would twice the layers take, what on two
GPUs that share every layer, and what on eight that share the batch as well?
"""

from gnomon.datasets import bundled
from gnomon.systems.training.prediction.predict import predict
from gnomon.systems.training.prediction.source import read_recorded

source, _ = read_recorded(bundled("h200-gpt-l6"))
print(f"recorded: {source.base.short()}: {source.base_ms:.1f} ms")
for settings in ({"layers": 12}, {"layers": 12, "tp": 2}, {"layers": 12, "tp": 2, "dp": 8}):
    prediction = predict(source, settings)
    words = " ".join(f"{name}={value}" for name, value in settings.items())
    step, gib = prediction.step, prediction.memory.total / 2**30
    fits = "fits" if prediction.fits else f"{prediction.over_gib:.1f} GiB too many"
    shown = f"{step.mid:6.1f} ms ({step.low:.0f} to {step.high:.0f})"
    print(f"{words:22} {shown}, {gib:5.2f} GiB, {fits}")
    for row in prediction.waterfall:
        print(f"    {row.change:20} {row.delta_ms:+7.2f} ms")
