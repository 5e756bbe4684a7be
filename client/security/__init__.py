"""Security of a client: TLS and authentication."""
