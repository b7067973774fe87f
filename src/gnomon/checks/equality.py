"""Whether two values are the same, all the way down, arrays included."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np


def is_same(left: Any, right: Any) -> bool:
    """Compare values whose own == may be missing, or give an array.

    >>> is_same({"a": np.array([1, 2])}, {"a": np.array([1, 2])})
    True
    >>> is_same(1, 1.0)
    False
    """
    if left is right:
        return True
    if type(left) is not type(right):
        return False
    if isinstance(left, np.ndarray):
        return _same_array(left, right)
    if isinstance(left, list | tuple):
        return len(left) == len(right) and all(map(is_same, left, right))
    if isinstance(left, Mapping):
        return left.keys() == right.keys() and all(is_same(left[k], right[k]) for k in left)
    if isinstance(left, float) and left != left:
        return bool(right != right)
    if isinstance(left, msgspec.Struct):
        names = left.__struct_fields__
        return all(is_same(getattr(left, name), getattr(right, name)) for name in names)
    # Objects that say nothing about equality compare by identity, which tells us nothing.
    says_nothing = getattr(type(left), "__eq__", None) is getattr(object, "__eq__", None)
    if says_nothing and hasattr(left, "__dict__"):
        return is_same(vars(left), vars(right))
    return bool(left == right)


def _same_array(left: Any, right: Any) -> bool:
    if left.dtype != right.dtype or left.shape != right.shape:
        return False
    if left.dtype == object:
        return is_same(left.tolist(), right.tolist())
    return bool(left.tobytes() == right.tobytes())
