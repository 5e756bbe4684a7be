"""Requests sent by cluster members, or about them."""
