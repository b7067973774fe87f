"""Adds up what the test runs wrote, names what was skipped and why, and prints the closing line.

    python tests/closing_line.py build/junit/unit.xml build/junit/ray.xml build/junit/spark.xml

With CI set, a test skipped for want of a part is a failure: CI has to bring the parts. The public
data is no part of a system; who has it runs those tests too.
"""

from __future__ import annotations

import os
import sys
import xml.etree.ElementTree as ET


def main(paths: list[str]) -> int:
    passed = failed = 0
    skipped: list[tuple[str, str]] = []
    for path in paths:
        for case in ET.parse(path).getroot().iter("testcase"):
            name = f"{case.get('classname')}::{case.get('name')}"
            reason = case.find("skipped")
            if case.find("failure") is not None or case.find("error") is not None:
                failed += 1
            elif reason is not None:
                skipped.append((name, reason.get("message") or "no reason given"))
            else:
                passed += 1
    for name, why in skipped:
        print(f"skipped {name}: {why}")
    in_ci = os.environ.get("CI", "").lower() in ("1", "true", "yes")
    wanting = [name for name, why in skipped if "public data is absent" not in why]
    if in_ci and wanting:
        print(f"{len(wanting)} tests were skipped in CI, where every part must be there")
        failed += len(wanting)
    print(f"{passed} passed, {failed} failed, {len(skipped)} skipped")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
