"""Topics, settings and positions as records of one log, shared by the members of a cluster."""
