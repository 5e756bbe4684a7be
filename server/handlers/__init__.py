"""One handler for each request, by subject: messages in, messages out, no byte order, no msgpack.

Importing this package imports each of its modules, whose handlers register themselves.
"""

from collections.abc import Mapping
from importlib import import_module
from pkgutil import iter_modules
from types import MappingProxyType
from typing import Final

from ..requests import Handler, HandlerOfMany
from . import registration

for _module in iter_modules(__path__, f"{__name__}."):
    import_module(_module.name)

HANDLERS: Final[Mapping[int, Handler]] = MappingProxyType(registration.handlers)
"""By the key of the request."""

HANDLERS_OF_MANY: Final[Mapping[int, HandlerOfMany]] = MappingProxyType(
    registration.handlers_of_many
)
"""For requests that are answered in bulk if one comes right behind the other."""

MOST_AT_A_TIME: Final[Mapping[int, int]] = MappingProxyType(registration.most_at_a_time)
"""How many requests one of `HANDLERS_OF_MANY` takes in one call."""
