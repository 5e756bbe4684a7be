"""`horolog pipeline`: jobs between topics, files and clusters."""
