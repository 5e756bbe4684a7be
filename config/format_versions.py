"""The versions that `message.format.version` may name, and the message format of each.

Kafka names formats by the release that brought them, with a suffix for steps between releases.
"""

import re
from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Final

AS_SENT: Final = "producer"
"""No version: what was sent is stored."""

MAGIC_OF_VERSION: Final[Mapping[str, int]] = MappingProxyType(
    {
        **dict.fromkeys(("0.8.0", "0.8.1", "0.8.2", "0.9.0"), 0),
        **dict.fromkeys(("0.10.0", "0.10.0-IV0", "0.10.0-IV1"), 1),
        **dict.fromkeys(("0.10.1", "0.10.1-IV0", "0.10.1-IV1", "0.10.1-IV2"), 1),
        **dict.fromkeys(("0.10.2", "0.10.2-IV0"), 1),
    }
)
"""The format (magic byte) that each version stores."""

_RELEASE: Final = re.compile(r"(\d+\.\d+\.\d+)(\.\d+)+", re.ASCII)


def version_that_counts(text: str) -> str:
    """The part of a version that names a format: of a release, its first three numbers.

    `0.9.0.1` counts as `0.9.0`. Any other text counts as it is.
    """
    release = _RELEASE.fullmatch(text)
    return text if release is None else release[1]


@lru_cache(maxsize=64)
def magic_of(version: str) -> int | None:
    """The format that a checked `message.format.version` stores; `None` for `producer`."""
    return MAGIC_OF_VERSION.get(version_that_counts(version))
