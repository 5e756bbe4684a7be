"""A client that speaks either encoding of the protocol frame by frame, for tests of servers.

It decodes what it receives without further checks, and can send what no client should send.
"""

import asyncio
import itertools
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from ..config.address import split_address
from ..protocol.api.encodings import Encoding
from ..protocol.api.native import frames as native
from ..protocol.api.registry import APIS
from ..protocol.api.schema import Api
from ..protocol.errors import NO_ERROR, error_from_code
from ..protocol.limits import LENGTH_BYTES
from .proxy import RESET_ON_CLOSE

CLIENT_ID = "wire"


class Wire:
    """One connection. Answers are read one by one, in order of arrival."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, encoding: Encoding
    ) -> None:
        self.reader = reader
        self.writer = writer
        self._encoding = encoding
        self.client_id: str | None = CLIENT_ID
        self._numbers = itertools.count(1)
        self._sent: dict[int, tuple[Api, int]] = {}

    @classmethod
    async def open(
        cls,
        address: str,
        *,
        encoding: Encoding = native,
        limit: int = 1 << 26,
        tls: ssl.SSLContext | None = None,
    ) -> "Wire":
        """Connect to `HOST:PORT`. `limit` is the number of bytes buffered before reading pauses."""
        host, port = split_address(address)
        return cls(*await asyncio.open_connection(host, port, limit=limit, ssl=tls), encoding)

    def send(self, api: Api, version: int, body: object) -> int:
        """Send a request, and return its correlation id."""
        number, data = self._numbered(api, version, body)
        self.writer.write(data)
        return number

    def send_together(self, *bodies: object) -> list[int]:
        """Send requests, in their highest versions, in one write. Returns their correlation ids."""
        apis = {api.request: api for api in APIS.values()}
        sent = []
        for body in bodies:
            api = apis[type(body)]
            sent.append(self._numbered(api, self.newest(api), body))
        self.writer.write(b"".join(data for _, data in sent))
        return [number for number, _ in sent]

    def _numbered(self, api: Api, version: int, body: object) -> tuple[int, bytes]:
        number = next(self._numbers)
        self._sent[number] = (api, version)
        return number, self._encoding.encode_request(api, version, number, self.client_id, body)

    def newest(self, api: Api) -> int:
        """Return the version in which a request is sent by default."""
        return api.last_version(native=self._encoding.NATIVE)

    def send_bytes(self, data: bytes) -> None:
        """Send arbitrary bytes."""
        self.writer.write(data)

    async def frame(self) -> bytes:
        """Return the next frame, without its length. Raises `IncompleteReadError` at the end."""
        length = int.from_bytes(await self.reader.readexactly(LENGTH_BYTES), "big")
        return await self.reader.readexactly(length)

    async def receive(self) -> tuple[int, Any]:
        """Return correlation id and body of the next answer. An error answer raises its
        `CodedError`."""
        head, raw = self._encoding.open_response(await self.frame())
        if head.error_code != NO_ERROR:
            raise error_from_code(head.error_code, self._encoding.error_message(raw))
        api, version = self._sent.pop(head.correlation_id)
        return head.correlation_id, self._encoding.decode_response(api.response, version, raw)

    async def call(self, body: object, version: int | None = None) -> Any:
        """Send a request, in its highest version by default, and return the body of the answer."""
        api = next(api for api in APIS.values() if api.request is type(body))
        sent = self.send(api, self.newest(api) if version is None else version, body)
        received, answer = await self.receive()
        assert received == sent
        return answer

    async def at_end(self) -> bool:
        """Wait until the server closes or resets the connection. Returns false if it sends data
        instead."""
        try:
            return await self.reader.read(1) == b""
        except ConnectionError:
            return True

    def close(self) -> None:
        self.writer.close()

    def reset(self) -> None:
        """Reset the connection, as happens when a process ends without reading all answers."""
        option = socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE
        self.writer.get_extra_info("socket").setsockopt(*option)
        self.writer.transport.abort()


@asynccontextmanager
async def wire(
    address: str,
    encoding: Encoding = native,
    tls: ssl.SSLContext | None = None,
    kind: type[Wire] = Wire,
) -> AsyncIterator[Wire]:
    """Open a connection, and close it at the end of the block."""
    client = await kind.open(address, encoding=encoding, tls=tls)
    try:
        yield client
    finally:
        client.close()
