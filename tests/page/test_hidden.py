"""The page of users who may not see everything: what is hidden is shown as hidden."""

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from horolog import Admin, Producer
from horolog.cli.main import run as run_command
from horolog.testing.broker import BrokerThread

from .browsing import Open, launched, pages, run

PASSWORD = "correct-horse-7213"
RULES: dict[str, list[tuple[str, ...]]] = {
    "describer": [("Describe", "--topic", "clicks")],
    "reader": [("Read", "--topic", "clicks")],
    "operator": [("All", "--topic", "*"), ("All", "--group", "*"), ("All", "--cluster")],
    "nobody": [],
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerThread]:
    """Its page asks for a login, and one native address does not."""
    place = tmp_path_factory.mktemp("hidden")
    settings: dict[str, object] = {
        "broker.id": 1,
        "cluster.create": "true",
        "cluster.brokers": 1,
        "listen": "PLAINTEXT://127.0.0.1:0",
        "http.listen": "127.0.0.1:0",
        "authentication": "required",
        "authorization": "on",
        "super.users": "User:ANONYMOUS",
    }
    with BrokerThread(place / "data", settings) as started:
        run(fill(started))
        with ThreadPoolExecutor(1) as thread:
            thread.submit(make_users, started.address, place / "password").result()
        yield started


async def fill(broker: BrokerThread) -> None:
    async with Admin(broker.address) as admin, Producer(broker.address) as producer:
        for name in ("clicks", "secret"):
            await admin.create_topic(name, settings={"retention.ms": "604800000"})
            await producer.send(name, b"a message", timestamp_ms=broker.clock.now_ms())
        await admin.commit_position("billing", "clicks", 0, 0)


def make_users(address: str, password: Path) -> None:
    password.write_text(PASSWORD)
    at = ("--server", address)
    for name, rules in RULES.items():
        add = ("user", "add", name, "--password-file", str(password), "--iterations", "4096")
        assert run_command([*add, *at]) == 0
        for operation, *on in rules:
            allow = ("acl", "add", "--allow", f"User:{name}", "--operation", operation)
            assert run_command([*allow, *on, *at]) == 0


@pytest.fixture(scope="module")
def browser(broker: BrokerThread) -> Iterator[Browser]:
    with launched() as started:
        yield started


@pytest.fixture
def open_page(browser: Browser, broker: BrokerThread) -> Iterator[Open]:
    """`open_page("reader")`: the page as that user sees it. Nothing was refused in the end."""
    with pages(browser, broker.http_address, "login") as open_it:

        def open_as(user: str) -> Page:
            page = open_it()
            page.get_by_label("User").fill(user)
            page.get_by_label("Password").fill(PASSWORD)
            page.get_by_role("button", name="Log in").click()
            expect(page.locator("#user")).to_have_text(user)
            expect(page.get_by_role("status").first).to_have_class("live")
            return page

        yield open_as


HIDDEN = re.compile("[Hh]idden")


def test_settings_without_the_right_to_them_are_hidden(open_page: Open) -> None:
    page = open_page("reader")
    expect(page.locator("#messages tbody")).to_contain_text("a message")
    chips = page.locator("#chips")
    expect(chips).to_have_text("settings hidden: needs the right DescribeConfigs on the topic")
    expect(chips).not_to_contain_text("no limit")
    facts = page.locator("#segment")
    expect(facts).to_contain_text("Expireshidden: needs the right DescribeConfigs on the topic")
    expect(facts).not_to_contain_text("never")
    expect(page.locator("#bars-note")).to_contain_text("The retention start is hidden")
    page.get_by_text("All settings").click()
    expect(page.locator("#settings-note")).to_have_text(HIDDEN)
    expect(page.locator("#settings-list")).to_be_hidden()
    expect(page.locator("#lags-note")).to_have_text(HIDDEN)
    expect(page.locator("#lags")).to_be_hidden()
    expect(page.locator("#members-hidden")).to_have_text(HIDDEN)
    expect(page.locator("#brokers")).to_be_hidden()
    expect(page.locator("#topics-note")).to_be_visible()
    expect(page.locator("#tile-topics-name")).to_have_text("Your topics")
    expect(page.locator("body")).not_to_contain_text("secret")


def test_messages_without_the_right_to_read_are_hidden(open_page: Open) -> None:
    """The rest of the page goes on; before, it said that the broker does not answer."""
    page = open_page("describer")
    expect(page.locator("#messages-note")).to_contain_text("needs the right Read on the topic")
    expect(page.locator("#messages tbody tr")).to_have_count(0)
    expect(page.locator("#find-hidden")).to_have_text(
        re.compile("needs the right Read on the topic")
    )
    expect(page.get_by_role("link", name=re.compile("Download"))).to_have_count(0)
    for name in ("Find", "Older", "Newer", "Latest", "Search"):
        expect(page.get_by_role("button", name=name, exact=True)).to_be_disabled()
    expect(page.locator("#bars-note")).to_contain_text("1 message from")
    page.locator("#bars .count").first.click()
    expect(page.locator("#bar")).to_contain_text("Hidden: needs the right Read")
    page.evaluate("location.hash = '#secret/0'")
    expect(page.locator("#missing")).to_have_text(
        "There is no topic secret (any more), or you may not Describe it."
    )


def test_no_topic_at_all_is_no_broker_without_topics(open_page: Open) -> None:
    page = open_page("nobody")
    expect(page.locator("#missing")).to_have_text("There is no topic that you may Describe.")
    expect(page.locator("#empty")).to_be_hidden()


def test_a_user_with_all_rights_sees_all_and_no_word_of_hiding(open_page: Open) -> None:
    page = open_page("operator")
    expect(page.locator('#groups tr[data-group="billing"]')).to_contain_text("no members")
    expect(page.locator("#messages tbody")).to_contain_text("a message")
    expect(page.locator("#chips")).to_contain_text("kept for 7 d")
    expect(page.locator('#lags tr[data-name="billing"] td').nth(2)).to_have_text("0")
    expect(page.locator("#brokers tbody tr")).to_have_count(1)
    expect(page.locator("#bars-note")).to_contain_text("1 message from")
    assert page.get_by_text(HIDDEN).locator("visible=true").count() == 0


def test_another_user_in_the_same_browser_begins_anew(open_page: Open) -> None:
    page = open_page("operator")
    expect(page.locator("#messages tbody")).to_contain_text("a message")
    page.evaluate("window.before = true")
    page.evaluate(
        """(password) => fetch("/login", {method: "POST", body: JSON.stringify(
        {user: "nobody", password}), headers: {"Content-Type": "application/json"}})""",
        PASSWORD,
    )
    expect(page.locator("#user")).to_have_text("nobody")
    expect(page.locator("#missing")).to_be_visible()
    expect(page.get_by_text("a message")).to_have_count(0)
    assert page.evaluate("window.before") is None
