"""Requests that repeat one before them."""
