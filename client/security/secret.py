"""Passwords and tokens: where they come from, and nothing that shows them."""

import os
import subprocess
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
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
