"""Requests about consumer groups and their committed offsets."""
