"""What can go wrong on the client's side of the connection.

What the broker refuses is raised as the classes of `protocol.errors`. Each class here has a second
base, the class of Python's that says the same, for programs that catch that.
"""

from typing import Any

from ..protocol.errors import HorologError
from .results import SentBatch


class ConnectionFailed(HorologError, ConnectionError):
    """The broker cannot be reached, or the connection to it broke.

    A request under way at that moment may have been carried out or not.
    """

    retriable = True


class ClientClosed(HorologError, RuntimeError):
    """The client was used after it had been closed."""


class PartlySent(HorologError, RuntimeError):
    """Some messages of a batch are in the log, others are not, or it is not known of them.

    `sent` says which; the cause (`__cause__`) is what stopped the others. In each partition those
    that were sent are the first ones of the batch.
    """

    def __init__(self, text: str, sent: SentBatch) -> None:
        super().__init__(text)
        self.sent = sent

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (*self.args, self.sent)
