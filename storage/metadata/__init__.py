"""Topics, settings and positions as records of one log, for brokers that are several."""
