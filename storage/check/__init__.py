"""Checking stored files: verify, repair, scrub, dump."""
