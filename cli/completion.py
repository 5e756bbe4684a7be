"""What the shell offers when the user presses Tab, beyond commands and options."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from typing import Final

import typer

from ..client.administer.admin import Admin
from ..client.client import DEFAULT_ADDRESS
from ..client.cluster.servers import Servers
from ..protocol.errors import HorologError

_PLAIN: Final = frozenset("_-.,:/@%+=")
_TIMEOUT_MS: Final = 1_000
"""A user sits at a terminal and waits."""


def complete_topic(context: typer.Context, incomplete: str) -> list[str]:
    """The broker's topics that begin like that; none when it cannot be asked."""
    return _that_begin_with(incomplete, _topics, context)


def complete_position_name(context: typer.Context, incomplete: str) -> list[str]:
    """The names that begin like that under which positions are stored; as `complete_topic`."""
    return _that_begin_with(incomplete, Admin.position_names, context)


def _that_begin_with(
    incomplete: str,
    ask: Callable[[Admin], Awaitable[Iterable[str]]],
    context: typer.Context,
) -> list[str]:
    server = context.params.get("server") or DEFAULT_ADDRESS
    with suppress(HorologError, OSError, ValueError):
        found = asyncio.run(_asked(server, ask))
        return [name for name in found if name.startswith(incomplete) and _is_plain(name)]
    return []


def _is_plain(name: str) -> bool:
    """Whether a shell takes a name as it stands: what is completed is not quoted, and a name that
    another client chose shall not begin a second command."""
    return all(letter.isalnum() or letter in _PLAIN for letter in name)


async def _asked(
    server: str | Servers, ask: Callable[[Admin], Awaitable[Iterable[str]]]
) -> Iterable[str]:
    async with Admin(server, request_timeout_ms=_TIMEOUT_MS) as admin:
        return await ask(admin)


async def _topics(admin: Admin) -> Iterable[str]:
    return await admin.list_topics()
