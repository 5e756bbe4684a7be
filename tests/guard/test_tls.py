"""TLS."""

import asyncio

from horolog.config.address import split_address

from .conftest import Authority, Guarded


async def test_a_handshake(guarded: Guarded, authority: Authority) -> None:
    async with guarded() as broker:
        host, port = split_address(broker.addresses.native)
        reader, writer = await asyncio.open_connection(host, port, ssl=authority.trusting())
        writer.close()
