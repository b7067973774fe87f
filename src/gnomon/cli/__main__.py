"""`python -m gnomon.cli`."""

from __future__ import annotations

import sys

from gnomon.cli import main

sys.exit(main())
