"""Reading a log: by offset and by time."""
