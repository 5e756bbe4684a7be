"""The handlers: each answers the requests of one API, given and returned as message objects.

Handlers do no encoding. Importing this package imports all of its modules, whose handlers register
themselves.
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
"""Handlers by API key."""

HANDLERS_OF_MANY: Final[Mapping[int, HandlerOfMany]] = MappingProxyType(
    registration.handlers_of_many
)
"""By API key, handlers that answer several consecutive requests in one call."""

MOST_AT_A_TIME: Final[Mapping[int, int]] = MappingProxyType(registration.most_at_a_time)
"""By API key, how many requests a handler of `HANDLERS_OF_MANY` takes in one call."""
