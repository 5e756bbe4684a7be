"""Requests of brokers that are one of several, and about them."""
