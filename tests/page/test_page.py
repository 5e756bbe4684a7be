"""The page in a real browser: true, live, and usable by keyboard, in the dark and on a phone."""

import re
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from horolog import Admin, Consumer, Producer
from horolog.client.results import ConsumerRecord
from horolog.printable import printable
from horolog.testing.broker import BrokerThread

from .browsing import SIZES, Open, launched, pages, resize, run

SCRIPT = "<script>document.title = 'owned'</script><img src=x onerror=alert(1)>"
BINARY = bytes(range(200, 232))
LATENCIES_MS = (3, 40, 40, 700, 20_000)
MESSAGES = 60
SEGMENT_BYTES = 1200


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerThread]:
    settings = {"http.listen": "127.0.0.1:0"}
    with BrokerThread(tmp_path_factory.mktemp("horolog"), settings) as started:
        run(fill(started))
        yield started


async def fill(broker: BrokerThread) -> None:
    """A topic over two hours, with a message from the future, a script and bytes that are no text;
    a second one, with two partitions."""
    clock = broker.clock
    async with Admin(broker.address) as admin, Producer(broker.address) as producer:
        settings = {"segment.bytes": str(SEGMENT_BYTES), "retention.ms": "86400000"}
        await admin.create_topic("sensors", settings=settings)
        for number in range(MESSAGES):
            time_ms = clock.now_ms() - LATENCIES_MS[number % len(LATENCIES_MS)]
            value = b'{"celsius": %d}' % number
            await producer.send("sensors", value, key=b"kitchen", timestamp_ms=time_ms)
            clock.step(120)
        await producer.send("sensors", SCRIPT.encode(), timestamp_ms=clock.now_ms())
        await producer.send(
            "sensors", BINARY, key=b"", timestamp_ms=clock.now_ms(), headers=[("a", b"<b>b</b>")]
        )
        future_ms = clock.now_ms() + 10 * 86_400_000
        await producer.send("sensors", b"early", timestamp_ms=future_ms)
        await admin.create_topic("other", partitions=2)
        await producer.send("other", b"in partition one", partition=1)
        await admin.commit_position("billing", "sensors", 0, MESSAGES - 10)


@pytest.fixture(scope="module")
def browser(broker: BrokerThread) -> Iterator[Browser]:
    with launched() as started:
        yield started


@pytest.fixture
def open_page(browser: Browser, broker: BrokerThread) -> Iterator[Open]:
    """`open_page("#sensors/0")`: a page whose messages are loaded."""
    with pages(browser, broker.http_address, "#sensors/0") as open_it:

        def open_loaded(*place: str, **options: Any) -> Page:
            page = open_it(*place, **options)
            expect(page.locator("#messages tbody tr").first).to_be_visible()
            return page

        yield open_loaded


def number_in(page: Page, selector: str) -> int:
    return int((page.locator(selector).text_content() or "").replace(",", ""))


async def stored(broker: BrokerThread) -> list[ConsumerRecord]:
    read: list[ConsumerRecord] = []
    async with Consumer(broker.address, append_times=True) as consumer:
        consumer.assign("sensors", 0, offset=0)
        while len(read) < MESSAGES + 3:
            read += await consumer.fetch()
    return read


def test_it_shows_what_the_broker_says(open_page: Open, broker: BrokerThread) -> None:
    page = open_page()

    async def ask() -> tuple[Any, list[ConsumerRecord]]:
        async with Admin(broker.address) as admin:
            return await admin.describe_log("sensors"), await stored(broker)

    log, records = run(ask())
    assert number_in(page, "#tile-topics") == 2
    assert number_in(page, "#tile-messages") == len(records) + 1
    drawn = page.locator("#chart .segment")
    expect(drawn).to_have_count(len(log.segments))
    assert [element.get_attribute("data-key") for element in drawn.all()] == [
        str(segment.base_offset) for segment in log.segments
    ]
    kinds = [element.get_attribute("data-kind") for element in drawn.all()]
    assert kinds == ["closed"] * (len(kinds) - 1) + ["pinned"]
    facts = page.locator("#segment")
    expect(facts).to_contain_text(log.segments[-1].reason)
    expect(facts).to_contain_text(f"at offset {MESSAGES + 2}")
    rows = page.locator("#messages tbody tr").all()
    newest = list(reversed(records[-20:]))
    assert [row.get_attribute("data-offset") for row in rows] == [str(r.offset) for r in newest]
    for row, record in list(zip(rows, newest, strict=True))[3:]:
        cells = row.locator("td").all_text_contents()
        assert record.value is not None
        assert cells[3:] == ["kitchen", record.value.decode()]
        assert cells[2].endswith((" ms", " s"))


def test_latency_is_that_of_the_metrics(open_page: Open, broker: BrokerThread) -> None:
    page = open_page()
    shown = {
        int(bar.get_attribute("data-bucket") or ""): int(bar.get_attribute("data-count") or "")
        for bar in page.locator("#latency .total").all()
    }
    with urllib.request.urlopen(f"http://{broker.http_address}/metrics", timeout=10) as response:
        text = response.read().decode()
    buckets = [
        int(float(line.rpartition(" ")[2]))
        for line in text.splitlines()
        if line.startswith("horolog_latency_seconds_bucket") and 'topic="sensors"' in line
    ]
    counts = [later - sooner for sooner, later in zip([0, *buckets], buckets, strict=False)]
    assert shown == {place: count for place, count in enumerate(counts) if count}
    expect(page.locator("#latency")).to_contain_text("1 from the future")


def test_new_messages_come_by_themselves(open_page: Open, broker: BrokerThread) -> None:
    page = open_page("#other/1")
    expect(page.locator("#messages tbody tr")).to_have_count(1)

    async def send() -> None:
        async with Producer(broker.address) as producer:
            now_ms = broker.clock.now_ms()
            await producer.send("other", b"news", partition=1, timestamp_ms=now_ms - 150)

    run(send())
    newest = page.locator("#messages tbody tr").first
    expect(newest).to_contain_text("news")
    expect(page.locator("#latency .cell")).to_have_count(1)
    expect(page.locator("#latency-note")).to_contain_text("1 while this page looked")


def test_which_offset_was_it_by_keyboard(open_page: Open, broker: BrokerThread) -> None:
    page = open_page()
    target_ms = broker.clock.now_ms() - 3_600_000

    async def ask() -> Any:
        async with Admin(broker.address) as admin:
            return await admin.find_offset("sensors", 0, timestamp_ms=target_ms)

    page.keyboard.press("t")
    expect(page.get_by_role("textbox", name="Time")).to_be_focused()
    page.keyboard.type(str(target_ms))
    page.keyboard.press("Enter")
    found = page.locator("#found-offset")
    expect(found).to_have_text(f"Offset {run(ask()).offset}")
    steps = page.get_by_role("list", name="How it was found")
    expect(steps).to_contain_text("segments ruled out by their largest times")
    expect(page.locator("#chart .mark")).to_have_count(1)
    page.get_by_role("button", name="Show the messages from here").press("Enter")
    first = page.locator("#messages tbody tr").first
    expect(first).to_have_attribute("data-offset", str(run(ask()).offset))
    expect(first).to_have_class("wanted")
    page.get_by_role("button", name="Latest").press("Enter")
    expect(first).to_have_attribute("data-offset", str(MESSAGES + 2))


def test_what_a_click_leads_to_comes_into_view(open_page: Open) -> None:
    page = open_page()
    first = page.locator("#messages tbody tr").first
    for size in SIZES:
        resize(page, size)
        page.evaluate("scrollTo(0, 0)")
        page.get_by_role("button", name="@-1h").click()
        expect(page.locator("#found .answer")).to_be_in_viewport(ratio=1)
        page.get_by_role("button", name="Show the messages from here").click()
        expect(first).to_have_class("wanted")
        expect(first).to_be_in_viewport(ratio=1)
        expect(page.locator("#messages-title")).to_be_in_viewport(ratio=1)
        page.locator("#chart .segment").first.click()
        expect(page.locator("#segment dl")).to_be_in_viewport(ratio=1)
        page.evaluate("scrollTo(0, 0)")
        page.locator("#chart .segment").first.press("End")
        expect(page.locator('#chart .segment[aria-pressed="true"]')).to_be_in_viewport()


def test_a_time_that_is_refused_says_what_to_write(open_page: Open) -> None:
    page = open_page()
    page.get_by_role("textbox", name="Time").fill("2026-11-14T17:24:00")
    page.keyboard.press("Enter")
    expect(page.locator(".refused")).to_contain_text("has no zone")


def test_segments_by_keyboard(open_page: Open) -> None:
    page = open_page()
    segments = page.locator("#chart .segment")
    expect(segments.last).to_be_visible()
    count = segments.count()
    segments.nth(count - 1).focus()
    page.keyboard.press("ArrowUp")
    expect(segments.nth(count - 2)).to_be_focused()
    expect(segments.nth(count - 2)).to_have_attribute("aria-pressed", "true")
    page.keyboard.press("Home")
    expect(segments.nth(0)).to_be_focused()
    expect(page.locator("#segment")).to_contain_text("0 to ")
    assert page.locator('#chart .segment[tabindex="0"]').count() == 1


def test_topics_by_keyboard(open_page: Open) -> None:
    page = open_page()
    page.keyboard.press("/")
    expect(page.get_by_role("searchbox", name="Filter topics by name")).to_be_focused()
    page.keyboard.type("oth")
    links = page.locator("#topics a")
    expect(links).to_have_count(1)
    page.keyboard.press("Tab")
    expect(links.first).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="other", exact=True)).to_be_visible()
    page.get_by_label("Partition").select_option("1")
    expect(page.locator("#messages")).to_contain_text("in partition one")
    assert page.url.endswith("#other/1")


def test_every_control_has_a_name(open_page: Open) -> None:
    page = open_page()
    unnamed = page.evaluate(
        """() => [...document.querySelectorAll(
            "button, input, select, a, [role=button], [role=img]")]
        .filter((element) => element.offsetParent !== null || element.ownerSVGElement)
        .filter((element) => !(element.textContent.trim() || element.ariaLabel
            || element.labels?.length)).map((element) => element.outerHTML)"""
    )
    assert unnamed == []


def test_what_messages_hold_is_never_more_than_text(open_page: Open) -> None:
    page = open_page()
    table = page.locator("#messages")
    expect(table.locator("bdi", has_text="<script>")).to_have_text(SCRIPT)
    expect(table.locator(".hex")).to_have_text(BINARY.hex(" "))
    expect(table.locator(".header")).to_have_text("a = <b>b</b>")
    assert page.locator("#messages script, #messages img, #messages b").count() == 0
    assert page.title() == "sensors - Horolog"


def test_nothing_but_its_own_files_may_run(browser: Browser, broker: BrokerThread) -> None:
    page = browser.new_page()
    page.goto(f"http://{broker.http_address}/")
    tried = page.evaluate(
        """async () => {
            const blocked = [];
            const told = new Promise((resolve) => document.addEventListener(
                "securitypolicyviolation",
                (event) => event.effectiveDirective === "connect-src" && resolve()));
            const script = document.createElement("script");
            try { script.textContent = "window.ran = 1"; } catch { blocked.push("trusted-types"); }
            document.head.append(script);
            try { document.body.insertAdjacentHTML("beforeend", "<b>x</b>"); }
            catch { blocked.push("trusted-types"); }
            await fetch("http://127.0.0.1:9/").catch(() => blocked.push("fetch"));
            await told;
            const bold = document.querySelectorAll("body > b").length;
            return { blocked, ran: window.ran ?? 0, bold };
        }"""
    )
    page.close()
    assert (tried["ran"], tried["bold"]) == (0, 0)
    assert set(tried["blocked"]) == {"trusted-types", "fetch"}


def luminance(page: Page, selector: str, what: str) -> float:
    channels: list[float] = page.evaluate(
        """([selector, what]) => getComputedStyle(document.querySelector(selector))[what]
        .match(/[\\d.]+/g).slice(0, 3).map(Number)""",
        [selector, what],
    )
    linear = [
        (c / 255 / 12.92) if c <= 10 else ((c / 255 + 0.055) / 1.055) ** 2.4 for c in channels
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_it_is_readable_in_the_light_and_in_the_dark(open_page: Open) -> None:
    page = open_page()
    for drawn in ("#bars .count", "#chart .segment"):
        expect(page.locator(drawn).first).to_be_visible()
    for dark in (False, True):
        page.emulate_media(color_scheme="dark" if dark else "light")
        card = luminance(page, ".card", "backgroundColor")
        assert (card < 0.1) == dark
        for selector, what, least in (
            ("#detail-title", "color", 7),
            (".note", "color", 4.5),
            ("th", "color", 4.5),
            ("#topics .line", "color", 4.5),
            (".hex", "color", 4.5),
            (".chart .segment.closed .bar", "fill", 3),
            (".chart .segment.pinned .bar", "fill", 3),
            (".bars .kept .bar", "fill", 3),
        ):
            text = luminance(page, selector, what)
            brighter, darker = max(text, card), min(text, card)
            assert (brighter + 0.05) / (darker + 0.05) >= least, (selector, dark)


def test_a_narrow_screen_needs_no_sideways_scrolling(open_page: Open) -> None:
    page = open_page(viewport={"width": 400, "height": 800})
    page.get_by_role("textbox", name="Time").fill("@-1h")
    page.keyboard.press("Enter")
    expect(page.locator("#found-offset")).to_be_visible()
    for width in (400, 320):
        resize(page, (width, 800))
        assert page.evaluate("document.documentElement.scrollWidth") == width
        box = page.get_by_role("button", name="Find").bounding_box()
        assert box is not None
        assert box["x"] + box["width"] <= width
        assert box["height"] >= 32


def test_less_motion_for_those_who_ask(open_page: Open) -> None:
    page = open_page()
    expect(page.get_by_role("status")).to_have_class("live")
    beat = "getComputedStyle(document.getElementById('state'), '::before').animationName"
    assert page.evaluate(beat) == "beat"
    page.emulate_media(reduced_motion="reduce")
    assert page.evaluate(beat) == "none"


def test_pausing_and_a_broker_that_does_not_answer(browser: Browser, broker: BrokerThread) -> None:
    page = browser.new_page()
    page.clock.install()
    page.goto(f"http://{broker.http_address}/#sensors/0")
    state = page.get_by_role("status")
    expect(state).to_have_class("live")
    page.keyboard.press("p")
    expect(state).to_contain_text("paused at")
    expect(page.get_by_role("button", name="Pause")).to_have_attribute("aria-pressed", "true")
    page.keyboard.press("p")
    expect(state).to_have_class("live")
    page.context.set_offline(True)
    page.clock.run_for(3000)
    expect(state).to_have_class("lost")
    expect(state).to_contain_text("no answer")
    page.context.set_offline(False)
    page.clock.run_for(10_000)
    expect(state).to_have_class("live")
    page.close()


def test_an_address_of_something_that_is_not_there(open_page: Open, broker: BrokerThread) -> None:
    page = open_page("#sensors/7")
    assert page.url.endswith("#sensors/0")
    page.goto(f"http://{broker.http_address}/#nothing/0")
    expect(page.locator("#missing")).to_have_text("There is no topic nothing (any more).")
    expect(page.locator("#detail")).to_be_hidden()


@pytest.mark.parametrize("place", ["-1", "1.5", "0?window=5-3", "0?window=5-3&at=1-2"])
def test_an_address_that_makes_no_sense_shows_the_latest(open_page: Open, place: str) -> None:
    page = open_page(f"#sensors/{place}")
    expect(page.get_by_role("status")).to_have_class("live")
    expect(page.locator("#messages-note")).to_contain_text("newest first, live")
    assert page.url.partition("?")[0].endswith("#sensors/0")


def test_an_address_of_a_place_that_the_topic_does_not_have(
    browser: Browser, broker: BrokerThread
) -> None:
    page = browser.new_page()
    page.goto(f"http://{broker.http_address}/#sensors/0?window=1-{2**50}&at=7-0")
    expect(page.locator("#messages-note")).to_contain_text("partition is 7; the topic has 0 to 0")
    expect(page.get_by_role("status")).to_have_class("live")
    page.get_by_role("button", name="Latest").click()
    expect(page.locator("#messages-note")).to_contain_text("newest first, live")
    page.close()


def test_consumers_and_their_lag(open_page: Open) -> None:
    page = open_page()
    row = page.locator('#lags tr[data-name="billing"]')
    expect(row).to_contain_text("sensors-0")
    expect(row).to_contain_text("13 messages")
    expect(row.locator(".behind")).to_contain_text(re.compile("2[0-9] min"))
    expect(row.locator("td").last).to_have_text("\N{EN DASH}")  # committed once: no pace


def test_a_broker_without_topics_says_how_to_begin(browser: Browser, tmp_path: Path) -> None:
    with BrokerThread(tmp_path, {"http.listen": "127.0.0.1:0"}) as empty:
        page = browser.new_page()
        page.goto(f"http://{empty.http_address}/")
        expect(page.get_by_role("heading", name="No topics yet")).to_be_visible()
        expect(page.locator("#detail")).to_be_hidden()
        page.close()


def test_times_that_no_date_has(browser: Browser, tmp_path: Path) -> None:
    """Nothing breaks, and a number that a browser cannot hold is not shown as if it were one."""
    last_ms = 2**63 - 1
    wrong: list[str] = []

    async def fill_far(broker: BrokerThread) -> None:
        async with (
            Admin(broker.address) as admin,
            Producer(broker.address, check_units=False) as sends,
        ):
            await admin.create_topic("far", settings={"retention.ms": str(last_ms)})
            for at_ms in (last_ms, last_ms - 1, 253_402_300_800_000):
                await sends.send("far", b"v", timestamp_ms=at_ms)

    with BrokerThread(tmp_path, {"http.listen": "127.0.0.1:0"}) as broker:
        run(fill_far(broker))
        context = browser.new_context(viewport={"width": 1200, "height": 900})
        page = context.new_page()
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.goto(f"http://{broker.http_address}/#far/0")
        expect(page.locator("#messages tbody tr")).to_have_count(3)
        expect(page.locator("#messages")).to_contain_text("≈9.223e+18 ms")
        expect(page.locator("#messages")).to_contain_text("+010000-01-01")
        expect(page.locator("#ideas button").last).to_have_text("9999-12-31T23:59:59.000Z")
        expect(page.locator("#bars-note")).to_contain_text("1 message from")
        expect(page.locator("#bars-note")).to_contain_text(" 2 messages of other times.")
        page.locator("#chart .segment").first.click()
        expect(page.locator("body")).to_contain_text("≈9.223e+18 ms")
        expect(page.locator("body")).not_to_contain_text("9223372036854776000")
        context.close()
    assert wrong == []


MARKS = "a\u202eb\u2066c\u200fd\x7fe\x9bf\u2028g\U000e0041h\xa0i\ufeffj"


def test_what_turns_or_hides_text_is_escaped_as_the_command_line_does(
    browser: Browser, tmp_path: Path
) -> None:
    async def fill_marks(broker: BrokerThread) -> None:
        async with Admin(broker.address) as admin, Producer(broker.address) as sends:
            await admin.create_topic("marks")
            kept = "two\n\tlines, שלום"
            headers = [(f"n{MARKS}", MARKS.encode())]
            await sends.send("marks", kept.encode(), key=MARKS.encode(), headers=headers)
            await admin.commit_position(f"p{MARKS}", "marks", 0, 0)

    with BrokerThread(tmp_path, {"http.listen": "127.0.0.1:0"}) as broker:
        run(fill_marks(broker))
        with pages(browser, broker.http_address, "#marks/0") as open_it:
            page = open_it()
            row = page.locator("#messages tbody tr")
            expect(row.locator("td").nth(3)).to_have_text(printable(MARKS))
            assert (
                row.locator("td").nth(4).locator("bdi").first.text_content() == "two\n\tlines, שלום"
            )
            expect(row.locator(".header")).to_have_text(f"n{printable(MARKS)} = {printable(MARKS)}")
            expect(page.locator("#consumers")).to_contain_text(f"p{printable(MARKS)}")


def test_a_long_name_leaves_room_for_its_neighbours_on_a_phone(open_page: Open) -> None:
    page = open_page("#sensors/0", viewport={"width": 390, "height": 844})
    row = page.locator("#lags tbody tr").first
    too_narrow = row.evaluate(
        """row => {
          row.cells[1].textContent = "a-very-long-name-".repeat(12) + "x".repeat(100);
          return [...row.cells].filter(cell => cell.scrollWidth > cell.clientWidth)
            .map(cell => cell.textContent);
        }"""
    )
    assert too_narrow == []
