"""SASL: how a client proves who it is. Both sides of each mechanism, without any I/O."""
