"""Acting on the world: plan first (pure, printable), then apply.

`process` starts a command on this machine at a time and watches it. `spark` holds, orders and
scales an unpatched Spark application. `kubernetes` limits a namespace by its quota, which
`held_quota` restores whatever happens, and sets replicas and CPU limits of Deployments.
`prometheus` measures an application by the queries of a `metric_profile`.
"""
