"""Asyncio client of the native protocol."""
