"""SCRAM, the server's side."""

import hmac
from base64 import b64encode
from collections.abc import Callable

from ..errors import SaslAuthenticationFailed
from . import scram
from .mechanisms import ScramMechanism

Find = Callable[[str], scram.ScramCredential]
"""The credential of a name. For a name that does not exist it is one that no password fits, always
the same one for a name, so that no answer tells who exists."""


class ScramServer:
    """One exchange: `first`, then `last`. Both raise `SaslAuthenticationFailed`."""

    def __init__(self, mechanism: ScramMechanism, find: Find, nonce: str) -> None:
        """`nonce` is printable ASCII without a comma and at random; every exchange has its own."""
        self._mechanism = mechanism
        self._find = find
        self._nonce = nonce
        self._client: scram.ClientFirst | None = None
        self._credential: scram.ScramCredential | None = None
        self._server_first = ""

    @property
    def name(self) -> str:
        """Who the client says it is; empty as long as it has not."""
        return "" if self._client is None else self._client.name

    def first(self, content: bytes) -> bytes:
        """The answer to the client's first message."""
        client = scram.read_client_first(content)
        if client.authzid not in ("", client.name):
            raise SaslAuthenticationFailed("a user may act only in its own name, not for another")
        self._client = client
        credential = self._credential = self._find(client.name)
        self._nonce = client.nonce + self._nonce
        self._server_first = scram.write_server_first(
            self._nonce, credential.salt, credential.iterations
        )
        return self._server_first.encode()

    def last(self, content: bytes) -> bytes:
        """The answer to the client's last message, which proves that it knows the password."""
        client, credential = self._client, self._credential
        assert client is not None
        assert credential is not None
        final = scram.read_client_final(content)
        if final.binding != scram.channel_binding(client.header):
            raise SaslAuthenticationFailed("the client's c= is not what it began with")
        # As in Kafka, only its end is looked at: older librdkafka sends its own nonce twice. All of
        # it is signed, in what the server said, whatever the client repeats.
        end = final.nonce[-len(self._nonce) :]
        if not hmac.compare_digest(end.encode(), self._nonce.encode()):
            raise SaslAuthenticationFailed("the client's nonce is not that of this exchange")
        signed = f"{client.bare},{self._server_first},{final.without_proof}".encode()
        if not scram.proof_matches(credential, final.proof, signed):
            raise SaslAuthenticationFailed("the user does not exist, or the password is wrong")
        signature = scram.server_signature(self._mechanism, credential.server_key, signed)
        return f"v={b64encode(signature).decode()}".encode()
