"""One handler module per request."""
