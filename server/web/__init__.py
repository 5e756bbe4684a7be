"""The HTTP port: its connections, and who may ask."""
