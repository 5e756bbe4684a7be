"""Measures the cost of security and quotas."""
