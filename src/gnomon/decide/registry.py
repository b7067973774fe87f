"""The policies that have names."""

from __future__ import annotations

from typing import Any

from gnomon.decide.policy import Policy
from gnomon.registry import Registry

__all__ = ["policies"]

# Other packages, and the systems above this layer, bring theirs by entry point.
policies: Registry[Policy[Any, Any]] = Registry("policy", group="gnomon.policies")
