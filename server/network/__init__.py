"""Ports, connections, and requests and answers on them."""
