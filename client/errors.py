"""What can go wrong on the client's side of the connection, and what keeps a client from a broker
that is guarded."""

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Final, Self

from ..protocol.errors import HorologError
from .results import SentBatch


class Remedy(StrEnum):
    """A setting whose change lets a client in. Each interface (Python, the command line, Spark) has
    its own words for it."""

    CA = "ca"
    CERTIFICATE = "certificate"
    PLAIN_ADDRESS = "plain address"
    TLS_ADDRESS = "TLS address"


IN_PYTHON: Final = MappingProxyType(
    {
        Remedy.CA: "Set ca to the file of the CA's certificate: Security(ca=FILE)",
        Remedy.CERTIFICATE: "Set certificate and key to one that is signed by its CA: "
        "Security(certificate=FILE, key=FILE)",
        Remedy.PLAIN_ADDRESS: "If it is a plaintext port, write its address without tls: "
        "HOST:PORT, or kafka://HOST:PORT",
        Remedy.TLS_ADDRESS: "Write tls://HOST:PORT, or kafka+tls://HOST:PORT for a Kafka cluster, "
        "or allow it with Security(secrets_without_tls=True)",
    }
)
"""What to do, in the words of the Python library."""


IN_OPTIONS: Final = MappingProxyType(
    {
        Remedy.CA: "Set the option ssl.ca.location to the file of the CA's certificate",
        Remedy.CERTIFICATE: "Set the options ssl.certificate.location and ssl.key.location to a "
        "certificate that is signed by its CA",
        Remedy.PLAIN_ADDRESS: "If it is a plaintext port, write bootstrap.servers without tls: "
        "HOST:PORT, or kafka://HOST:PORT",
        Remedy.TLS_ADDRESS: "Set security.protocol to SASL_SSL",
    }
)
"""What to do, where the security is given as options, as in Spark."""


class _Remediable(HorologError):
    """An error whose text ends with what to do, in the words of one interface. `reason` is the text
    without that."""

    def __init__(
        self,
        reason: str,
        remedy: Remedy | None = None,
        words: Mapping[Remedy, str] = IN_PYTHON,
    ) -> None:
        super().__init__(reason if remedy is None else f"{reason}. {words[remedy]}")
        self.reason = reason
        self.remedy = remedy

    def in_words(self, words: Mapping[Remedy, str]) -> Self:
        """Return the same error for another interface."""
        return type(self)(self.reason, self.remedy, words)

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (type(self), self.reason, self.remedy, self.message)


def _restored(
    kind: "type[_Remediable]", reason: str, remedy: Remedy | None, message: str
) -> "_Remediable":
    """Return a pickled error: a mapping proxy cannot be pickled, the text can."""
    error = kind(reason, remedy)
    error.args = (message,)
    return error


class SecurityError(_Remediable, ValueError):
    """A setting of `Security`, or a file that it names, cannot be used."""


class TlsFailed(_Remediable, ConnectionError):
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


class SendsFailed(HorologError, RuntimeError):
    """Sends failed, and the program has not looked at their errors when it leaves the producer's
    `async with` or `with`.

    `count` is the number of these sends. `failures` holds their errors, oldest first, of those with
    the same text only one; the cause (`__cause__`) is the first one.
    """

    def __init__(self, text: str, count: int, failures: tuple[Exception, ...]) -> None:
        super().__init__(text)
        self.count = count
        self.failures = failures

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (*self.args, self.count, self.failures)
