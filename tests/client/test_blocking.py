"""The clients without `await`, against a broker in a process of its own."""

import inspect
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import horolog
from horolog import ClientClosed, Found, InvalidTimestamp, blocking
from horolog.clock import SystemClock
from horolog.testing.program import ServerProcess, serving

T0 = SystemClock().now_ms() - 3_600_000
"""The broker has a real clock, and a retention of seven days."""
THREAD = "horolog-blocking"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with serving(tmp_path_factory.mktemp("broker") / "data") as started:
        yield started


def background_threads() -> int:
    return sum(thread.name == THREAD for thread in threading.enumerate())


@pytest.mark.parametrize("name", ["Producer", "Consumer", "Admin"])
def test_the_names_and_arguments_are_the_same(name: str) -> None:
    waiting, asynchronous = getattr(blocking, name), getattr(horolog, name)
    for method in [n for n in dir(asynchronous) if not n.startswith("_") and n != "close"]:
        own, other = getattr(waiting, method, None), getattr(asynchronous, method)
        assert own is not None, method
        if not isinstance(other, property):
            parameters = inspect.signature(own).parameters
            assert (
                list(parameters.items())[1:]
                == list(inspect.signature(other).parameters.items())[1:]
            ), method
            assert own.__doc__, method
    assert inspect.signature(waiting).parameters == inspect.signature(asynchronous).parameters


def test_producing_and_consuming(server: ServerProcess) -> None:
    with blocking.Producer(server.native) as producer:
        sent = producer.send("a", b"one", key=b"k", timestamp_ms=T0)
        assert (sent.offset, sent.timestamp_ms) == (0, T0)
        waiting = [producer.enqueue("a", b"%d" % n, timestamp_ms=T0 + n) for n in range(50)]
        producer.flush()
        assert [one.result(0).offset for one in waiting] == list(range(1, 51))
        assert producer.send_batch("a", [b"x", b"y"]).count == 2
    with blocking.Consumer(server.native, name="n") as consumer:
        consumer.assign("a")
        first = next(consumer)
        assert consumer.assignment == [("a", 0)]
        assert (first.value, first.key) == (b"one", b"k")
        for record in consumer:
            if record.offset == 20:
                break
        assert consumer.position("a") == 21
        consumer.commit()
        assert consumer.lag()["a", 0].messages == 32
        consumer.seek_to_time(timestamp_ms=T0 + 10)
        assert next(consumer).value == b"10"
        consumer.seek_to_committed()
        batches = consumer.fetch_columns()
        assert [n for batch in batches for n in batch.offsets] == list(range(21, 53))
    with blocking.Admin(server.native) as admin:
        assert admin.find_offset("a", 0, timestamp_ms=T0 + 3) == Found(4, T0 + 3)
        assert admin.list_topics()["a"] == 1


def test_errors_arrive_where_the_call_was(server: ServerProcess) -> None:
    with blocking.Admin(server.native) as admin, blocking.Producer(server.native) as producer:
        admin.create_topic("strict", settings={"max.message.time.difference.ms": "1000"})
        with pytest.raises(InvalidTimestamp):
            producer.send("strict", b"a", timestamp_ms=T0)
        refused = producer.enqueue("strict", b"a", timestamp_ms=T0)
        assert isinstance(refused.exception(60), InvalidTimestamp)


def test_any_thread_may_call(server: ServerProcess) -> None:
    offsets: list[int] = []
    with blocking.Producer(server.native) as producer:

        def send() -> None:
            offsets.extend(producer.send("threads", b"v").offset for _ in range(20))

        threads = [threading.Thread(target=send) for _ in range(8)]
        for thread in threads:
            thread.start()
        assert background_threads() == 1
        for thread in threads:
            thread.join()
    assert sorted(offsets) == list(range(160))


def test_the_thread_goes_with_the_last_client(server: ServerProcess) -> None:
    one, other = blocking.Admin(server.native), blocking.Producer(server.native)
    one.list_topics()
    one.close()
    assert background_threads() == 1
    other.close()
    other.close()
    assert background_threads() == 0
    for client in (one, other):
        with pytest.raises(ClientClosed), client:
            pytest.fail("it is closed")
    with pytest.raises(ClientClosed):
        one.list_topics()


def test_nobody_there_leaves_no_thread() -> None:
    with pytest.raises(horolog.ConnectionFailed), blocking.Admin("127.0.0.1:1"):
        pytest.fail("nobody listens there")
    assert background_threads() == 0


def test_the_loop_itself_may_not_wait(server: ServerProcess) -> None:
    caught: list[BaseException] = []

    def call_back(_: Any) -> None:
        try:
            producer.flush()
        except RuntimeError as error:
            caught.append(error)

    with blocking.Producer(server.native) as producer:
        sent = producer.enqueue("a", b"v")
        sent.add_done_callback(call_back)
        sent.result(60)
    assert len(caught) <= 1  # the answer may come before the callback is there
    if caught:
        assert "its own loop would stand" in str(caught[0])


INTERRUPTED = """
import signal, sys, threading
from horolog import blocking
with blocking.Producer(sys.argv[1]) as producer, blocking.Consumer(sys.argv[1]) as consumer:
    consumer.assign("quiet", 0, offset=0)
    try:
        print("waiting", flush=True)
        next(consumer)
    except KeyboardInterrupt:
        print("interrupted", flush=True)
    producer.send("quiet", b"after")
    print(next(consumer).value, flush=True)
print([t.name for t in threading.enumerate()])
"""


def test_ctrl_c_ends_a_wait_and_the_client_works_on(server: ServerProcess) -> None:
    with blocking.Producer(server.native) as producer:
        producer.partition_for("quiet", None)
    with subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED, server.native], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "waiting\n"
        process.send_signal(signal.SIGINT)
        out = process.stdout.read()
        assert process.wait(60) == 0
    assert out.split("\n")[:3] == ["interrupted", "b'after'", "['MainThread']"]


def test_after_a_fork_there_is_a_new_thread(server: ServerProcess, tmp_path: Path) -> None:
    with blocking.Producer(server.native) as producer:
        producer.send("a", b"parent")
        code = (
            "import os, sys\nfrom horolog import blocking\n"
            "keep = blocking.Admin(sys.argv[1]); keep.list_topics()\n"
            "pid = os.fork()\n"
            "if pid == 0:\n"
            "    for made in False, True:\n"
            "        try: keep.list_topics()\n"
            "        except RuntimeError as error: print(error, flush=True)\n"
            "        with blocking.Admin(sys.argv[1]) as admin: admin.list_topics()\n"
            "    keep.close()\n"
            "    os._exit(7)\n"
            "print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))\n"
            "keep.list_topics(); keep.close()\n"
        )
        done = subprocess.run(
            [sys.executable, "-c", code, server.native],
            capture_output=True,
            text=True,
            timeout=120,
            env=dict(os.environ),
        )
    *refused, code = done.stdout.splitlines()
    assert code == "7", done.stderr
    assert len(refused) == 2
    assert all("make clients in the child" in one for one in refused)
