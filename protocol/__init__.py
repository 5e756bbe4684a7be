"""Converts between bytes and values. No I/O, no clock, no task."""
