"""Kafka's encoding."""
