"""What a client has to know to be let in, as one value."""

import os
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from ..errors import SecurityError

MAX_SECRET_BYTES: Final = 64 * 1024
"""Of a file or of what a command prints. Tokens have a few KiB; a device never ends."""

_COMMAND_SECONDS: Final = 60
"""A keyring may ask its user to unlock it."""


class Secret(ABC):
    """A text that is read when it is needed, so that one that changed is found, and is not part
    of any `repr`."""

    @abstractmethod
    def read(self) -> str:
        """The text. Raises SecurityError, which says where it was to come from."""


@dataclass(frozen=True, slots=True)
class SecretText(Secret):
    """The text itself."""

    text: str = field(repr=False)

    def read(self) -> str:
        """The text."""
        return self.text


@dataclass(frozen=True, slots=True)
class SecretFile(Secret):
    """What is in a file; an end of line behind it does not belong to it."""

    path: str

    def read(self) -> str:
        """Raises SecurityError for a file that cannot be read, is empty, too large or not UTF-8."""
        try:
            with open(self.path, "rb") as file:
                content = file.read(MAX_SECRET_BYTES + 1)
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or error
            raise SecurityError(f"{self.path} cannot be read: {why}") from None
        return _text(content, self.path)


@dataclass(frozen=True, slots=True)
class SecretVariable(Secret):
    """What is in a variable of the environment."""

    name: str

    def read(self) -> str:
        """Raises SecurityError for a variable that is not set, or empty."""
        found = os.environ.get(self.name, "")
        if not found:
            raise SecurityError(
                f"the variable {self.name} of the environment is not set, and a secret was to be "
                "in it"
            )
        return found


@dataclass(frozen=True, slots=True)
class SecretCommand(Secret):
    """What a command prints, such as that of a keyring; an end of line does not belong to it."""

    words: tuple[str, ...]
    """The program and its arguments; no shell reads them."""

    def read(self) -> str:
        """Raises SecurityError for a command that fails, or prints nothing, too much, no UTF-8."""
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
    """A secret that was given as a text, or as where it is."""
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
    """How a client says who it is (SASL)."""

    PLAIN = "PLAIN"
    """The password itself is sent, so only over TLS."""
    SCRAM_SHA_256 = "SCRAM-SHA-256"
    SCRAM_SHA_512 = "SCRAM-SHA-512"
    """Both sides prove that they know the password, and none sends it."""
    OAUTHBEARER = "OAUTHBEARER"
    """A token is sent that an issuer has signed, so only over TLS."""


TokenSource = Callable[[], str | Awaitable[str]]
"""Gives a token that is good now. It is called for every new connection, and again before what the
broker allows for a session is over. A plain function is called in the event loop, so it must not
wait; one that has to is a coroutine function."""

_SENT_AS_THEY_ARE: Final = (Mechanism.PLAIN, Mechanism.OAUTHBEARER)


@dataclass(frozen=True, slots=True, kw_only=True)
class Security:
    """TLS and authentication of a client. Its `repr` has no secret in it.

    Paths are of PEM files, which are read again when they have changed, for new connections.
    """

    tls: bool | None = None
    """None goes by the address: `tls://` and `kafka+tls://` are encrypted, others are not."""
    ca: str | None = None
    """Certificates that the broker's is to be signed by; None trusts those that the system does."""
    certificate: str | None = None
    """The client's own certificate, and what leads from it to one that the broker knows."""
    key: str | None = None
    """Its private key; None when that is in the file of the certificate."""
    key_password: str | Secret | None = field(default=None, repr=False)
    """Where the key is encrypted."""
    check_host_name: bool = True
    """Whether the broker's certificate has to be for the host that was connected to."""
    mechanism: Mechanism | None = None
    """None with a user is SCRAM-SHA-512, with a token OAUTHBEARER, else no authentication."""
    user: str | None = None
    password: str | Secret | None = field(default=None, repr=False)
    token: str | Secret | TokenSource | None = field(default=None, repr=False)
    """For OAUTHBEARER: a token, where it is, or a function that gives one."""
    secrets_without_tls: bool = False
    """Lets PLAIN and OAUTHBEARER send passwords and tokens that everybody on the way can read."""

    def __post_init__(self) -> None:
        """Raises SecurityError for settings that do not go together."""
        for name in ("key_password", "password", "token"):
            given = getattr(self, name)
            if isinstance(given, str):
                # So that whatever shows the values of variables does not show this one.
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
                "use TLS (an address with tls:// or kafka+tls://), or one of SCRAM-SHA-256 and "
                "SCRAM-SHA-512, or allow it with secrets_without_tls"
            )
        given = next((name for name in ("ca", "certificate") if getattr(self, name)), None)
        if given is not None:
            raise SecurityError(
                f"{given} is for TLS, and the address is not one of TLS: write tls://HOST:PORT, or "
                "kafka+tls://HOST:PORT for a Kafka cluster"
            )


def mechanism_of(name: str) -> Mechanism:
    """The one of that name, in any case. Raises SecurityError."""
    try:
        return Mechanism(name.upper())
    except ValueError:
        raise SecurityError(f"{name!r} is no mechanism: there are {', '.join(Mechanism)}") from None
