"""What can go wrong on the client's side of the connection.

What the broker refuses is raised as the classes of `protocol.errors`.
"""

from .results import SentBatch


class ConnectionFailed(ConnectionError):
    """The broker cannot be reached, or the connection to it broke.

    A request under way at that moment may have been carried out or not.
    """


class ClientClosed(RuntimeError):
    """The client was used after it had been closed."""


class PartlySent(RuntimeError):
    """Some messages of a batch are in the log, others are not, or it is not known of them.

    `sent` says which; the cause (`__cause__`) is what stopped the others. In each partition those
    that were sent are the first ones of the batch.
    """

    def __init__(self, text: str, sent: SentBatch) -> None:
        super().__init__(text)
        self.sent = sent
