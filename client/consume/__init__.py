"""Reading messages: the consumer, its fetches, and time windows."""
