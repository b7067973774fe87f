"""Values over time: load, latency, power, price and carbon intensity.

A `Signal` is one line of values with its unit, its kind and, where there is one, its zone. It is
frozen; what changes it returns a new one, and its unit follows the algebra of `gnomon.units`.
Missing values stay gaps until the caller says how to treat them, and ranges travel along.
"""

from gnomon.series.signal import Fill, Gap, GapRule, Shape, Signal, integrate_product

__all__ = ["Fill", "Gap", "GapRule", "Shape", "Signal", "integrate_product"]
