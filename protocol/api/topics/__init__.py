"""Requests about topics and their settings."""
