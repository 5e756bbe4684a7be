"""Requests of cluster members, and about them."""
