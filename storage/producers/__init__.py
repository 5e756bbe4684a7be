"""The producers that number their batches, and what a log knows of them."""
