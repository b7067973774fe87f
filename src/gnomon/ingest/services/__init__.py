"""Applications of services, and what was measured of them, as others write them down."""
