"""Requests and responses, declared once, and their native encoding."""
