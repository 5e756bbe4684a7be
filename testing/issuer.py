"""An issuer of tokens for tests: its keys, their JSON key set, and JWTs signed by them."""

import json
from pathlib import Path
from typing import Any, Final

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from ..clock import Clock, SystemClock

ISSUER: Final = "https://issuer.example"
AUDIENCE: Final = "horolog"

_CURVES: Final = {"ES256": ec.SECP256R1(), "ES384": ec.SECP384R1(), "ES512": ec.SECP521R1()}


class Issuer:
    """An issuer of tokens. It signs with the newest key, unless another one is named."""

    def __init__(self, clock: Clock | None = None, algorithm: str = "ES256") -> None:
        self._clock = clock or SystemClock()
        self.keys: dict[str, tuple[str, Any]] = {}
        """Algorithm and private key, by key id."""
        self.add("first", algorithm)

    def add(self, id_: str, algorithm: str = "ES256") -> None:
        """Create a key."""
        key: Any
        if algorithm in _CURVES:
            key = ec.generate_private_key(_CURVES[algorithm])
        elif algorithm == "EdDSA":
            key = ed25519.Ed25519PrivateKey.generate()
        else:
            key = rsa.generate_private_key(65537, 2048)
        self.keys[id_] = algorithm, key

    def public_keys(self) -> list[dict[str, Any]]:
        """Return the public keys as in a JSON key set."""
        found = []
        for id_, (algorithm, key) in self.keys.items():
            made = jwt.get_algorithm_by_name(algorithm).to_jwk(key.public_key(), as_dict=True)
            shown: dict[str, Any] = {**made, "kid": id_, "use": "sig"}
            shown.pop("key_ops", None)
            found.append(shown)
        return found

    def key_set(self) -> bytes:
        return json.dumps({"keys": self.public_keys()}).encode()

    def write(self, path: Path) -> str:
        """Replace a file with the key set, atomically. Returns the file's URL."""
        beside = path.with_suffix(".new")
        beside.write_bytes(self.key_set())
        beside.replace(path)
        return path.as_uri()

    def claims(self, name: str = "alice", seconds: float = 3600, **more: Any) -> dict[str, Any]:
        """Return the claims of a token; a claim given as `None` is left out."""
        now = self._clock.now_ms() / 1000
        found = {
            "sub": name,
            "iss": ISSUER,
            "aud": AUDIENCE,
            "iat": int(now),
            "exp": now + seconds,
            **more,
        }
        return {name: value for name, value in found.items() if value is not None}

    def token(
        self,
        name: str = "alice",
        seconds: float = 3600,
        *,
        key: str = "",
        headers: dict[str, Any] | None = None,
        **more: Any,
    ) -> str:
        """Return a JWT that is valid for `seconds` from now on."""
        id_ = key or list(self.keys)[-1]
        algorithm, private = self.keys[id_]
        claims = self.claims(name, seconds, **more)
        content = json.dumps(claims).encode()
        return jwt.PyJWS().encode(content, private, algorithm, {"kid": id_, **(headers or {})})


def token_settings(url: str) -> dict[str, object]:
    """Return settings of a broker, with underscores, that accepts tokens signed by the keys at
    `url`."""
    return {
        "sasl_enabled_mechanisms": "SCRAM-SHA-512,PLAIN,OAUTHBEARER",
        "sasl_oauthbearer_jwks_endpoint_url": url,
        "sasl_oauthbearer_expected_issuer": ISSUER,
        "sasl_oauthbearer_expected_audience": AUDIENCE,
    }
