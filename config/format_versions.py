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
        **dict.fromkeys(("0.10.0", "0.10.1", "0.10.2"), 1),
        **dict.fromkeys(("0.11.0", "1.0", "1.1"), 2),
        **dict.fromkeys(("2.0", "2.1", "2.2", "2.3", "2.4", "2.5", "2.6", "2.7", "2.8"), 2),
        **dict.fromkeys(("3.0", "3.1", "3.2", "3.3", "3.4", "3.5", "3.6", "3.7", "3.8", "3.9"), 2),
    }
)
"""The format (magic byte) that each version stores."""

_STEPS: Final[Mapping[str, int]] = MappingProxyType(
    {
        **dict.fromkeys(("0.10.2", "1.0", "1.1", "2.5", "2.6"), 1),
        **dict.fromkeys(("0.10.0", "2.0", "2.2", "2.3", "2.4", "2.8", "3.0"), 2),
        **dict.fromkeys(("0.10.1", "0.11.0", "2.1", "2.7"), 3),
    }
)
"""How many steps led to a release, where they have names: `2.1-IV0` to `2.1-IV2`."""

_RELEASE: Final = re.compile(r"(0\.\d+\.\d+|[1-9]\d*\.\d+)(\.\d+)+", re.ASCII)
_STEP: Final = re.compile(r"(?P<release>.+)-IV(?P<number>\d)", re.ASCII)


def version_that_counts(text: str) -> str:
    """The part of a version that names a format: of a release, its first two numbers, or three when
    the first is 0.

    `0.9.0.1` counts as `0.9.0`, `2.1.1` and `2.1-IV2` as `2.1`. Any other text counts as it is.
    """
    release = _RELEASE.fullmatch(text)
    if release is not None:
        return release[1]
    step = _STEP.fullmatch(text)
    if step is not None and int(step["number"]) < _STEPS.get(step["release"], 0):
        return step["release"]
    return text


@lru_cache(maxsize=64)
def magic_of(version: str) -> int | None:
    """The format that a checked `message.format.version` stores; `None` for `producer`."""
    return MAGIC_OF_VERSION.get(version_that_counts(version))
