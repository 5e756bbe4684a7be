"""Figures of a leader and its followers: `make bench-cluster`."""
