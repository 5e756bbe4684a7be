"""Processes and clients that do the least that a figure allows: what it is held against."""
