"""Workers import what they run: the functions they are given live in a module of their own.

The folder goes on sys.path, which worker processes are handed, whatever the import mode of
pytest and whether or not xdist runs the tests.
"""

import sys
from pathlib import Path

SUPPORT = str(Path(__file__).parent / "support")
if SUPPORT not in sys.path:
    sys.path.insert(0, SUPPORT)
