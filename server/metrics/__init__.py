"""Counters of the broker, and their metrics for Prometheus."""
