"""`horolog topic`: topics, what they have stored, and their settings."""
