"""Verification of tokens (JWT, RFC 7519), and the keys that sign them: a JSON Web Key Set (RFC
7517) from a file or a URL, whose last valid version stays in use. Error messages never contain a
token.

The checks are those of Kafka (KIP-768): the signature, by a key of the set; `exp` and `nbf`; `iss`
and `aud`; a name.
"""

import asyncio
import json
import math
import os
import ssl
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final
from urllib.parse import unquote, urlsplit

import jwt
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm
from jwt.types import Options

from ...config.broker import BrokerSettings
from ...protocol.errors import InvalidConfig
from ...storage.events import Observer
from ...storage.metadata.access_records import MAX_USER_NAME_BYTES
from ...values import value_class

URL_SETTING: Final = "sasl.oauthbearer.jwks.endpoint.url"

MAX_BYTES: Final = 256 * 1024
"""Largest key set in bytes. Those of large providers have some 10 KiB."""
MAX_KEYS: Final = 100
MIN_RSA_BITS: Final = 2048
MAX_RSA_BITS: Final = 8192
"""Largest RSA key. A longer one would only cost processor time."""

LOOK_SECONDS: Final = 5.0
"""Seconds between two checks of a file."""
FETCH_SECONDS: Final = 5.0
"""Seconds that a request to a URL may take; less than a login may take."""
REST_SECONDS: Final = 10.0
"""Least seconds between two reads, whatever clients send."""

_RSA: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
_CURVES: Final = {"P-256": "ES256", "P-384": "ES384", "P-521": "ES512", "Ed25519": "EdDSA"}
ALGORITHMS: Final = (*_RSA, *_CURVES.values())
"""Accepted algorithms: only those with which a verifier cannot sign."""

_PUBLIC: Final = {"RSA": ("n", "e"), "EC": ("crv", "x", "y"), "OKP": ("crv", "x")}
"""Public parts of a key by its `kty`. A private part that is there by mistake is ignored."""

_READ: Final[Mapping[str, Callable[[dict[str, Any]], Any]]] = MappingProxyType(
    {"RSA": RSAAlgorithm.from_jwk, "EC": ECAlgorithm.from_jwk, "OKP": OKPAlgorithm.from_jwk}
)

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


@value_class
class Key:
    """A public key, with its algorithms."""

    id: str
    algorithms: Sequence[str]
    public: Any


class Keys:
    """A set of public keys, found by key id and algorithm."""

    def __init__(self, keys: Sequence[Key] = ()) -> None:
        self._keys = keys

    def __len__(self) -> int:
        return len(self._keys)

    def find(self, id_: str | None, algorithm: str) -> Key | None:
        """Return the key with that id; without an id, the only key for the algorithm. None if there
        is none."""
        fitting = [key for key in self._keys if algorithm in key.algorithms]
        if id_ is not None:
            return next((key for key in fitting if key.id == id_), None)
        return fitting[0] if len(fitting) == 1 else None


def read_keys(content: bytes) -> Keys:
    """Parse a key set, and return its keys for signatures. Raises `ValueError` that explains what
    is wrong."""
    if len(content) > MAX_BYTES:
        raise ValueError(f"it has more than {MAX_BYTES} bytes")
    try:
        listed = json.loads(content)["keys"]
    except (ValueError, RecursionError, KeyError, TypeError):
        raise ValueError('it is not JSON of the form {"keys": [...]}') from None
    if not isinstance(listed, list) or len(listed) > MAX_KEYS:
        raise ValueError(f"its keys are no list of at most {MAX_KEYS}")
    found = [key for each in listed if (key := _key(each)) is not None]
    if not found:
        raise ValueError(
            f"none of its {len(listed)} keys is one for signatures by {', '.join(ALGORITHMS)} "
            f"(RSA with {MIN_RSA_BITS} to {MAX_RSA_BITS} bits)"
        )
    return Keys(found)


def _key(listed: Any) -> Key | None:
    """Return a key of the set; None if it is not for signatures, because a set may contain other
    keys."""
    kind = listed.get("kty") if isinstance(listed, dict) else None
    if not isinstance(kind, str) or kind not in _PUBLIC or listed.get("use", "sig") != "sig":
        return None
    fitting = _RSA if kind == "RSA" else (_CURVES.get(str(listed.get("crv")), ""),)
    named = listed.get("alg")
    algorithms = [each for each in fitting if each and named in (None, each)]
    id_ = listed.get("kid", "")
    if not algorithms or not isinstance(id_, str):
        return None
    parts = {"kty": kind} | {part: listed.get(part) for part in _PUBLIC[kind]}
    if not all(isinstance(part, str) for part in parts.values()):
        return None
    try:
        public = _READ[kind](parts)
    except (jwt.PyJWTError, ValueError, TypeError, OverflowError):
        return None
    if kind == "RSA" and not MIN_RSA_BITS <= public.key_size <= MAX_RSA_BITS:
        return None
    return Key(id_, tuple(algorithms), public)


class KeySource:
    """Current keys of a broker."""

    def __init__(self, url: str, refresh_seconds: float, observe: Observer) -> None:
        """Raises `InvalidConfig` for a file that cannot be used. A URL is read from `start` on, and
        may fail then."""
        self._url = url
        self._refresh_seconds = refresh_seconds
        self._observe = observe
        self._reading: asyncio.Task[None] | None = None
        self._read_at = float("-inf")
        self._timer: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self.keys = Keys()
        parts = urlsplit(url)
        self._path = Path(unquote(parts.path)) if parts.scheme == "file" else None
        self._stamp = self._file_stamp()
        if self._path is not None:
            try:
                self.keys = read_keys(_content(self._path))
            except (OSError, ValueError) as error:
                raise InvalidConfig(f"{URL_SETTING} = {url!r}: {_said(error)}") from None

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        if self._path is None:
            self._begin()
        else:
            self._timer = loop.call_later(LOOK_SECONDS, self._refresh)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._reading is not None:
            self._reading.cancel()
        self._loop = None

    def read_again(self) -> None:
        """Read the keys again, however short ago they were read."""
        if self._loop is not None:
            self._begin()

    async def renew(self) -> None:
        """Read the keys again because a token names an unknown key, unless they were read just
        now."""
        if self._loop is None:
            return
        if self._reading is None and self._loop.time() - self._read_at >= REST_SECONDS:
            self._begin()
        if self._reading is not None:
            # A caller that is cancelled must not end the read for which others wait.
            await asyncio.shield(asyncio.wait([self._reading]))

    def _refresh(self) -> None:
        assert self._loop is not None
        self._timer = self._loop.call_later(LOOK_SECONDS, self._refresh)
        if self._file_stamp() != self._stamp:
            self._begin()

    def _file_stamp(self) -> tuple[int, int, int] | None:
        try:
            found = None if self._path is None else os.stat(self._path)
        except OSError:
            return None
        return found and (found.st_mtime_ns, found.st_size, found.st_ino)

    def _begin(self) -> None:
        assert self._loop is not None
        if self._reading is None:
            self._read_at = self._loop.time()
            self._reading = self._loop.create_task(self._read())

    async def _read(self) -> None:
        """Replace the keys by the current ones. If those are invalid, log that and keep the old
        keys."""
        delay = self._refresh_seconds
        self._stamp = self._file_stamp()
        try:
            if self._path is not None:
                self.keys = read_keys(await asyncio.to_thread(_content, self._path))
            else:
                async with asyncio.timeout(FETCH_SECONDS):
                    content = await _fetched(self._url)
                self.keys = await asyncio.to_thread(read_keys, content)
        except Exception as error:  # libraries raise many kinds
            delay = min(REST_SECONDS, delay)
            hint = "the old ones stay in use" if self.keys else "no token is taken without any"
            self._observe("token_keys_refused", url=self._url, cause=_said(error), hint=hint)
        else:
            self._observe("token_keys_read", url=self._url, keys=len(self.keys))
        finally:
            self._reading = None
        if self._path is None and self._loop is not None:
            if self._timer is not None:
                self._timer.cancel()
            self._timer = self._loop.call_later(delay, self._begin)


def _content(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(MAX_BYTES + 1)


async def _fetched(url: str) -> bytes:
    """Return the content of a URL. Redirects are not followed, because the target could be less
    secure."""
    aiohttp = await asyncio.to_thread(import_module, "aiohttp")
    tls = await asyncio.to_thread(ssl.create_default_context)
    asked = {"Accept": "application/json", "Accept-Encoding": "identity"}
    async with (
        aiohttp.ClientSession(auto_decompress=False) as session,
        session.get(url, ssl=tls, allow_redirects=False, headers=asked) as answer,
    ):
        if answer.status != 200:
            raise ValueError(f"it answers with status {answer.status}")
        content = bytearray()
        while len(content) <= MAX_BYTES and (more := await answer.content.readany()):
            content += more
        return bytes(content)


def _said(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return f"there was no answer in {FETCH_SECONDS:g} s"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error)[:300] or type(error).__name__


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
