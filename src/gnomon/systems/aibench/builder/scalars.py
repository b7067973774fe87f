"""Numbers and words of the original that a benchmark need not know.

Whether a scale is 0.088 or 0.1 changes nothing that takes time, but may reveal something about a
model. So floating-point arguments are replaced by one of a few that stand for their size; what has
a meaning of its own (0, 1, 2, a half, infinity, whole numbers, the largest of a type) stays.
"""

from __future__ import annotations

import math

#: The numbers that stand for others, beside their negatives.
NEUTRAL = (1e-5, 0.1, 0.9, 1.5)
_TINY, _SMALL, _NEAR_ONE, _LARGE = NEUTRAL
#: From here on a number is there to be larger than all others.
_HUGE = 1e30
#: What keeps a division from zero, as optimisers have it. Traces print six decimals, so it reads 0
#: there; and with a true zero whatever had no gradient would become NaN, then all of the model.
#: Numbers that are not numbers take another time and less power.
GUARD = 1e-8
#: Numbers that any benchmark may hold: to find one of them reveals nothing about the original.
COMMON = (GUARD, *NEUTRAL, *(-value for value in NEUTRAL))


def neutral(value: float) -> float:
    """A number of the same kind and about the same size.

    >>> neutral(3e-4), neutral(-0.0883), neutral(0.999), neutral(1.13), neutral(8.0)
    (1e-05, -0.1, 0.9, 1.5, 8.0)
    """
    size = abs(value)
    if not math.isfinite(size) or size >= _HUGE or size == 0.5 or size == math.floor(size):
        return value
    if size <= 1e-2:
        stands = _TINY
    elif size < 0.85:
        stands = _SMALL
    else:
        stands = _NEAR_ONE if size < 1.0 else _LARGE
    return math.copysign(stands, value)


def keeps_from_zero(does: str, argument: str) -> bool:
    """Whether a recorded 0.0 must have been a small number, whose digits the trace lost.

    >>> keeps_from_zero("aten._fused_adamw_.default", "eps")
    True
    >>> keeps_from_zero("aten._foreach_add_.Scalar", "scalar")  # nobody adds a true 0.0
    True
    >>> keeps_from_zero("aten._fused_adamw_.default", "weight_decay")
    False
    """
    return argument == "eps" or (argument == "scalar" and does.startswith("aten._foreach_add"))


def plain_equation(equation: str) -> str:
    """An einsum equation with letters in the order of the alphabet.

    >>> plain_equation("bhqd,bhkd->bhqk")
    'abcd,abed->abce'
    """
    letters: dict[str, str] = {}
    for letter in equation:
        if letter.isalpha() and letter not in letters:
            place = len(letters)
            letters[letter] = chr((ord("a") if place < 26 else ord("A") - 26) + place)
    return "".join(letters.get(letter, letter) for letter in equation)
