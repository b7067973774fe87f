"""A file an idea; the registry loads them all."""
