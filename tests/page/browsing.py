"""Pages in a real browser, for tests that look at them as people do."""

import asyncio
import os
import re
import shutil
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, Route, expect, sync_playwright

expect.set_options(timeout=30_000)

T = TypeVar("T")

Open = Callable[..., Page]

SIZES = [(1400, 900), (1280, 720), (1920, 1080), (390, 844)]
"""Of windows: a desk's, a laptop's, a large one's, a phone's."""


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a client in a loop of its own: this thread's belongs to Playwright."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, coroutine).result()


def resize(page: Page, size: tuple[int, int]) -> None:
    """Give the window another size, and wait until the charts are drawn for it."""
    width, height = size
    page.set_viewport_size({"width": width, "height": height})
    for chart in ("#bars", "#chart"):
        drawn = re.compile(f"^0 0 {page.locator(chart).evaluate('e => e.clientWidth')} ")
        expect(page.locator(f"{chart} svg")).to_have_attribute("viewBox", drawn)


@contextmanager
def launched() -> Iterator[Browser]:
    """A browser; the test is skipped where there is none."""
    # The one without windows takes half the time.
    path = shutil.which("chromium-headless-shell") or shutil.which("chromium")
    if path is None:
        if os.environ.get("HOROLOG_REQUIRE") == "all":
            pytest.fail("chromium is not installed, and HOROLOG_REQUIRE=all asks for it")
        pytest.skip("chromium is not installed")
    with sync_playwright() as playwright:
        # As root, as in containers, Chromium has no sandbox.
        yield playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])


@contextmanager
def pages(browser: Browser, address: str | None, first_place: str) -> Iterator[Open]:
    """Opens pages of the broker at an HTTP address: `open_page("#topic/0", color_scheme="dark")`.

    In the end there must have been no errors and no requests to anywhere else.
    """
    wrong: list[str] = []
    contexts = []

    def console(message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            wrong.append(message.text)

    def elsewhere(route: Route) -> None:
        wrong.append(f"a request to {route.request.url}")
        route.abort()

    def open_page(place: str = first_place, **options: Any) -> Page:
        context = browser.new_context(**{"viewport": {"width": 1200, "height": 900}} | options)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(30_000)
        page.on("console", console)
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("dialog", lambda dialog: wrong.append(dialog.message))
        page.route(lambda url: not url.startswith(f"http://{address}/"), elsewhere)
        page.goto(f"http://{address}/{place}")
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert wrong == []
