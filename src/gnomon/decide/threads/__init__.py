"""Scheduling of requests on the workers of one process."""

from __future__ import annotations

from gnomon.decide.threads.policy import ThreadPolicy, thread_policies

__all__ = ["ThreadPolicy", "thread_policies"]
