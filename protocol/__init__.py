"""Bytes to values and back. No I/O, no clock, no task."""
