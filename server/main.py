"""The server process: `horolog serve`."""

import asyncio
import signal
import sys
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final

from ..config.broker import BrokerSettings
from ..memory import settle
from ..printable import printable
from ..protocol.errors import HorologError, InvalidConfig
from .broker import Broker
from .events import library_messages_to, load_lean_log
from .network.listener import CannotListen, WrongListeners
from .network.ports import Addresses

WRONG_USAGE: Final = 2
"""Exit code if settings are invalid or contradict each other."""

Beside = Callable[[Addresses], Coroutine[Any, Any, None]]
"""A coroutine that runs in the broker's event loop while the broker serves."""


def serve(
    settings: BrokerSettings, beside: Beside | None = None, *, ignored: Sequence[str] = ()
) -> int:
    """Run a broker until SIGTERM or SIGINT; returns the exit code.

    One line on standard output says when the broker can serve: `ready native=HOST:PORT
    http=HOST:PORT kafka=HOST:PORT`, without ports that are off. The log goes to standard error; it
    warns of environment variables that look like settings and are `ignored`. If the broker cannot
    start, or cannot stop cleanly, one line says why. An error in `beside` stops the broker.
    """
    try:
        with asyncio.Runner(loop_factory=_loop_factory(settings.event_loop)) as runner:
            return runner.run(_serve(settings, beside, ignored))
    except (CannotListen, HorologError, OSError) as error:
        reason = error.message if isinstance(error, HorologError) else str(error)
        if sys.stderr is not None:
            sys.stderr.write(f"horolog: {printable(reason)}\n")
        return WRONG_USAGE if isinstance(error, WrongListeners | InvalidConfig) else 1


def _loop_factory(name: str) -> Callable[[], asyncio.AbstractEventLoop]:
    if name == "asyncio":
        return asyncio.new_event_loop
    import uvloop

    return uvloop.new_event_loop


async def _serve(settings: BrokerSettings, beside: Beside | None, ignored: Sequence[str]) -> int:
    loop = asyncio.get_running_loop()
    asked_to_stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        # A second signal changes nothing: a stop that has begun is finished.
        loop.add_signal_handler(number, asked_to_stop.set)
    broker = Broker(settings, log_stream=sys.stderr, settled=settle)
    loop.add_signal_handler(signal.SIGHUP, broker.read_certificates_again)
    loop.set_exception_handler(broker.loop_error)
    load_lean_log()
    settle()
    if ignored:
        broker.observe("variables_ignored", names=", ".join(ignored))
    with library_messages_to(broker.observe, loop):
        return await _run(broker, beside, asked_to_stop)


async def _run(broker: Broker, beside: Beside | None, asked_to_stop: asyncio.Event) -> int:
    await broker.start()
    try:
        addresses = broker.addresses
        http = "" if addresses.http is None else f" http={addresses.http}"
        kafka = "" if addresses.kafka is None else f" kafka={addresses.kafka}"
        if sys.stdout is not None:
            sys.stdout.write(f"ready native={addresses.native}{http}{kafka}\n")
            sys.stdout.flush()
        if beside is None:
            await asked_to_stop.wait()
        else:
            await _run_beside(beside(addresses), asked_to_stop)
    finally:
        await broker.stop()
    return 0


async def _run_beside(work: Coroutine[Any, Any, None], asked_to_stop: asyncio.Event) -> None:
    """Run `work` until asked to stop; it may end earlier. Raises the errors of `work`."""
    asked = asyncio.ensure_future(asked_to_stop.wait())
    working = asyncio.ensure_future(work)
    await asyncio.wait({asked, working}, return_when=asyncio.FIRST_COMPLETED)
    if working.done():
        working.result()
        await asked
    else:
        working.cancel()
        await asyncio.wait({working})
