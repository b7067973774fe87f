"""Acting on the world: plan first (pure, printable), then apply.

`process` starts a command on this machine at a time and watches it. `spark` holds, orders and
scales an unpatched Spark application. `kubernetes` limits a namespace by its quota, and
`held_quota` restores it whatever happens.
"""
