"""Horolog: the log that knows what time it is."""

__version__ = "0.1.0"
