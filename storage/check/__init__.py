"""Checking stored files: verify, repair, salvage, dump."""
