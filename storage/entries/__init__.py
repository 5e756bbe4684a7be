"""Stored entries of a log file: read, checked, scanned, and found again behind damage."""
