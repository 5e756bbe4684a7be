"""Sending messages: the producer, its batches, and their delivery."""
