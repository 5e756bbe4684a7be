"""What a daily user of the page does: share its address, open a message, search, download."""

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from horolog import Admin, Producer
from horolog.testing.broker import BrokerThread

from .browsing import Open, launched, pages, run

MESSAGES = 120


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerThread]:
    settings = {"http.listen": "127.0.0.1:0"}
    with BrokerThread(tmp_path_factory.mktemp("horolog"), settings) as started:
        run(fill(started))
        yield started


async def fill(broker: BrokerThread) -> None:
    """Two hours in two partitions; every tenth message has headers."""
    clock = broker.clock
    async with Admin(broker.address) as admin, Producer(broker.address) as producer:
        await admin.create_topic("clicks", partitions=2)
        await admin.create_topic("other", settings={"retention.ms": "86400000"})
        await producer.send("other", b"elsewhere", timestamp_ms=clock.now_ms())
        for number in range(MESSAGES):
            await producer.send(
                "clicks",
                b'{"number": %d}' % number,
                key=f"user-{number % 7}".encode(),
                partition=number % 2,
                timestamp_ms=clock.now_ms() - 40,
                headers=[("trace", b"t-%d" % number)] if number % 10 == 0 else [],
            )
            clock.step(60)


@pytest.fixture(scope="module")
def browser(broker: BrokerThread) -> Iterator[Browser]:
    with launched() as started:
        yield started


@pytest.fixture
def open_page(browser: Browser, broker: BrokerThread) -> Iterator[Open]:
    with pages(browser, broker.http_address, "#clicks/0") as open_it:

        def open_counted(*place: str) -> Page:
            page = open_it(*place)
            expect(page.locator("#bars-note")).to_contain_text("messages from")
            return page

        yield open_counted


def rows(page: Page) -> list[str]:
    return page.locator("#messages tbody tr").all_text_contents()


def test_the_address_holds_what_is_shown(open_page: Open) -> None:
    page = open_page()
    page.get_by_role("button", name="Last day", exact=True).click()
    expect(page.locator("#bars-day")).to_have_attribute("aria-pressed", "true")
    page.locator("#bars .count").last.focus()
    page.keyboard.press("+")
    expect(page).to_have_url(re.compile(r"#clicks/0\?.*from=\d+&until=\d+"))
    expect(page.locator("#bars .count").first).to_be_focused()
    page.locator("#bars .count").first.click()
    expect(page.locator("#messages-note")).to_contain_text("by partition and offset")
    expect(page).to_have_url(re.compile(r"window=\d+-\d+&y=\d+"))
    page.wait_for_timeout(300)  # a scroll that goes on is noted when it ends
    note = page.locator("#bars-note").text_content() or ""
    shown, scroll = rows(page), page.evaluate("scrollY")
    assert scroll > 0
    assert shown

    other = open_page("#" + page.url.partition("#")[2])
    expect(other.locator("#bars-note")).to_have_text(note)
    expect(other.locator("#messages-note")).to_contain_text("by partition and offset")
    assert rows(other) == shown
    expect(other.locator('#bars .count[aria-pressed="true"]')).to_have_count(1)
    other.wait_for_function("(y) => scrollY === y", arg=scroll)

    page.go_back()
    expect(page.locator("#messages-note")).to_contain_text("newest first, live")
    expect(page.locator("#bars-note")).to_have_text(note)
    page.go_back()
    expect(page.locator("#bars-day")).to_have_attribute("aria-pressed", "true")
    page.go_forward()
    expect(page.locator("#bars-note")).to_have_text(note)


def test_another_partition_keeps_the_stretch_of_the_bars(open_page: Open) -> None:
    page = open_page("#clicks/0?bars=all&y=30")
    expect(page.locator("#bars-all")).to_have_attribute("aria-pressed", "true")
    page.get_by_label("Partition").select_option("1")
    expect(page).to_have_url(re.compile(r"#clicks/1\?bars=all"))
    expect(page.locator("#bars-all")).to_have_attribute("aria-pressed", "true")


def test_an_address_with_nonsense_shows_the_topic(open_page: Open) -> None:
    page = open_page("#clicks/1?from=9&until=1&window=a-b&at=-1&offset=1e9&y=-4&bars=x")
    expect(page.locator("#messages-note")).to_contain_text("newest first, live")
    expect(page.locator("#bars-usual")).to_have_attribute("aria-pressed", "true")


def test_an_offset_in_the_address(open_page: Open) -> None:
    page = open_page("#clicks/1?offset=5")
    first = page.locator("#messages tbody tr").first
    expect(first).to_have_attribute("data-offset", "5")
    page.get_by_role("button", name="Latest", exact=True).click()
    expect(page).to_have_url(re.compile(r"#clicks/1(\?y=\d+)?$"))
