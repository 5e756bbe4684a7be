"""Requests about consumer groups and named positions."""
