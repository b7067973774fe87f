"""Is anything of an original in its clone, or in its bundle?

done = audit(Path("redis-clone"), [Path("/usr/bin/redis-server")])
print(done.is_clean, [one.text for one in done.found])
"""

from __future__ import annotations

from gnomon.systems.clone.audit.search import Audit, Finding, audit

__all__ = ["Audit", "Finding", "audit"]
