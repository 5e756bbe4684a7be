"""An event loop in its own thread, for callers without a loop."""

import asyncio
import concurrent.futures
import os
import threading
from collections.abc import Coroutine
from typing import Any, Final, TypeVar

import uvloop

T = TypeVar("T")

_LOOK_SECONDS: Final = 0.2
"""Seconds between two checks of a waiting thread. A signal that arrives just before a thread starts
to wait for a lock does not end that wait, so without the checks Ctrl-C would have no effect until
the answer came."""


class BackgroundLoop:
    """One event loop shared by all its users. Its thread runs while there is at least one user.

    A forked process starts with no users.
    """

    def __init__(self, thread_name: str) -> None:
        self._thread_name = thread_name
        self._forget()

    def _forget(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._process_id = os.getpid()

    def enter(self) -> None:
        """Add a user. The first one starts the thread."""
        if self._process_id != os.getpid():
            self._forget()  # threads do not survive a fork
        with self._lock:
            if self._loop is None:
                self._loop = uvloop.new_event_loop()
                self._thread = threading.Thread(
                    target=_run, args=(self._loop,), name=self._thread_name, daemon=True
                )
                self._thread.start()
            self._users += 1

    def leave(self) -> None:
        """Remove a user. The last one ends the thread."""
        with self._lock:
            self._users -= 1
            if self._users:
                return
            loop, thread = self._loop, self._thread
            self._loop = self._thread = None
        assert loop is not None
        assert thread is not None
        loop.call_soon_threadsafe(loop.stop)
        thread.join()

    @property
    def is_current(self) -> bool:
        """Whether the calling thread is the loop's own."""
        return self._thread is threading.current_thread()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run `work` in the loop and wait for its result. Interrupting the wait cancels the work.

        Raises RuntimeError in the loop's own thread, because the loop would wait for itself.
        """
        loop, thread = self._loop, self._thread
        if loop is None or thread is threading.current_thread():
            work.close()
            raise RuntimeError("a blocking client cannot be used here: its own loop would stand")
        future = asyncio.run_coroutine_threadsafe(work, loop)
        try:
            while True:
                try:
                    return future.result(_LOOK_SECONDS)
                except TimeoutError:
                    if future.done():  # the work itself may raise TimeoutError
                        return future.result()
        except concurrent.futures.CancelledError:
            raise
        except BaseException:
            future.cancel()  # no effect if the work itself raised the error
            raise


def _run(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
        left = asyncio.all_tasks(loop)
        for task in left:
            task.cancel()
        loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
    finally:
        loop.close()
