"""Ports, connections, and the requests and answers on them."""
