"""A file an idea; the registry finds them."""
