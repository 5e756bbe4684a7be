"""What a daily user of the page does: share its address, open a message, search, download."""

import asyncio
import json
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Event

import pytest
from aiokafka import AIOKafkaConsumer
from playwright.sync_api import Browser, Page, expect

from horolog import Admin, Producer
from horolog.testing.broker import BrokerThread

from .browsing import Open, launched, pages, run

MESSAGES = 120


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerThread]:
    settings = {"http.listen": "127.0.0.1:0", "kafka.listen": "127.0.0.1:0"}
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
            expect(page.locator("#bars-note")).to_have_text(re.compile(r"messages? from"))
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
    # A scroll that goes on is noted when it ends.
    page.wait_for_function(
        "scrollY && new URLSearchParams(location.hash.split('?')[1]).get('y')"
        " === String(Math.round(scrollY))"
    )
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


def test_a_message_opens_with_headers_and_both_times(open_page: Open) -> None:
    page = open_page("#clicks/0?offset=10")
    table = page.locator("#messages")
    row = table.locator('tr[data-offset="10"]')
    row.get_by_role("button").press("Enter")
    detail = table.locator("tr.opened")
    expect(detail).to_contain_text("partition 0, offset 10")
    for text in ("trace = t-20", "Message time", "Append time", "set by the producer", "Latency"):
        expect(detail).to_contain_text(text)
    assert len(re.findall(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} UTC", detail.inner_text())) == 2
    assert detail.locator("td").evaluate("e => e.offsetWidth") > 500, "it has the whole width"
    expect(row.get_by_role("button")).to_be_focused()
    expect(row.get_by_role("button")).to_have_attribute("aria-expanded", "true")
    page.keyboard.press("Enter")
    expect(detail).to_have_count(0)
    row.locator("td").last.click()
    expect(detail).to_contain_text('{"number": 20}')


def test_search_says_how_far_it_looked(open_page: Open) -> None:
    page = open_page("#clicks/1")
    page.locator("body").press("s")
    expect(page.get_by_role("searchbox", name="Text to search for")).to_be_focused()
    page.keyboard.type("T-1")
    page.get_by_label("Where to search").select_option("header")
    page.get_by_role("button", name="Search", exact=True).click()
    note = page.locator("#search-note")
    expect(note).to_contain_text("Searched to the end: looked at 120 messages")
    expect(note).to_contain_text("3 matches")
    values = page.locator("#messages tbody tr td:nth-child(5)").all_text_contents()
    assert [re.sub("}.*", "}", value) for value in values] == [
        f'{{"number": {number}}}' for number in (10, 100, 110)
    ]
    page.locator("#messages tbody tr button").first.click()
    expect(page.locator("#messages tr.opened")).to_contain_text("trace = t-10")
    page.get_by_role("button", name="Latest", exact=True).click()
    expect(page.locator("#messages-note")).to_contain_text("newest first, live")
    expect(note).to_have_text("")


def test_a_search_goes_on_and_can_be_stopped(open_page: Open) -> None:
    page = open_page()
    page.get_by_role("searchbox", name="Text to search for").fill("number")
    page.keyboard.press("Enter")
    note = page.locator("#search-note")
    expect(note).to_contain_text("20 matches. More may follow: looked at 20 messages")
    page.get_by_role("button", name="Search on", exact=True).click()
    expect(note).to_contain_text("40 matches. More may follow: looked at 40 messages")
    page.route("**/page/window?*", lambda route: None)
    page.get_by_role("button", name="Search on", exact=True).click()
    expect(note).to_contain_text("40 matches. Searching")
    page.get_by_role("button", name="Stop", exact=True).click()
    expect(note).to_contain_text("40 matches. Stopped: looked at 40 messages")
    page.unroute("**/page/window?*")
    page.get_by_role("button", name="Search on", exact=True).click()
    expect(note).to_contain_text("60 matches")


async def consume(address: str, is_joined: Event, is_seen: Event) -> None:
    """Be a member of the group `billing` until the page has shown it."""
    async with AIOKafkaConsumer(
        "clicks",
        bootstrap_servers=address,
        group_id="billing",
        client_id="till-1",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    ) as consumer:
        await consumer.getone()
        await consumer.commit()
        is_joined.set()
        await asyncio.to_thread(is_seen.wait, 60)


def test_groups_with_members_and_seconds_behind(open_page: Open, broker: BrokerThread) -> None:
    address = broker.kafka_address
    assert address is not None
    is_joined, is_seen = Event(), Event()
    with ThreadPoolExecutor(1) as thread:
        reading = thread.submit(asyncio.run, consume(address, is_joined, is_seen))
        try:
            assert is_joined.wait(60)
            page = open_page()
            member = page.locator('#groups tr.member[data-member^="till-1"]')
            expect(member).to_contain_text("clicks-0, clicks-1")
            group = page.locator('#groups tr[data-group="billing"]')
            expect(group.locator("td").nth(1)).to_have_text("reads")
            expect(group.locator("td").nth(2)).to_have_text("1")
            expect(group.locator("td").last).to_have_text(re.compile(r"\d+ (h|min|s|ms)"))
        finally:
            is_seen.set()
        reading.result()


def test_settings_of_the_topic(open_page: Open) -> None:
    page = open_page("#other/0")
    page.get_by_text("All settings").click()
    shown = page.locator("#settings-list")
    expect(shown).to_contain_text("86400000 (1 d), set for this topic; default 604800000")
    expect(shown).to_contain_text("cleanup.policy")
    assert shown.locator("dt").count() > 20


def test_a_window_is_downloaded_as_json_lines(open_page: Open) -> None:
    page = open_page()
    with page.expect_download() as download:
        page.get_by_role("link", name="Download the messages of these bars").click()
    assert re.fullmatch(r"clicks-\d+-\d+\.jsonl", download.value.suggested_filename)
    stored = [json.loads(line) for line in download.value.path().read_text().splitlines()]
    assert len(stored) == MESSAGES
    tenth = next(one for one in stored if one["value"] == '{"number": 10}')
    assert tenth["headers"] == [{"name": "trace", "value": "t-10"}]
    assert tenth["append_time_ms"] >= tenth["timestamp_ms"]
    bar = page.locator("#bars .count").first
    count = int(bar.get_attribute("data-count") or "")
    bar.click()
    with page.expect_download() as download:
        page.get_by_role("link", name="Download the messages of this bar").click()
    assert len(download.value.path().read_text().splitlines()) == count


def test_totals_do_not_change_with_the_filter(open_page: Open) -> None:
    page = open_page()
    tiles = page.locator("#tile-topics, #tile-messages, #tile-bytes")
    before = tiles.all_text_contents()
    assert before[:2] == ["2", str(MESSAGES + 1)]
    page.get_by_role("searchbox", name="Filter topics by name").fill("oth")
    expect(page.locator("#topics a")).to_have_count(1)
    assert tiles.all_text_contents() == before


def test_axes_show_dates(open_page: Open) -> None:
    page = open_page()
    for chart in ("#bars", "#chart"):
        names = page.locator(f"{chart} svg .grid + text")
        expect(names.first).to_be_visible()
        texts = names.all_text_contents()
        assert re.fullmatch(r"\d{4}-\d\d-\d\d", texts[0]), texts
        dated = [text for text in texts if text]
        assert len(dated) == len(set(dated))
