"""The decorators `@handles(API)` and `@handles_many(API)`, which register handlers."""

import sys
from collections.abc import Callable
from typing import Final, TypeVar

from ...protocol.api.schema import Api
from ..requests import Handler, HandlerOfMany, list_of_one

H = TypeVar("H", bound=Handler)

handlers: Final[dict[int, Handler]] = {}
"""Handlers by API key."""

handlers_of_many: Final[dict[int, HandlerOfMany]] = {}
"""By API key, handlers that answer several requests in one call."""

most_at_a_time: Final[dict[int, int]] = {}
"""By API key, how many requests a handler of many takes in one call."""


def handles(api: Api) -> Callable[[H], H]:
    """Register the handler of an API."""

    def register(handler: H) -> H:
        assert api.key not in handlers, f"{api.name} has two handlers"
        handlers[api.key] = handler
        return handler

    return register


def handles_many(api: Api, *, most: int = sys.maxsize) -> Callable[[HandlerOfMany], HandlerOfMany]:
    """Register a handler that answers requests of an API that arrived together, at most `most` in
    one call."""

    def register(handle_many: HandlerOfMany) -> HandlerOfMany:
        handles(api)(list_of_one(handle_many))
        handlers_of_many[api.key], most_at_a_time[api.key] = handle_many, most
        return handle_many

    return register
