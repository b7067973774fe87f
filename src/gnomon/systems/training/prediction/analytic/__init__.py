"""A step from sizes alone: the operators of a transformer and their modelled times."""
