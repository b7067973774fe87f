"""Types of columns, by what they hold."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

#: Whole numbers: nanoseconds, rows, bytes.
Ints = NDArray[np.int64]
#: Numbers of things in a table: lanes, tasks, steps.
Codes = NDArray[np.int32]
Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
