"""Requests that come together, past any connection."""

from collections import deque
from collections.abc import Sequence
from typing import Any

import pytest

from horolog.protocol.api.kafka import frames as kafka
from horolog.protocol.api.native import frames as native
from horolog.protocol.api.registry import APIS
from horolog.server.dispatch import Dispatcher
from horolog.server.network.endpoint import Caller, Frames
from horolog.server.network.sending import Answer

CALLER = Caller(("127.0.0.1", 1), "127.0.0.1")
BOTH = pytest.mark.parametrize("encoding", [native, kafka], ids=lambda each: each.NAME)


def frame_of(encoding: Any, version: int, request: object, number: int = 1) -> bytes:
    """A request as a connection hands it on."""
    api = next(api for api in APIS.values() if api.request is type(request))
    frame: bytes = encoding.encode_request(api, version, number, "c", request)
    return frame[4:]


def answers_to(dispatcher: Dispatcher, requests: Sequence[bytes]) -> list[Answer]:
    """The answers to requests that came together, each by itself."""
    frames: Frames = deque(requests)
    answers: list[Answer] = []
    while frames:
        for answer in dispatcher.answer(frames, len(frames), CALLER):
            answers += each_of(answer) if isinstance(answer, bytes) else [answer]
    return answers


def each_of(joined: bytes) -> list[bytes]:
    """The answers that were sent as one."""
    found = []
    while joined:
        end = 4 + int.from_bytes(joined[:4], "big")
        found.append(joined[:end])
        joined = joined[end:]
    return found
