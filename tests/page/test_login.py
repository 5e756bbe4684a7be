"""The login page in a real browser: in, not in, out, and a session that ends."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from horolog import Admin, Security
from horolog.server.web.authentication import SESSION_SECONDS, WebSessions
from horolog.testing.broker import BrokerThread
from horolog.testing.program import Program
from horolog.tests.secure_clients.certificates import Authority
from horolog.tests.secure_clients.users import add_user

from .browsing import launched, run

PASSWORD = "correct-horse-7213"
WRONG = "not-the-password-6602"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("login")


@pytest.fixture(scope="module")
def authority(folder: Path) -> Authority:
    return Authority(folder, "authority")


@pytest.fixture(scope="module")
def broker(folder: Path, authority: Authority) -> Iterator[BrokerThread]:
    pair = authority.signed("broker", "IP:127.0.0.1")
    add_user(folder / "data", "alice", PASSWORD)
    settings: dict[str, object] = {
        "listen": "tls://127.0.0.1:0",
        "http.listen": "tls://127.0.0.1:0",
        "authentication": "required",
        "tls.cert": pair.certificate,
        "tls.key": pair.key,
    }
    with BrokerThread(folder / "data", settings) as started:
        security = Security(ca=str(authority.certificate), user="alice", password=PASSWORD)
        run(make_topic(f"tls://{started.address}", security))
        yield started


async def make_topic(address: str, security: Security) -> None:
    async with Admin(address, security=security) as admin:
        await admin.create_topic("clicks")


@pytest.fixture(scope="module")
def browser(broker: BrokerThread) -> Iterator[Browser]:
    with launched() as started:
        yield started


@pytest.fixture
def page(browser: Browser, broker: BrokerThread) -> Iterator[Page]:
    """A page of a browser without cookies. No script may have failed in the end."""
    # The browser does not know the authority; that certificates are checked is tested elsewhere.
    context = browser.new_context(
        base_url=f"https://{broker.http_address}", ignore_https_errors=True
    )
    wrong: list[str] = []
    opened = context.new_page()
    opened.set_default_timeout(30_000)
    opened.on("pageerror", lambda error: wrong.append(str(error)))
    opened.on("dialog", lambda dialog: wrong.append(dialog.message))
    yield opened
    context.close()
    assert wrong == []


def log_in(page: Page, password: str = PASSWORD) -> None:
    page.goto("/")
    expect(page).to_have_url(re.compile("/login$"))
    page.get_by_label("User").fill("alice")
    page.get_by_label("Password").fill(password)
    page.get_by_role("button", name="Log in").click()


def is_inside(page: Page) -> None:
    """The broker's topics are shown."""
    expect(page).not_to_have_url(re.compile("/login"))
    expect(page.get_by_text("clicks").first).to_be_visible()


def test_a_login(page: Page) -> None:
    log_in(page)
    is_inside(page)
    page.reload()
    is_inside(page)


def test_by_keyboard(page: Page) -> None:
    page.goto("/")
    expect(page.get_by_label("User")).to_be_focused()
    page.keyboard.type("alice")
    page.keyboard.press("Tab")
    page.keyboard.type(PASSWORD)
    page.keyboard.press("Enter")
    is_inside(page)


def test_the_cookie(page: Page) -> None:
    """No script reads it, no other site sends it, and nothing unencrypted."""
    log_in(page)
    is_inside(page)
    (cookie,) = page.context.cookies()
    flags = (cookie["httpOnly"], cookie["secure"], cookie["sameSite"], cookie["path"])
    assert flags == (True, True, "Strict", "/")
    assert 0 < cookie["expires"] - page.evaluate("Date.now() / 1000") <= 12 * 3600
    assert page.evaluate("document.cookie") == ""
    stored = page.evaluate("JSON.stringify([{...localStorage}, {...sessionStorage}])")
    assert stored == "[{},{}]"
    for secret in (PASSWORD, cookie["value"]):
        assert secret not in page.content()
        assert secret not in page.url


def test_a_wrong_password(page: Page) -> None:
    """It is said, nothing is kept of it, and the right one still lets in."""
    log_in(page, WRONG)
    state = page.get_by_role("status")
    expect(state).to_have_text("the user does not exist, or the password is wrong")
    expect(page.get_by_label("Password")).to_have_value("")
    expect(page.get_by_label("Password")).to_be_focused()
    assert page.context.cookies() == []
    assert WRONG not in page.content()
    assert WRONG not in page.url
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Log in").click()
    is_inside(page)


def test_a_logout(page: Page) -> None:
    """The session is over at the broker, not only in this browser."""
    log_in(page)
    is_inside(page)
    before = page.context.cookies()
    status = page.evaluate(
        "fetch('/logout', {method: 'POST', headers: {'Content-Type': 'application/json'}, "
        "body: '{}'}).then((answer) => answer.status)"
    )
    assert status == 200
    assert page.context.cookies() == []
    expect(page).to_have_url(re.compile("/login$"))  # the page asked, and was told
    page.context.add_cookies(before)  # type: ignore[arg-type] # what one takes the other gives
    page.goto("/")
    expect(page).to_have_url(re.compile("/login$"))


def test_the_user_and_a_logout_by_keyboard(page: Page) -> None:
    """Nothing of the broker is left to see, also by the way back."""
    at_login = re.compile("/login(#.*)?$")
    log_in(page)
    is_inside(page)
    expect(page.locator("#user")).to_have_text("alice")
    page.goto("/#clicks/0")
    before = page.context.cookies()
    page.get_by_role("button", name="Log out").press("Enter")
    expect(page).to_have_url(at_login)
    assert page.context.cookies() == []
    page.go_back()
    expect(page).to_have_url(at_login)
    expect(page.get_by_text("clicks")).to_have_count(0)
    page.context.add_cookies(before)  # type: ignore[arg-type] # what one takes the other gives
    page.goto("/")
    expect(page).to_have_url(at_login)


def test_a_logout_that_does_not_come_through_is_told(page: Page) -> None:
    log_in(page)
    is_inside(page)
    page.route("**/logout", lambda route: route.abort())
    page.get_by_role("button", name="Log out").click()
    expect(page.locator("#logout-problem")).to_have_text(
        "Not logged out: the broker did not answer"
    )
    expect(page.get_by_role("button", name="Log out")).to_be_enabled()
    is_inside(page)


def test_a_session_that_ends(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    """A page that is open goes to the login when it asks the next time, by itself."""
    begun: list[WebSessions] = []
    begin = WebSessions.begin

    def noted(sessions: WebSessions, *args: Any) -> str:
        begun.append(sessions)
        return begin(sessions, *args)

    monkeypatch.setattr(WebSessions, "begin", noted)
    log_in(page)
    is_inside(page)
    time = begun[0]._time
    monkeypatch.setattr(begun[0], "_time", lambda: time() + SESSION_SECONDS + 1)
    expect(page).to_have_url(re.compile("/login$"))
    log_in(page)
    is_inside(page)


def test_another_password_ends_sessions(
    page: Page, broker: BrokerThread, authority: Authority, folder: Path
) -> None:
    log_in(page)
    is_inside(page)
    (folder / "password").write_text(PASSWORD)
    (folder / "password").chmod(0o600)
    env = {"HOROLOG_CA": str(authority.certificate), "HOROLOG_USER": "alice"}
    env["HOROLOG_PASSWORD_FILE"] = str(folder / "password")
    # The same word: it has another salt, and so another credential.
    Program(f"tls://{broker.address}", env).ok(
        "user", "password", "alice", "--password-file", folder / "password"
    )
    expect(page).to_have_url(re.compile("/login$"))
