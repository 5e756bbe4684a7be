"""The client that measures: as many requests under way as it says, and all answers read."""

import socket
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

from horolog.bench.raw_client import RawClient
from horolog.protocol.api.kafka import frames as kafka

ANSWER = (9).to_bytes(4, "big") + (1).to_bytes(4, "big") + b"right"


def answered(listener: socket.socket, request_bytes: int, window: int, takes: list[int]) -> int:
    """Answer so many requests at a time, once all are there that may be; says how many came, and
    raises AssertionError for one too many."""
    peer, _ = listener.accept()
    with peer:
        peer.settimeout(None)
        total, answers = sum(takes), 0
        there = 0
        for take in takes:
            while there < min(window + answers, total):
                assert len(peer.recv(request_bytes, socket.MSG_WAITALL)) == request_bytes
                there += 1
            with pytest.raises(BlockingIOError):
                peer.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
            # The last one in two parts: it is an answer when all of it is there.
            sent = ANSWER * take
            peer.sendall(sent[:-3])
            peer.sendall(sent[-3:])
            answers += take
        return there


def test_an_answer_may_be_larger_than_all_before() -> None:
    bodies = [b"small", b"l" * (5 << 20), b"between", b"L" * (9 << 20), b"last"]
    frames = [(1).to_bytes(4, "big") + body for body in bodies]
    sent = b"".join(len(frame).to_bytes(4, "big") + frame for frame in frames)
    with (
        ThreadPoolExecutor(1) as threads,
        socket.create_server(("127.0.0.1", 0)) as listener,
        closing(RawClient("{}:{}".format(*listener.getsockname()), kafka)) as client,
    ):
        peer, _ = listener.accept()
        with peer:
            sending = threads.submit(peer.sendall, sent)
            assert [client.answer() == frame for frame in frames] == [True] * len(frames)
            sending.result()


@pytest.mark.parametrize("takes", [[1] * 16, [8, 8], [3, 5, 1, 7], [2, 2, 6, 6]])
def test_a_window_of_requests_is_under_way(takes: list[int]) -> None:
    request = b"r" * 1000
    with socket.create_server(("127.0.0.1", 0)) as listener, ThreadPoolExecutor(1) as threads:
        peer = threads.submit(answered, listener, len(request), 8, takes)
        with closing(RawClient("{}:{}".format(*listener.getsockname()), kafka)) as client:
            client.pipeline(request, 1, 16, 8)
        assert peer.result() == 16
