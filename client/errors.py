"""What can go wrong on the client's side of the connection.

What the broker refuses is raised as the classes of `protocol.errors`.
"""


class ConnectionFailed(ConnectionError):
    """The broker cannot be reached, or the connection to it broke.

    A request under way at that moment may have been carried out or not.
    """


class ClientClosed(RuntimeError):
    """The client was used after it had been closed."""
