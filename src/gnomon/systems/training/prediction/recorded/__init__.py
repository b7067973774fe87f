"""A step from a trace: split into layers, its configuration inferred, each part resized."""
