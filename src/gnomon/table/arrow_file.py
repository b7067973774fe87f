"""Arrow IPC files, read and written without pyarrow.

The core may not carry pyarrow (its size), and nanoarrow cannot write dictionaries. What a workload
needs of the format is small: numbers, bits, text, dictionary-encoded text, and lists of those.
"""

from __future__ import annotations

from gnomon.table._arrow_read import ArrowTable, read_arrow
from gnomon.table._arrow_write import write_arrow

__all__ = ["ArrowTable", "read_arrow", "write_arrow"]
