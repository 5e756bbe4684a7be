"""SCRAM, the client's side."""

import hmac
from base64 import b64encode

from ..errors import SaslAuthenticationFailed
from . import scram
from .mechanisms import SCRAM_MECHANISMS


class ScramClient:
    """One exchange; see `SaslClient`."""

    def __init__(self, mechanism: str, name: str, password: str, nonce: str) -> None:
        """`mechanism` is a name of `SCRAM_MECHANISMS`. `nonce` is printable ASCII without a comma
        and at random, 18 bytes in Base64 for example; every exchange has its own."""
        self._mechanism = SCRAM_MECHANISMS[mechanism]
        self._password = password
        self._nonce = nonce
        self._bare = scram.write_client_first(name, nonce)
        self._expected: bytes | None = None
        self.complete = False

    @property
    def mechanism(self) -> str:
        return self._mechanism.name

    def first(self) -> bytes:
        return f"{scram.GS2_HEADER}{self._bare}".encode()

    def respond(self, challenge: bytes) -> bytes | None:
        """Once for the server's first message, which takes the time of the iterations, and once
        for its last."""
        if self._expected is None:
            return self._final(challenge)
        signature = scram.read_server_final(challenge)
        if self.complete or not hmac.compare_digest(signature, self._expected):
            raise SaslAuthenticationFailed(
                "the server did not prove that it knows the password: it is not the one it says"
            )
        self.complete = True
        return None

    def _final(self, challenge: bytes) -> bytes:
        server = scram.read_server_first(challenge)
        if not server.nonce.startswith(self._nonce) or server.nonce == self._nonce:
            raise SaslAuthenticationFailed(
                "the server's nonce does not go on from the client's: its answer is to somebody "
                "else"
            )
        mechanism = self._mechanism
        salted = scram.salted_password(mechanism, self._password, server.salt, server.iterations)
        without_proof = scram.write_client_final_without_proof(server.nonce)
        auth_message = b",".join((self._bare.encode(), challenge, without_proof.encode()))
        proof = scram.client_proof(mechanism, salted, auth_message)
        server_key = scram.server_key_of(mechanism, salted)
        self._expected = scram.server_signature(mechanism, server_key, auth_message)
        return f"{without_proof},p={b64encode(proof).decode()}".encode()
