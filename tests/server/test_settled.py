"""When a broker has everything in memory that it will have."""

from pathlib import Path

import pytest

from horolog.config.broker import broker_settings
from horolog.server import main
from horolog.server.broker import Broker
from horolog.testing.broker import running_broker
from horolog.testing.requests import create_topic
from horolog.testing.waiting import until
from horolog.testing.wire import wire


async def test_it_is_told_once_when_all_logs_are_open(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as before, wire(before.addresses.native) as client:
        await client.call(create_topic("a", 7))
    settings = {"data.dir": str(before.settings.data_dir), "listen": "127.0.0.1:0"}
    open_when_told: list[int] = []
    broker = Broker(
        broker_settings(settings | {"http.listen": "off"}),
        settled=lambda: open_when_told.append(len(list(broker.logs()))),
    )
    await broker.start()
    try:
        await until(lambda: open_when_told)
    finally:
        await broker.stop()
    assert open_when_told == [7]


def test_the_collector_passes_over_what_is_there_before_logs_are_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """To look for garbage among thousands of new logs would hold up the first requests."""
    order: list[str] = []

    async def start(_: Broker) -> None:
        order.append("start")
        raise OSError("enough")

    monkeypatch.setattr(main, "settle", lambda: order.append("settle"))
    monkeypatch.setattr(Broker, "start", start)
    settings = {"data.dir": str(tmp_path), "listen": "127.0.0.1:0", "http.listen": "off"}
    assert main.serve(broker_settings(settings)) == 1
    assert order == ["settle", "start"]
    assert capsys.readouterr().err == "horolog: enough\n"
