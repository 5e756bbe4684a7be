"""The idempotent producers, and what a log knows of them."""
