"""Topics, settings, offsets and named positions."""
