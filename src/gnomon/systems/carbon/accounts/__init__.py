"""What jobs and measured power emitted."""
