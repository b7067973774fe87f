"""Carbon intensity of grids: files, live providers, outlooks."""
