"""`horolog consume`: what is read, which messages of it, in which order, and where they go."""
