"""What `import gnomon` promises."""

from __future__ import annotations

import subprocess
import sys

import gnomon


def test_every_promised_name_is_there_and_in_the_table():
    for name in gnomon.__all__:
        assert getattr(gnomon, name) is not None
        assert name == "__version__" or f"`{name}`" in gnomon.__doc__
    homes = [name for names in gnomon._HOME.values() for name in names]
    assert sorted(homes) == sorted(gnomon.__all__)


def test_importing_gnomon_imports_nothing_heavy():
    code = (
        "import sys, gnomon; print([m for m in ('numpy', 'msgspec', 'rich') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
