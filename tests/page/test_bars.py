"""The bars of messages over time in a real browser: what they say, and what they open."""

import re
from collections.abc import Iterator
from itertools import pairwise

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from horolog import Admin, Consumer, Producer
from horolog.testing.broker import BrokerThread

from .browsing import SIZES, Open, launched, pages, resize, run

MESSAGES = 300
AHEAD_MS = 86_400_000
NOTE = re.compile(r"([\d,]+) messages? from (\S+ \S+) to before (\S+ \S+) UTC")


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerThread]:
    settings = {"http.listen": "127.0.0.1:0"}
    with BrokerThread(tmp_path_factory.mktemp("horolog"), settings) as started:
        run(fill(started))
        yield started


async def fill(broker: BrokerThread) -> None:
    """Two and a half hours in two partitions, ten minutes out of order, of which retention keeps
    one; an early message in each keeps its segment."""
    clock = broker.clock
    async with Admin(broker.address) as admin, Producer(broker.address) as producer:
        await admin.create_topic("sensors", partitions=2, settings={"retention.ms": "3600000"})
        ahead_ms = clock.now_ms() + AHEAD_MS + MESSAGES * 30_000
        for partition in range(2):
            await producer.send("sensors", b"early", partition=partition, timestamp_ms=ahead_ms)
        for number in range(MESSAGES):
            time_ms = clock.now_ms() - number * 7919 % 600 * 1000
            value = str(number).encode()
            await producer.send("sensors", value, partition=number % 2, timestamp_ms=time_ms)
            clock.step(30)


@pytest.fixture(scope="module")
def browser(broker: BrokerThread) -> Iterator[Browser]:
    with launched() as started:
        yield started


@pytest.fixture
def open_page(browser: Browser, broker: BrokerThread) -> Iterator[Open]:
    with pages(browser, broker.http_address, "#sensors/0") as open_it:
        yield open_it


def opened(open_page: Open) -> Page:
    page = open_page()
    expect(page.locator("#bars-note")).to_contain_text(f"{MESSAGES} messages from")
    return page


def bars(page: Page) -> Locator:
    return page.locator("#bars .count")


def total(page: Page) -> int:
    return sum(int(bar.get_attribute("data-count") or "") for bar in bars(page).all())


def note(page: Page) -> tuple[int, str, str]:
    """How many messages it says there are, from when to when."""
    found = NOTE.search(page.locator("#bars-note").text_content() or "")
    assert found is not None
    return int(found[1].replace(",", "")), found[2], found[3]


def test_the_bars_have_every_message_up_to_now(open_page: Open) -> None:
    page = opened(open_page)
    assert total(page) == MESSAGES
    assert bars(page).count() > 20
    expect(page.locator("#bars-note")).to_contain_text("2 messages of other times.")
    kinds = {bar.get_attribute("data-kind") for bar in bars(page).all()}
    assert kinds == {"past", "kept"}
    page.get_by_role("button", name="All", exact=True).click()
    expect(page.locator('#bars .count[data-kind="ahead"]')).to_have_attribute("data-count", "2")
    assert total(page) == MESSAGES + 2


def test_a_click_opens_the_messages_of_a_bar_and_no_others(
    open_page: Open, broker: BrokerThread
) -> None:
    page = opened(open_page)
    bar = max(bars(page).all(), key=lambda one: int(one.get_attribute("data-count") or ""))
    key = bar.get_attribute("data-key") or ""
    from_ms = int(key.removeprefix("bar-"))
    begins = [int((one.get_attribute("data-key") or "")[4:]) for one in bars(page).all()]
    length_ms = min(later - sooner for sooner, later in pairwise(begins))

    async def window() -> list[list[str]]:
        async with Consumer(broker.address) as consumer:
            asked = consumer.window("sensors", from_ms, from_ms + length_ms)
            return [
                [f"{one.partition} : {one.offset}", (one.value or b"").decode()]
                async for one in asked
            ]

    wanted = run(window())
    assert len(wanted) == int(bar.get_attribute("data-count") or "")
    bar.click()
    expect(page.locator("#messages-note")).to_contain_text("by partition and offset")
    rows = page.locator("#messages tbody tr")
    expect(rows).to_have_count(len(wanted))
    shown = [row.locator("td").all_text_contents() for row in rows.all()]
    assert [[cells[0], cells[4]] for cells in shown] == wanted
    expect(page.locator("#bar")).to_contain_text(f"{len(wanted)} messages from")
    page.get_by_role("button", name="Latest", exact=True).click()
    expect(page.locator("#messages-note")).to_contain_text("newest first, live")


def test_a_click_on_a_bar_brings_its_first_message_into_view(open_page: Open) -> None:
    page = opened(open_page)
    first = page.locator("#messages tbody tr").first
    for size in SIZES:
        resize(page, size)
        for bar in (bars(page).first, bars(page).last):
            page.evaluate("scrollTo(0, 0)")
            bar.click()
            expect(first).to_be_in_viewport(ratio=1)
            expect(page.locator("#messages-title")).to_be_in_viewport(ratio=1)
        page.get_by_role("button", name="Latest", exact=True).click()
        expect(page.locator("#messages-note")).to_contain_text("newest first, live")
        bars(page).last.press("Enter")
        expect(page.locator("#messages-note")).to_contain_text("by partition and offset")
        expect(first).to_be_in_viewport(ratio=1)
        page.keyboard.press("ArrowLeft")
        expect(page.locator('#bars .count[aria-pressed="true"]')).to_be_in_viewport()


def test_many_messages_of_a_bar_come_page_by_page(open_page: Open) -> None:
    page = opened(open_page)
    page.get_by_role("button", name="All", exact=True).click()
    expect(page.locator('#bars .count[data-kind="ahead"]')).to_have_count(1)
    bar = max(bars(page).all(), key=lambda one: int(one.get_attribute("data-count") or ""))
    wanted = int(bar.get_attribute("data-count") or "")
    assert wanted > 20
    bar.click()
    rows = page.locator("#messages tbody tr")
    expect(page.locator("#messages-note")).to_contain_text("20 messages of those")
    first = rows.first.text_content() or ""
    page.get_by_role("button", name="Newer", exact=True).click()
    expect(rows.first).not_to_have_text(first)
    page.get_by_role("button", name="Older", exact=True).click()
    expect(rows.first).to_have_text(first)
    expect(page.get_by_role("button", name="Older", exact=True)).to_be_disabled()


def test_dragging_looks_closer(open_page: Open) -> None:
    page = opened(open_page)
    _, start, end = note(page)
    page.locator("#bars").scroll_into_view_if_needed()
    box = page.locator("#bars svg").bounding_box()
    assert box is not None
    middle = box["y"] + 80
    page.mouse.move(box["x"] + box["width"] / 4, middle)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] / 2, middle, steps=5)
    expect(page.locator("#bars .drawn")).to_have_count(1)
    page.mouse.up()
    expect(page.locator("#bars-note")).not_to_contain_text(f"{MESSAGES} messages from")
    expect(page.locator("#bars .drawn")).to_have_count(0)
    fewer, from_text, until_text = note(page)
    assert 0 < fewer == total(page) < MESSAGES
    assert start < from_text < until_text < end
    expect(page.locator("#messages-note")).to_contain_text("newest first, live")
    page.get_by_role("button", name="Zoom out", exact=True).click()
    expect(page.locator("#bars-note")).to_contain_text(f"{MESSAGES} messages from {start}")
    expect(page.get_by_role("button", name="Zoom out", exact=True)).to_be_disabled()


def test_bars_by_keyboard(open_page: Open) -> None:
    page = opened(open_page)
    assert page.locator('#bars .count[tabindex="0"]').count() == 1
    bars(page).nth(0).focus()
    page.keyboard.press("End")
    expect(bars(page).last).to_be_focused()
    page.keyboard.press("ArrowLeft")
    chosen = bars(page).nth(bars(page).count() - 2)
    expect(chosen).to_be_focused()
    expect(chosen).to_have_attribute("aria-pressed", "true")
    count = chosen.get_attribute("data-count")
    page.keyboard.press("Enter")
    expect(page.locator("#messages tbody tr")).to_have_count(int(count or ""))
    page.keyboard.press("+")
    expect(page.locator("#bars-note")).not_to_contain_text(f"{MESSAGES} messages from")
    assert 0 < total(page) < MESSAGES
    expect(bars(page).first).to_be_focused()
    page.keyboard.press("-")
    expect(page.locator("#bars-note")).to_contain_text(f"{MESSAGES} messages from")


def test_a_topic_without_times_says_so(open_page: Open, broker: BrokerThread) -> None:
    async def create() -> None:
        async with Admin(broker.address) as admin:
            await admin.create_topic("nothing")

    run(create())
    page = open_page("#nothing/0")
    expect(page.locator("#bars")).to_contain_text("No message has a time in this stretch.")
    expect(bars(page)).to_have_count(0)


def test_it_says_from_when_on_a_topic_is_complete(open_page: Open, broker: BrokerThread) -> None:
    async def trim() -> None:
        async with Admin(broker.address) as admin, Producer(broker.address) as producer:
            now_ms = broker.clock.now_ms()
            for age_ms in (3_000, 2_000, 2_500, 1_000):
                await producer.send("trimmed", b"v", timestamp_ms=now_ms - age_ms)
            await admin.delete_records("trimmed", 0, 2)

    run(trim())
    page = open_page("#trimmed/0")
    said = page.locator("#bars-note")
    expect(said).to_contain_text(re.compile(r"2 messages from .* Complete from \S+ \S+ UTC on: "))
    expect(said).to_contain_text("earlier messages are gone (trim, last at ")
    for by in ("timestamp", "append"):
        page.locator("#by").select_option(by)
        page.locator("#at").fill("@-1h")
        page.keyboard.press("Enter")
        found = page.locator("#found .note")
        expect(found).to_contain_text(re.compile(r"UTC\. Complete from \S+ \S+ UTC on: earlier"))
        expect(found).to_contain_text("messages are gone (trim, last at ")
        page.locator("#found").evaluate("element => element.replaceChildren()")
