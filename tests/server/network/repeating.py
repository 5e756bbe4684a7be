"""Requests that repeat one before them, past any connection."""

from typing import Any

import pytest

from horolog.protocol.api.kafka import frames as kafka
from horolog.protocol.api.native import frames as native
from horolog.protocol.api.registry import APIS
from horolog.server.network.endpoint import Caller

CALLER = Caller(("127.0.0.1", 1), "127.0.0.1")
BOTH = pytest.mark.parametrize("encoding", [native, kafka], ids=lambda each: each.NAME)


def frame_of(encoding: Any, version: int, request: object, number: int = 1) -> bytes:
    """A request as a connection hands it on."""
    api = next(api for api in APIS.values() if api.request is type(request))
    frame: bytes = encoding.encode_request(api, version, number, "c", request)
    return frame[4:]


def learn(repeated: Any, encoding: Any, frame: bytes) -> None:
    """Let `repeated` learn from a request."""
    head, body = encoding.open_request(frame)
    request = APIS[head.api_key].request
    repeated.learn(head, encoding.decode_body(request, head.version, body))
