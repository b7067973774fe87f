"""A Kubernetes cluster as a target of managers: what `manage` measures and changes."""

from __future__ import annotations

import time
from collections.abc import Callable

from gnomon.act.kubernetes.apply import Outcome, apply
from gnomon.act.kubernetes.cluster import Connection
from gnomon.act.kubernetes.deployments import plan, read_state
from gnomon.act.kubernetes.places import Places
from gnomon.act.metric_profile import Profile
from gnomon.act.prometheus import Observation, observe_window
from gnomon.decide.services.state import Allocation, Window
from gnomon.graph.application import Application
from gnomon.ingest.metrics.prometheus import Prometheus


class ClusterTarget:
    """An application whose Deployments run on a cluster and are measured by Prometheus.

    Attributes:
        seen: The last observation: what is missing in its window, and why.
        outcomes: Of the last changes.
    """

    def __init__(
        self, app: Application, cluster: Connection, client: Prometheus, profile: Profile,
        places: Places, *, sleep: Callable[[float], None] = time.sleep,
    ) -> None:  # fmt: skip
        self.app = app
        self._cluster, self._client, self._profile = cluster, client, profile
        self._places, self._sleep = places, sleep
        self.seen: Observation | None = None
        self.outcomes: list[Outcome] = []

    def observe(self, duration_s: float) -> Window:
        """Waits for so long, then reports that window; its times are since 1970."""
        self._sleep(duration_s)
        self.seen = observe_window(
            self._client, self.app, self._profile, time.time(), duration_s=duration_s
        )
        return self.seen.window

    def apply(self, allocation: Allocation) -> None:
        """Changes what differs.

        Raises:
            ActuationError: The cluster could not be read; nothing was changed.
        """
        state = read_state(self._cluster, self.app, self._places)
        self.outcomes = apply(self._cluster, plan(self.app, allocation, state))
