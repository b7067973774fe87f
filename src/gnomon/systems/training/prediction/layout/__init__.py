"""Parts assembled into the step of a layout: pipeline schedule, placement, blocks."""
