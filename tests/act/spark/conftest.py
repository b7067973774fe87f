"""One Spark for all tests that need a real one: started once, ended at the end."""

from __future__ import annotations

import pytest

from gnomon.act.spark import SparkDriver, build_plugin
from tests.act.spark.harness import Application, staying
from tests.act.spark.standalone import standalone
from tests.waiting import until


@pytest.fixture(scope="package")
def plugin():
    return build_plugin()


@pytest.fixture(scope="package")
def process(plugin, tmp_path_factory):
    application = Application(tmp_path_factory.mktemp("application"), plugin)
    yield application
    application.close()


@pytest.fixture(scope="package")
def master_url(process):  # whose program starts meanwhile
    with standalone(2, cores=2, memory="1100m") as running:
        yield running


@pytest.fixture(scope="module")
def application(process, master_url):
    """A context with three executors of a core each."""
    process.start(master_url)
    with SparkDriver.connect(process.handshake, wait_s=20, watch=True) as driver:
        until(lambda: staying(driver.state()) == 3, "three executors", 90)
    yield process
    process.stop()


@pytest.fixture
def watcher(application):
    with SparkDriver.connect(application.handshake, watch=True) as driver:
        yield driver
        until(lambda: not driver.state().jobs, "what a test has left behind ends")
