"""What keeps a client from a broker that is guarded. None of these goes away by trying again."""

from ...protocol.errors import HorologError


class SecurityError(HorologError, ValueError):
    """A setting of `Security`, or a file that it names, cannot be used."""


class TlsFailed(HorologError, ConnectionError):
    """The broker and the client do not trust each other, or one of them speaks no TLS."""
