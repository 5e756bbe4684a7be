"""Takes the pictures of the page that the documentation shows: `make pictures`.

A broker with a clock of its own lives through a day of this host's load, and a browser that is
set to a later time looks at the last minutes of it.
"""

import asyncio
import shutil
import sys
import tempfile
import threading
from collections.abc import Coroutine
from pathlib import Path
from random import Random
from typing import Any, Final, TypeVar

from playwright.sync_api import Page, sync_playwright

from horolog import Admin, Producer
from horolog.cli.demo.feed import find_history, sample
from horolog.protocol.records.messages.sets import NewRecord
from horolog.testing.broker import BrokerThread
from horolog.testing.clock import MovingClock

T = TypeVar("T")

FOLDER: Final = Path(__file__).resolve().parent
POLLS: Final = 150
HOURS: Final = 24
HOSTS: Final = (b"kitchen", b"cellar", b"roof")


class Feeder:
    """Sends in a loop of its own, as this thread's belongs to Playwright."""

    def __init__(self, address: str, clock: MovingClock) -> None:
        self._clock = clock
        self._random = Random(7)
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()
        self._admin, self._producer = self.run(self._connect(address))

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    async def _connect(self, address: str) -> tuple[Admin, Producer]:
        return (
            await Admin(address).__aenter__(),
            await Producer(address, check_units=False).__aenter__(),
        )

    async def create(self) -> None:
        """A topic whose day is in some ten segments, and the history that the demo tells."""
        settings = {"segment.bytes": "90000", "retention.ms": str(36 * 3_600_000)}
        await self._admin.create_topic("host-load", settings=settings)
        await self._admin.create_topic("demo-files", settings={"retention.ms": "-1"})
        history = find_history(None).records[:20_000]
        for start in range(0, len(history), 200):
            await self._producer.send_many("demo-files", history[start : start + 200])

    async def send(self, messages: int, delay_ms: float) -> None:
        """Messages that took about `delay_ms` to come."""
        now_ms = self._clock.now_ms()
        await self._producer.send_many(
            "host-load",
            [
                NewRecord(
                    sample(),
                    self._random.choice(HOSTS),
                    now_ms - int(delay_ms * self._random.lognormvariate(0, 0.9)),
                )
                for _ in range(messages)
            ],
        )

    async def position(self, name: str, behind: int) -> None:
        log = await self._admin.describe_log("host-load")
        await self._admin.commit_position(name, "host-load", 0, log.log_end_offset - behind)


def live_through_a_day(feeder: Feeder, clock: MovingClock) -> None:
    feeder.run(feeder.create())
    for _ in range(HOURS * 20):
        feeder.run(feeder.send(8, 40))
        clock.step(180)
    for name, behind in (("dashboard", 0), ("billing", 420), ("archive", 2600)):
        feeder.run(feeder.position(name, behind))


def watch(page: Page, feeder: Feeder, clock: MovingClock) -> None:
    """Let the last minutes pass, with a hiccup of the network in them."""
    for number in range(POLLS):
        hiccup = 6000.0 if 90 <= number < 104 else 0.0
        feeder.run(feeder.send(3, 40 + hiccup * (104 - number) / 14))
        clock.step(2)
        feeder.run(feeder.position("dashboard", 3))
        with page.expect_response(lambda response: "/page/messages" in response.url):
            page.clock.run_for(2000)


def take(page: Page, name: str) -> None:
    page.screenshot(path=FOLDER / f"{name}.png")


def main() -> None:
    chromium = shutil.which("chromium-headless-shell") or shutil.which("chromium")
    if chromium is None:
        sys.exit("The pictures need chromium: apt-get install chromium")
    with (
        tempfile.TemporaryDirectory() as folder,
        BrokerThread(Path(folder), {"http.listen": "127.0.0.1:0"}) as broker,
        sync_playwright() as playwright,
    ):
        feeder = Feeder(broker.address, broker.clock)
        live_through_a_day(feeder, broker.clock)
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1080, "height": 960})
        page.clock.install()
        page.goto(f"http://{broker.http_address}/#host-load/0")
        page.wait_for_selector("#messages tbody tr")
        watch(page, feeder, broker.clock)
        page.get_by_role("textbox", name="Time").fill("@-6h")
        page.keyboard.press("Enter")
        page.wait_for_selector("#found-offset")
        page.evaluate("document.activeElement.blur()")
        take(page, "page")
        page.emulate_media(color_scheme="dark")
        page.evaluate("scrollTo(0, document.querySelector('#latency-title').offsetTop - 30)")
        take(page, "page-dark")
        page.evaluate("scrollTo(0, 0)")
        page.set_viewport_size({"width": 400, "height": 860})
        page.wait_for_function("document.querySelector('#chart svg').viewBox.baseVal.width < 400")
        take(page, "page-narrow")
        browser.close()


if __name__ == "__main__":
    main()
