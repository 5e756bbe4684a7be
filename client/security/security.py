"""Settings of a client for TLS and authentication, as one value."""

import os
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from ..errors import IN_OPTIONS, IN_PYTHON, Remedy, SecurityError

MAX_SECRET_BYTES: Final = 64 * 1024
"""Largest size of a secret from a file or a command. Tokens have a few KiB; a device never ends."""

_COMMAND_SECONDS: Final = 60
"""Seconds for a command to end. A keyring may ask its user to unlock it."""


class Secret(ABC):
    """A text that is read each time it is needed, so that a change takes effect. It is not part of
    any `repr`."""

    @abstractmethod
    def read(self) -> str:
        """Return the text. Raises SecurityError that names the source."""


@dataclass(frozen=True, slots=True)
class SecretText(Secret):
    """A secret given as text."""

    text: str = field(repr=False)

    def read(self) -> str:
        """The text."""
        return self.text


@dataclass(frozen=True, slots=True)
class SecretFile(Secret):
    """A secret in a file. A line end at the end of the file is not part of the secret."""

    path: str

    def read(self) -> str:
        """Return the content of the file. Raises SecurityError if the file cannot be read, is
        empty, too large or not UTF-8."""
        try:
            with open(self.path, "rb") as file:
                content = file.read(MAX_SECRET_BYTES + 1)
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or error
            raise SecurityError(f"{self.path} cannot be read: {why}") from None
        return _text(content, self.path)


@dataclass(frozen=True, slots=True)
class SecretVariable(Secret):
    """A secret in an environment variable."""

    name: str

    def read(self) -> str:
        """Return the value of the variable. Raises SecurityError if it is not set or empty."""
        found = os.environ.get(self.name, "")
        if not found:
            raise SecurityError(
                f"the variable {self.name} of the environment is not set, and a secret was to be "
                "in it"
            )
        return found


@dataclass(frozen=True, slots=True)
class SecretCommand(Secret):
    """A secret printed by a command, such as that of a keyring. A line end at the end is not part
    of the secret."""

    words: tuple[str, ...]
    """The program and its arguments; no shell interprets them."""

    def read(self) -> str:
        """Run the command and return its output. Raises SecurityError if the command fails, or its
        output is empty, too large or not UTF-8."""
        program = self.words[0]
        try:
            done = subprocess.run(
                self.words, stdout=subprocess.PIPE, check=False, timeout=_COMMAND_SECONDS
            )
        except subprocess.TimeoutExpired:
            raise SecurityError(
                f"{program}, which was to print a secret, did not end in {_COMMAND_SECONDS} s"
            ) from None
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or error
            raise SecurityError(
                f"{program}, which was to print a secret, cannot be run: {why}"
            ) from None
        if done.returncode:
            raise SecurityError(
                f"{program}, which was to print a secret, failed with exit code {done.returncode}"
            )
        return _text(done.stdout, f"what {program} printed")


def secret(given: str | Secret) -> Secret:
    """Return a text as a `Secret`; a `Secret` is returned unchanged."""
    return SecretText(given) if isinstance(given, str) else given


def _text(content: bytes, place: str) -> str:
    if len(content) > MAX_SECRET_BYTES:
        raise SecurityError(f"{place} is longer than {MAX_SECRET_BYTES} bytes, so it is no secret")
    try:
        text = content.decode().removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError:
        raise SecurityError(f"{place} is not UTF-8, so it is no secret") from None
    if not text:
        raise SecurityError(f"{place} is empty, and a secret was to be there")
    return text


class Mechanism(StrEnum):
    """SASL mechanism by which a client authenticates."""

    PLAIN = "PLAIN"
    """Sends the password itself, so only over TLS."""
    SCRAM_SHA_256 = "SCRAM-SHA-256"
    SCRAM_SHA_512 = "SCRAM-SHA-512"
    """Both sides prove that they know the password, and neither sends it."""
    OAUTHBEARER = "OAUTHBEARER"
    """Sends a token that an issuer has signed, so only over TLS."""


TokenSource = Callable[[], str | Awaitable[str]]
"""Returns a currently valid token. It is called for every new connection, and again before the
session's lifetime ends. A plain function runs in the event loop and must not block; a source that
has to wait is a coroutine function."""

_SENT_AS_THEY_ARE: Final = (Mechanism.PLAIN, Mechanism.OAUTHBEARER)


@dataclass(frozen=True, slots=True, kw_only=True)
class Security:
    """TLS and authentication of a client. Its `repr` contains no secrets.

    Paths are those of PEM files. A changed file is read again for new connections.
    """

    tls: bool | None = None
    """Whether to use TLS. None follows the address: `tls://` and `kafka+tls://` are encrypted,
    others are not."""
    ca: str | None = None
    """File of the CA certificates that are trusted; None trusts those of the system."""
    certificate: str | None = None
    """File of the client's certificate, with the intermediate certificates up to a CA that the
    broker trusts."""
    key: str | None = None
    """File of the private key; None if the certificate's file contains it."""
    key_password: str | Secret | None = field(default=None, repr=False)
    """Password of an encrypted private key."""
    check_host_name: bool = True
    """Whether the broker's certificate must be valid for the host that the client connects to."""
    mechanism: Mechanism | None = None
    """SASL mechanism. None means SCRAM-SHA-512 with a user, OAUTHBEARER with a token, else no
    authentication."""
    user: str | None = None
    password: str | Secret | None = field(default=None, repr=False)
    token: str | Secret | TokenSource | None = field(default=None, repr=False)
    """Token for OAUTHBEARER: the token, its source, or a function that returns one."""
    secrets_without_tls: bool = False
    """Whether PLAIN and OAUTHBEARER may send passwords and tokens without TLS, where anybody on the
    network path can read them."""
    named_as_options: bool = field(default=False, repr=False, compare=False)
    """Whether these settings are given as options, as in Spark; errors then name the options."""

    def __post_init__(self) -> None:
        """Complete and check the settings. Raises SecurityError for a contradiction."""
        for name in ("key_password", "password", "token"):
            given = getattr(self, name)
            if isinstance(given, str):
                # Debuggers and tracebacks that show the values of variables then do not show the
                # secret.
                object.__setattr__(self, name, secret(given))
        if self.mechanism is not None:
            object.__setattr__(self, "mechanism", mechanism_of(self.mechanism))
        elif self.user is not None or self.token is not None:
            chosen = Mechanism.SCRAM_SHA_512 if self.token is None else Mechanism.OAUTHBEARER
            object.__setattr__(self, "mechanism", chosen)
        self._check_names()
        if self.key is not None and self.certificate is None:
            raise SecurityError("there is a key and no certificate: give both, or neither")
        if self.key_password is not None and self.certificate is None:
            raise SecurityError("there is a password of a key and no certificate")
        if self.tls is not None:
            self._check_channel(self.tls)

    def _check_names(self) -> None:
        if self.mechanism is None:
            if self.password is not None:
                raise SecurityError("there is a password and no user: name the user")
            return
        if self.mechanism is Mechanism.OAUTHBEARER:
            if self.token is None:
                raise SecurityError("OAUTHBEARER needs a token: give one, or what gives one")
            if self.user is not None or self.password is not None:
                raise SecurityError("OAUTHBEARER takes the name from the token: leave user out")
            return
        if self.token is not None:
            raise SecurityError(
                f"a token is for OAUTHBEARER, and the mechanism is {self.mechanism}"
            )
        if not self.user:
            raise SecurityError(f"{self.mechanism} needs a user")
        if self.password is None:
            raise SecurityError(f"the user {self.user} has no password: give one, or its file")

    def _check_channel(self, tls: bool) -> None:
        if tls:
            return
        if self.mechanism in _SENT_AS_THEY_ARE and not self.secrets_without_tls:
            raise SecurityError(
                f"{self.mechanism} would send its secret so that everybody on the way can read it: "
                "use TLS, or one of SCRAM-SHA-256 and SCRAM-SHA-512",
                Remedy.TLS_ADDRESS,
                IN_OPTIONS if self.named_as_options else IN_PYTHON,
            )
        given = next((name for name in ("ca", "certificate") if getattr(self, name)), None)
        if given is not None:
            raise SecurityError(
                f"{given} is for TLS, and the address is not one of TLS: write tls://HOST:PORT, or "
                "kafka+tls://HOST:PORT for a Kafka cluster"
            )


def mechanism_of(name: str) -> Mechanism:
    """Return the mechanism with that name, in any case. Raises SecurityError."""
    try:
        return Mechanism(name.upper())
    except ValueError:
        raise SecurityError(f"{name!r} is no mechanism: there are {', '.join(Mechanism)}") from None
