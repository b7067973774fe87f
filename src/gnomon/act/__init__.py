"""Acting on the world: plan first (pure, printable), then apply.

`process` starts a command on this machine at a time and watches it.
"""
