"""What can go wrong on the client's side of the connection, and what keeps a client from a broker
that is guarded."""

from typing import Any

from ..protocol.errors import HorologError
from .results import SentBatch


class SecurityError(HorologError, ValueError):
    """A setting of `Security`, or a file that it names, cannot be used."""


class TlsFailed(HorologError, ConnectionError):
    """The broker and the client do not trust each other, or one of them speaks no TLS."""


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
