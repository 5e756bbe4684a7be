"""Requests about who somebody is."""
