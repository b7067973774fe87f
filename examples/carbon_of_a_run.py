"""From a power reading and a grid signal to grams, exactly.

Scenario: a job draws 600 W for 90 minutes across two hours of a grid that cleans up.
"""

from gnomon.series import Signal, integrate_product

HOUR_NS = 3600 * 10**9
grid = Signal.regular(
    0,
    HOUR_NS,
    [420.0, 180.0],
    unit="gCO2e/kWh",
    kind="carbon-intensity/average/lifecycle",
    zone="DE",
)
power = Signal([0], [600.0], end_ns=int(1.5 * HOUR_NS), unit="W", kind="power")
energy_kwh = power.integrate(unit="kWh")
grams = integrate_product(power, grid, 0, int(1.5 * HOUR_NS), unit="gCO2e")
later = integrate_product(power.shift(HOUR_NS // 2), grid, HOUR_NS // 2, 2 * HOUR_NS, unit="gCO2e")
print(f"{energy_kwh:.2f} kWh, {grams:.1f} gCO2e; half an hour later {later:.1f} gCO2e")
