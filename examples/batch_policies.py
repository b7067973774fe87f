"""What carbon-aware scheduling of Spark-like jobs saves, and of what the saving is made.

Scenario: 60 queries like TPC-H's arrive over thirty hours of Ontario's grid; an hour of the grid
takes a minute. Fair shares, CAP around them, and pcaps+, which waits for cleaner hours.
"""

import functools

import numpy as np

from gnomon.datasets.batch_jobs import sample_jobs, tpch_like
from gnomon.sim.cluster import Executors
from gnomon.systems.batch import Experiment, hours_of_zone, parse_policies, run_experiment

kinds = tpch_like(np.random.default_rng(0))
experiment = Experiment(
    policies=parse_policies("fair,cap:fair,pcaps+?window_h=6:fair,pcaps+:fair"),
    make_jobs=functools.partial(sample_jobs, kinds, 60, mean_s=30.0),
    executors=Executors(count=100),
)
answer = run_experiment(experiment, [hours_of_zone("ON")], trials=4, on="serial")
print("change against fair, in %:")
print(f"{'':24}{'carbon':>8}{'work':>8}{'hours':>8}{'placebo':>9}{'job time':>10}")
for own in answer.overall[1:]:
    f = own.figures
    print(
        f"{own.policy:24}{f['carbon_pct'].mid:8.0f}{f['work_pct'].mid:8.0f}"
        f"{f['intensity_pct'].mid:8.0f}{f['placebo_pct'].mid:9.0f}{f['jct_pct'].mid:+10.0f}"
    )
saved = max(answer.held, key=lambda row: row["saved_g"])
print(
    f"most worth it: stage {saved['stage']} of {saved['kind']} ran {saved['lost_s']:.0f} s later "
    f"and saved {saved['saved_g']:.2f} g; {saved['because']}"
)
