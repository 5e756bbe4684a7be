"""Measures how long one request holds the event loop at a time."""
