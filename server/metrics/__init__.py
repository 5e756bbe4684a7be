"""What the broker counts, and how Prometheus sees it."""
