"""The page of a cluster member: who leads, who follows, how far behind."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from horolog import Admin, Producer
from horolog.testing.broker import BrokerThread

from .browsing import Open, launched, pages, run

SEEN_WITHIN_MS = 60_000
"""A page asks again every few seconds, and a busy machine answers late."""


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[BrokerThread, BrokerThread]]:
    """A leader and its follower."""
    place = tmp_path_factory.mktemp("cluster")
    shared: dict[str, Any] = {"http.listen": "127.0.0.1:0", "replica.lag.time.max.ms": 1000}
    with BrokerThread(place / "1", {"broker.id": 1, "cluster.create": "true", **shared}) as leader:
        run(fill(leader))
        follows = {"broker.id": 2, "cluster.follow": leader.address, **shared}
        with BrokerThread(place / "2", follows) as follower:
            yield leader, follower


async def fill(leader: BrokerThread) -> None:
    async with Admin(leader.address) as admin, Producer(leader.address) as producer:
        await admin.create_topic("sensors")
        await producer.send("sensors", b"first")


@pytest.fixture(scope="module")
def browser(both: tuple[BrokerThread, BrokerThread]) -> Iterator[Browser]:
    with launched() as started:
        yield started


def opened(browser: Browser, broker: BrokerThread) -> Iterator[Open]:
    with pages(browser, broker.http_address, "#sensors/0") as open_page:
        yield open_page


@pytest.fixture
def at_leader(browser: Browser, both: tuple[BrokerThread, BrokerThread]) -> Iterator[Open]:
    yield from opened(browser, both[0])


@pytest.fixture
def at_follower(browser: Browser, both: tuple[BrokerThread, BrokerThread]) -> Iterator[Open]:
    yield from opened(browser, both[1])


def row(page: Page, broker_id: int) -> Any:
    return page.locator(f'#brokers tr[data-broker="{broker_id}"]')


def test_at_the_leader(at_leader: Open, both: tuple[BrokerThread, BrokerThread]) -> None:
    page = at_leader()
    expect(page.get_by_role("heading", name="Brokers with this data")).to_be_visible()
    expect(page.locator("#members-note")).to_have_text("This is broker 1; broker 1 leads, epoch 1.")
    expect(row(page, 1)).to_have_attribute("data-state", "leader")
    expect(row(page, 2)).to_have_attribute("data-state", "in-sync")
    for broker_id, broker in enumerate(both, 1):
        expect(row(page, broker_id)).to_contain_text(broker.address)
        expect(row(page, broker_id)).to_contain_text("0 messages")
        expect(row(page, broker_id).locator("td").last).to_contain_text(":")
    expect(page.locator("#members-problem")).to_be_hidden()


def test_at_a_follower(at_follower: Open, both: tuple[BrokerThread, BrokerThread]) -> None:
    page = at_follower()
    expect(page.locator("#members-note")).to_have_text("This is broker 2; broker 1 leads, epoch 1.")
    expect(row(page, 1)).to_have_attribute("data-state", "leader")
    expect(row(page, 2)).to_have_attribute("data-state", "in-sync")
    expect(row(page, 1)).to_contain_text(both[0].address)
    expect(page.locator("#messages tbody tr")).to_have_count(1)


def test_it_fits_a_narrow_screen(at_leader: Open) -> None:
    page = at_leader(viewport={"width": 360, "height": 800})
    expect(row(page, 2)).to_be_visible()
    width = page.evaluate("document.documentElement.scrollWidth")
    assert width <= 360


def test_a_follower_that_is_gone_is_seen(browser: Browser, tmp_path: Path) -> None:
    shared: dict[str, Any] = {"http.listen": "127.0.0.1:0", "replica.lag.time.max.ms": 1000}
    leads = {"broker.id": 1, "cluster.create": "true", **shared}
    with BrokerThread(tmp_path / "1", leads) as leader:
        follows = {"broker.id": 2, "cluster.follow": leader.address, **shared}
        with (
            BrokerThread(tmp_path / "2", follows),
            pages(browser, leader.http_address, "") as open_page,
        ):
            page = open_page()
            expect(row(page, 2)).to_have_attribute("data-state", "in-sync")
        with pages(browser, leader.http_address, "") as open_page:
            page = open_page()
            expect(row(page, 2)).to_have_attribute("data-state", "down", timeout=SEEN_WITHIN_MS)
            expect(row(page, 2)).to_contain_text("0 messages")
        with BrokerThread(tmp_path / "2", follows) as follower:
            with pages(browser, follower.http_address, "") as open_page:
                expect(row(open_page(), 2)).to_have_attribute("data-state", "in-sync")
            leader.stop()
            with pages(browser, follower.http_address, "") as open_page:
                page = open_page()
                expect(page.locator("#members-problem")).to_contain_text("has said nothing for")
                expect(row(page, 1)).to_have_attribute("data-state", "down", timeout=SEEN_WITHIN_MS)
