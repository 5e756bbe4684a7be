"""The data directory: its topics, logs, checkpoints, positions and lock."""
