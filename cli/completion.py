"""What the shell offers when the user presses Tab, beyond commands and options."""

import asyncio
from contextlib import suppress
from typing import Final

import typer

from ..client.admin import Admin
from ..client.client import DEFAULT_ADDRESS
from ..protocol.api.framing import ProtocolError
from ..protocol.errors import HorologError

_TIMEOUT_MS: Final = 1_000
"""Somebody sits at a terminal and waits."""


def complete_topic(context: typer.Context, incomplete: str) -> list[str]:
    """The broker's topics that begin like that; none when it cannot be asked."""
    server = context.params.get("server") or DEFAULT_ADDRESS
    with suppress(HorologError, ProtocolError, OSError, ValueError):
        topics = asyncio.run(_topics(server))
        return [topic for topic in topics if topic.startswith(incomplete)]
    return []


async def _topics(server: str) -> list[str]:
    async with Admin(server, request_timeout_ms=_TIMEOUT_MS) as admin:
        return list(await admin.list_topics())
