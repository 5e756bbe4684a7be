"""Checks of the OAUTHBEARER settings at the broker's start. The code that verifies tokens is
imported only by brokers that accept tokens."""

from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from ...config.broker import BrokerSettings
from ...protocol.errors import InvalidConfig
from ...storage.events import Observer

if TYPE_CHECKING:
    from .token_keys import KeySource

_URL = "sasl.oauthbearer.jwks.endpoint.url"
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


def key_source(settings: BrokerSettings, observe: Observer) -> "KeySource":
    """Return the source of the token keys. Raises `InvalidConfig` for invalid settings, a missing
    file or missing packages."""
    url = settings.sasl_oauthbearer_jwks_endpoint_url
    if not url:
        raise InvalidConfig(
            f"sasl.enabled.mechanisms names OAUTHBEARER, which needs {_URL}: where the keys are "
            "that sign tokens, https://... or file:///PATH"
        )
    parts = urlsplit(url)
    if parts.scheme == "http" and not (
        settings.allow_plaintext or (parts.hostname or "") in _LOOPBACK
    ):
        raise InvalidConfig(
            f"{_URL} = {url!r} is refused: a host on the way could give keys of its own; use "
            "https://, or set allow.plaintext=true"
        )
    if not settings.sasl_oauthbearer_sub_claim_name:
        raise InvalidConfig("sasl.oauthbearer.sub.claim.name must not be empty")
    try:
        import cryptography  # noqa: F401 - PyJWT does without, and then knows no signatures

        from .token_keys import KeySource
    except ImportError as error:
        raise InvalidConfig(
            "sasl.enabled.mechanisms names OAUTHBEARER, which needs the package "
            f"{error.name or 'jwt'}: install horolog[oauth] (PyJWT and cryptography), or leave "
            "OAUTHBEARER out"
        ) from None
    return KeySource(url, settings.sasl_oauthbearer_jwks_endpoint_refresh_ms / 1000, observe)
