"""What can go wrong on the client's side of the connection, and what keeps a client from a broker
that is guarded."""

from typing import Any

from ..protocol.errors import HorologError
from .results import SentBatch


class SecurityError(HorologError, ValueError):
    """A setting of `Security`, or a file that it names, cannot be used."""


class TlsFailed(HorologError, ConnectionError):
    """TLS failed: one side does not trust the other, or does not speak TLS."""


class ConnectionFailed(HorologError, ConnectionError):
    """The broker cannot be reached, or the connection to it broke.

    The broker may or may not have carried out a request that was in flight.
    """

    retriable = True


class ClientClosed(HorologError, RuntimeError):
    """The client was used after it had been closed."""


class PartlySent(HorologError, RuntimeError):
    """Some messages of a batch were appended; others were not, or their result is unknown.

    `sent` lists the appended messages; the cause (`__cause__`) is the error that stopped the
    others. In each partition the appended messages are the first ones of the batch.
    """

    def __init__(self, text: str, sent: SentBatch) -> None:
        super().__init__(text)
        self.sent = sent

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (*self.args, self.sent)
