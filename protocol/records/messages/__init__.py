"""Messages of the formats v0 and v1, plain and in wrappers."""
