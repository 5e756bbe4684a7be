"""Verification of tokens (JWT, RFC 7519). Error messages never contain a token.

The checks are those of Kafka (KIP-768): the signature, by a key of the set; `exp` and `nbf`; `iss`
and `aud`; a name.
"""

import asyncio
import math
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any, Final

import jwt
from jwt.types import Options

from ...config.broker import BrokerSettings
from ...storage.metadata.access_records import MAX_USER_NAME_BYTES
from ...values import value_class
from .token_keys import ALGORITHMS, Keys, KeySource

MAX_TOKEN_CHARS: Final = 16 * 1024
"""Longest accepted token in characters."""

SHORTEST_SECONDS: Final = 1.0
"""Session length of a token that is valid only because of the tolerated clock difference."""
_LONGEST_SECONDS: Final = 10 * 365 * 86_400.0

_SHOWN: Final = 80

_LOOKED_AT_HERE: Final[Options] = {
    "require": ["exp"],
    # The times are checked by the broker's clock, and the name is checked here.
    "verify_exp": False,
    "verify_nbf": False,
    "verify_iat": False,
    "verify_sub": False,
    "verify_jti": False,
}


class TokenRefused(Exception):
    """The token was refused. The text is for the operator."""


class _UnknownKey(TokenRefused):
    """No key has the token's key id. There may be one after the keys are read again."""


@value_class
class Verified:
    """Name in a token, and its remaining lifetime in seconds."""

    name: str
    seconds: float


class Tokens:
    """Verifies tokens, in threads of `executor`."""

    def __init__(
        self,
        settings: BrokerSettings,
        source: KeySource,
        now_ms: Callable[[], int],
        executor: Executor,
    ) -> None:
        self._source = source
        self._now_ms = now_ms
        self._executor = executor
        self._issuer = settings.sasl_oauthbearer_expected_issuer or None
        audience = settings.sasl_oauthbearer_expected_audience
        self._audience = [each.strip() for each in audience.split(",") if each.strip()] or None
        self._skew_seconds = settings.sasl_oauthbearer_clock_skew_seconds
        self._claim = settings.sasl_oauthbearer_sub_claim_name

    async def verified(self, token: str) -> Verified:
        """Verify a token. Raises `TokenRefused`."""
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._executor, self._check, token, self._source.keys)
        except _UnknownKey:
            before = self._source.keys
            await self._source.renew()
            if self._source.keys is before:
                raise
        return await loop.run_in_executor(self._executor, self._check, token, self._source.keys)

    def _check(self, token: str, keys: Keys) -> Verified:
        if len(token) > MAX_TOKEN_CHARS:
            raise TokenRefused(f"the token has more than {MAX_TOKEN_CHARS} characters")
        try:
            claims = self._claims(token, keys)
        except jwt.InvalidSignatureError:
            raise TokenRefused("the token's signature is not by the key that it names") from None
        except jwt.InvalidIssuerError:
            raise TokenRefused(_other("iss", "sasl.oauthbearer.expected.issuer")) from None
        except jwt.InvalidAudienceError:
            raise TokenRefused(_other("aud", "sasl.oauthbearer.expected.audience")) from None
        except jwt.MissingRequiredClaimError as error:
            raise TokenRefused(f"the token has no {error.claim}") from None
        except (jwt.PyJWTError, ValueError, TypeError, RecursionError):
            raise TokenRefused("this is no signed JWT") from None
        seconds = self._seconds_left(claims)
        return Verified(self._name(claims), seconds)

    def _claims(self, token: str, keys: Keys) -> dict[str, Any]:
        header = jwt.get_unverified_header(token)
        algorithm, id_ = header.get("alg"), header.get("kid")
        if not isinstance(algorithm, str) or algorithm not in ALGORITHMS:
            raise TokenRefused(
                f"the token is signed by {_cut(algorithm)}; taken are {', '.join(ALGORITHMS)}"
            )
        if "crit" in header or "b64" in header:
            raise TokenRefused("the token needs an extension of JWS that is not known (crit)")
        key = keys.find(id_, algorithm)
        if key is None:
            which = "the only one" if id_ is None else f"{_cut(id_)}"
            raise _UnknownKey(
                f"there is no key {which} for {algorithm} among the {len(keys)} that are known "
                "(sasl.oauthbearer.jwks.endpoint.url)"
            )
        return jwt.decode(
            token,
            key.public,
            algorithms=key.algorithms,
            issuer=self._issuer,
            audience=self._audience,
            options=_LOOKED_AT_HERE,
        )

    def _seconds_left(self, claims: dict[str, Any]) -> float:
        now, skew = self._now_ms() / 1000, self._skew_seconds
        expires, begins = _time(claims, "exp"), _time(claims, "nbf")
        made = _time(claims, "iat")
        assert expires is not None
        if now >= expires + skew:
            raise TokenRefused(f"the token has expired {now - expires:.0f} s ago")
        for name, time in (("nbf", begins), ("iat", made)):
            if time is not None and now < time - skew:
                raise TokenRefused(
                    f"the token holds only in {time - now:.0f} s ({name}); clocks may differ by "
                    f"{skew} s (sasl.oauthbearer.clock.skew.seconds)"
                )
        return min(max(expires - now, SHORTEST_SECONDS), _LONGEST_SECONDS)

    def _name(self, claims: dict[str, Any]) -> str:
        name = claims.get(self._claim)
        if not isinstance(name, str) or not name.strip() or "\0" in name:
            raise TokenRefused(
                f"the token has no name in {self._claim!r} (sasl.oauthbearer.sub.claim.name)"
            )
        try:
            size = len(name.encode())
        except UnicodeEncodeError:
            raise TokenRefused("the token's name is not Unicode") from None
        if size > MAX_USER_NAME_BYTES:
            raise TokenRefused(f"the token's name has more than {MAX_USER_NAME_BYTES} bytes")
        return name


def _time(claims: dict[str, Any], name: str) -> float | None:
    found = claims.get(name)
    if found is None and name != "exp":
        return None
    if isinstance(found, bool) or not isinstance(found, int | float):
        raise TokenRefused(f"the token's {name} is no number")
    try:
        seconds = float(found)
    except OverflowError:
        seconds = math.inf
    if not math.isfinite(seconds):
        raise TokenRefused(f"the token's {name} is no time")
    return seconds


def _other(claim: str, setting: str) -> str:
    return f"the token's {claim} is not what is expected ({setting})"


def _cut(text: object) -> str:
    shown = repr(text)
    return shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}..."
