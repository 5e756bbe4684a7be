"""Requests about the broker itself."""
