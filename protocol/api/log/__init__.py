"""Requests that append to logs, read them and describe them."""
