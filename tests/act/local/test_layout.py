"""Applications cut into configurations, and histograms read back."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from gnomon.act.local.layout import callees, cell_config, number_calls, roots
from gnomon.act.local.reading import BUCKETS, bucket_edges_ns, percentiles_ms
from gnomon.graph.application import Application, Call, RequestClass, Service

SERVICES = ("a", "b", "c")
calls = st.recursive(
    st.builds(Call, st.sampled_from(SERVICES)),
    lambda below: st.builds(
        Call,
        st.sampled_from(SERVICES),
        then=st.lists(st.lists(below, max_size=3).map(tuple), max_size=3).map(tuple),
    ),
    max_leaves=12,
)


@given(st.lists(calls, min_size=1, max_size=3))
def test_prop_every_call_is_at_one_service(trees):
    classes = {f"class {i}": RequestClass(call) for i, call in enumerate(trees)}
    app = Application("any", {name: Service() for name in SERVICES}, classes)
    nodes = number_calls(app)
    assert [node.call for node in nodes] == [call for tree in trees for call in tree.walk()]
    assert [node.call for node in roots(nodes)] == trees
    configs = {name: cell_config(app, nodes, name) for name in SERVICES}
    ids = [node["id"] for config in configs.values() for node in config["nodes"]]
    assert sorted(ids) == list(range(len(nodes)))
    for name, config in configs.items():
        assert [one["service"] for one in config["callees"]] == callees(nodes, name)
        for node in config["nodes"]:
            for stage in node["stages"]:
                assert stage, "an empty stage would split the CPU time for nothing"
                for call in stage:
                    callee = config["callees"][call["callee"]]["service"]
                    assert nodes[call["node"]].call.service == callee


@given(st.lists(st.integers(2_000, 10**11), min_size=1, max_size=300))
def test_prop_percentiles_are_within_a_bucket(times_ns):
    counts, _ = np.histogram(times_ns, bucket_edges_ns())
    wanted = [1.0, 50.0, 99.0, 100.0]
    found = percentiles_ms(counts.astype(np.int64), wanted)
    exact = np.percentile(times_ns, wanted, method="inverted_cdf") / 1e6
    assert np.all(np.abs(found / exact - 1) <= 1 / 16 + 1e-9)


def test_empty_histograms_have_no_percentiles():
    counts = np.zeros((2, 3, BUCKETS), dtype=np.int64)
    counts[1, 2, 100] = 5
    found = percentiles_ms(counts, [50.0, 99.0])
    assert found.shape == (2, 3, 2)
    assert np.isnan(found).sum() == 10
