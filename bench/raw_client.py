"""A blocking client that does as little as may be: what is measured is the broker."""

import socket
from collections.abc import Sequence
from typing import Any

from ..config.address import split_address
from ..protocol.api.native import decode_response, encode_request, open_response
from ..protocol.api.registry import APIS
from ..protocol.api.schema import Api

_LENGTH_BYTES = 4
_RECEIVE_BYTES = 1 << 20


class RawClient:
    """One connection; requests are bytes made beforehand, answers are counted or decoded."""

    def __init__(self, address: str) -> None:
        self._socket = socket.create_connection(split_address(address))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._held = bytearray()

    def close(self) -> None:
        self._socket.close()

    def call(self, request: object, version: int | None = None) -> Any:
        """Send a request and decode its answer; raises `RuntimeError` for an error answer."""
        api = api_of(request)
        version = api.max_version if version is None else version
        self._socket.sendall(encode_request(api, version, 1, "bench", request))
        head, body = open_response(self.answer())
        if head.error_code:
            raise RuntimeError(f"{api.name}: error {head.error_code}")
        return decode_response(api.response, version, body)

    def exchange(self, request: bytes) -> bytes:
        """Send one request and return its answer's frame."""
        self._socket.sendall(request)
        return self.answer()

    def pipeline(self, requests: Sequence[bytes], window: int) -> None:
        """Send all requests with at most `window` unanswered ones, and read all answers."""
        sent = answered = 0
        while answered < len(requests):
            while sent < len(requests) and sent - answered < window:
                self._socket.sendall(requests[sent])
                sent += 1
            self.answer()
            answered += 1

    def answer(self) -> bytes:
        """The next answer's frame, without its length."""
        held = self._held
        while len(held) < _LENGTH_BYTES:
            held += self._receive()
        end = _LENGTH_BYTES + int.from_bytes(held[:_LENGTH_BYTES], "big")
        while len(held) < end:
            held += self._receive()
        frame = bytes(memoryview(held)[_LENGTH_BYTES:end])
        del held[:end]
        return frame

    def _receive(self) -> bytes:
        data = self._socket.recv(_RECEIVE_BYTES)
        if not data:
            raise RuntimeError("the broker closed the connection")
        return data


def api_of(request: object) -> Api:
    """The request's declaration."""
    return next(api for api in APIS.values() if api.request is type(request))


def encoded(request: object) -> bytes:
    """A request as bytes, in its highest version."""
    api = api_of(request)
    return encode_request(api, api.max_version, 1, "bench", request)
