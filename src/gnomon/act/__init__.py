"""Acting on the world: plan first (pure, printable), then apply. Nothing acts here yet."""
