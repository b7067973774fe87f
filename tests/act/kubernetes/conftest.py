"""A fake API server and a connection to it."""

from __future__ import annotations

import pytest

from gnomon.act.kubernetes.cluster import Connection
from tests.act.fake_cluster import kubeconfig
from tests.act.kubernetes.fake_api import FakeApi, serving


@pytest.fixture
def api():
    return FakeApi()


@pytest.fixture
def cluster(api, tmp_path, monkeypatch):
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with serving(api) as url:
        yield Connection(str(kubeconfig(tmp_path / "config", url)), timeout_s=20.0)
