"""The code of a clone: a plan of no machine in particular, and what writes it for one."""
