"""Ids like Kafka's: 128 random bits, as 22 characters of base64 for URLs."""

import base64
import re
from random import Random
from typing import Final

_ID: Final = re.compile(r"[\w-]{22}", re.ASCII)


def random_id(random: Random) -> str:
    """Return a new id."""
    bits = random.getrandbits(128).to_bytes(16, "big")
    return base64.urlsafe_b64encode(bits).rstrip(b"=").decode()


def is_id(text: object) -> bool:
    """Whether `text` has the form of an id."""
    return isinstance(text, str) and _ID.fullmatch(text) is not None
