"""The broker: sockets, handlers and background tasks around the log."""
