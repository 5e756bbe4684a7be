"""SASL: how a client authenticates. Both sides of each mechanism, without I/O."""
