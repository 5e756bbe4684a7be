"""A blocking client that does as little as possible, so that the broker is measured and not the
client.

Requests are encoded beforehand. The head of every answer is checked. `check_end` checks the log end
offset after a whole run. Only answers of interest are decoded.
"""

import socket
import ssl
from struct import Struct
from typing import Any

from ..config.address import split_address
from ..protocol.api.encodings import Encoding
from ..protocol.api.kafka import frames as kafka
from ..protocol.api.native import frames as native
from ..protocol.api.registry import APIS
from ..protocol.api.schema import Api
from ..testing.requests import list_offsets, result, results

_LENGTH_BYTES = 4
_read_length = Struct(">I").unpack_from
_BUFFER_BYTES = 4 << 20
"""Initial size of the receive buffer; a larger answer makes the buffer grow."""
_RECEIVE_BYTES = 64 << 10
_GOOD_HEADS = {native.NAME: b"\x93\x01\x00", kafka.NAME: b"\x00\x00\x00\x01"}
"""The first bytes of an answer without error: an array of three, correlation id 1, error code 0; in
Kafka's encoding only the correlation id."""

_LATEST = -1


class RefusedRequest(RuntimeError):
    """The broker answered with an error, so the measurement is invalid."""


class RawClient:
    """One connection."""

    def __init__(
        self, address: str, encoding: Encoding = native, *, tls: ssl.SSLContext | None = None
    ) -> None:
        self._encoding = encoding
        self._good_head = _GOOD_HEADS[encoding.NAME]
        host, port = split_address(address)
        self._socket = socket.create_connection((host, port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if tls is not None:
            self._socket = tls.wrap_socket(self._socket, server_hostname=host)
        self._buffer = bytearray(_BUFFER_BYTES)
        self._view = memoryview(self._buffer)
        self._begin = self._end = 0
        self._repeated: tuple[bytes, int, memoryview] = b"", 0, memoryview(b"")
        """Cache of `pipeline`: the frames sent last, the window, and the frames repeated."""

    def close(self) -> None:
        self._socket.close()

    def fileno(self) -> int:
        return self._socket.fileno()

    def call(self, request: object, version: int | None = None) -> Any:
        """Send a request and decode its answer; raises `RefusedRequest` for an error answer."""
        api = api_of(request)
        version = newest(api, self._encoding) if version is None else version
        frame = self.exchange(encoded(request, version, self._encoding))
        return decoded(api, version, frame, self._encoding)

    def exchange(self, request: bytes) -> memoryview:
        """Send one request and return its answer's frame, as `answer` does."""
        self._socket.sendall(request)
        return self.answer()

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def pipeline(self, requests: bytes, each: int, times: int, window: int) -> None:
        """Send `requests`, which are `each` frames in a row, `times` times; read all answers.

        At most `window` repetitions are unanswered at a time. As many as fit are sent with one call
        of the operating system, as fast clients do. Repetitions of several frames are sent as soon
        as one is answered, so that the broker works while the other answers are read.
        """
        if self._repeated[:2] != (requests, window):
            self._repeated = requests, window, memoryview(requests * window)
        together = self._repeated[2]
        sent = answered = 0
        while answered < times * each:
            room = min(window + answered // each, times) - sent
            if room:
                self._socket.sendall(together[: room * len(requests)])
                sent += room
            answered += self._answers(each - answered % each if each > 1 else window)

    def _answers(self, most: int) -> int:
        """Read the arrived answers, at least one, up to a limit; return their number."""
        self.answer()
        count, buffer, end, good_head = 1, self._buffer, self._end, self._good_head
        begin = self._begin
        while count < most and begin + _LENGTH_BYTES <= end:
            content = begin + _LENGTH_BYTES
            behind = content + _read_length(buffer, begin)[0]
            if behind > end:
                break
            if not buffer.startswith(good_head, content):
                raise RefusedRequest(bytes(self._view[content : min(behind, content + 200)]))
            begin = behind
            count += 1
        self._begin = begin
        return count

    def answer(self) -> memoryview:
        """Return the next answer's frame without its length; valid until the next one is read."""
        self._receive(_LENGTH_BYTES)
        begin = self._begin + _LENGTH_BYTES
        length = int.from_bytes(self._buffer[self._begin : begin], "big")
        self._receive(_LENGTH_BYTES + length)
        begin = self._begin + _LENGTH_BYTES
        self._begin = begin + length
        if not self._buffer.startswith(self._good_head, begin):
            raise RefusedRequest(bytes(self._view[begin : min(self._begin, begin + 200)]))
        return self._view[begin : self._begin]

    def _receive(self, wanted: int) -> None:
        """Receive until `wanted` unread bytes are there. Of a large answer not many more are
        received, so that few bytes have to be moved."""
        missing = wanted - (self._end - self._begin)
        if missing <= 0:
            return
        if self._begin == self._end:
            self._begin = self._end = 0
        elif self._begin + max(wanted, _RECEIVE_BYTES) > len(self._buffer):
            held = bytes(self._view[self._begin : self._end])
            self._begin, self._end = 0, len(held)
            self._buffer[: len(held)] = held
        if wanted > len(self._buffer):
            larger = bytearray(wanted + _RECEIVE_BYTES)
            larger[: self._end] = self._view[: self._end]
            self._buffer, self._view = larger, memoryview(larger)
        while missing > 0:
            end = min(self._end + max(missing, _RECEIVE_BYTES), len(self._buffer))
            received = self._socket.recv_into(self._view[self._end : end])
            if not received:
                raise RefusedRequest("the broker closed the connection")
            self._end += received
            missing -= received


def api_of(request: object) -> Api:
    """Return the request's declaration."""
    return next(api for api in APIS.values() if api.request is type(request))


def newest(api: Api, encoding: Encoding) -> int:
    """Return the highest version of a request."""
    return api.last_version(native=encoding.NATIVE)


def encoded(request: object, version: int | None = None, encoding: Encoding = native) -> bytes:
    """Encode a request, by default in its highest version."""
    api = api_of(request)
    version = newest(api, encoding) if version is None else version
    return encoding.encode_request(api, version, 1, "bench", request)


def decoded(api: Api, version: int, frame: memoryview | bytes, encoding: Encoding = native) -> Any:
    """Decode the body of an answer. Raises `RefusedRequest` for an error, also for one of a
    partition."""
    head, body = encoding.open_response(frame)
    if head.error_code:
        raise RefusedRequest(f"{api.name}: error {head.error_code}")
    response = encoding.decode_response(api.response, version, body)
    if api.name in ("produce", "fetch", "list-offsets"):
        for answer in results(response):
            if answer.error_code:
                raise RefusedRequest(
                    f"{api.name}: error {answer.error_code}: {answer.error_message}"
                )
    return response


def check_end(client: RawClient, topic: str, messages: int) -> None:
    """Raise `RefusedRequest` unless a topic's only partition has had exactly `messages`
    messages."""
    end = result(client.call(list_offsets(topic, (0, _LATEST)))).offset
    if end != messages:
        raise RefusedRequest(
            f"{topic} ends at offset {end}, although {messages} messages were sent"
        )
