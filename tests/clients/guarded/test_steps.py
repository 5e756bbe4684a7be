"""What clients do at an open broker they do at one with TLS, users and rules, and no more."""

from collections.abc import Callable
from typing import Any

import pytest

from ..client import Client, Message, Refused
from ..test_groups import test_group as group_of
from ..test_messages import sent_and_read
from .conftest import HIDDEN, SUBJECT, USER, Guarded
from .ways import CERTIFICATE, SMOKE, Way, ways

pytestmark = pytest.mark.timeout(900)

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def every_way() -> Decorator:
    """Runs the test for each; but for a few of every kind, only in `make secure-clients`."""
    long = pytest.mark.secure_clients
    return pytest.mark.parametrize(
        "way",
        [pytest.param(one, id=one.name, marks=() if one in SMOKE else long) for one in ways()],
        indirect=True,
        scope="module",
    )


@every_way()
def test_steps(client: Client, way: Way, guarded: Guarded, topic: str) -> None:
    """Produce and consume, not compressed and compressed; a group that goes on where it was; and
    a topic for which there is no rule."""
    sent_and_read(client, f"{topic}.none", "none")
    sent_and_read(client, f"{topic}.gzip", "gzip")
    group_of(client, topic)
    # As of 0.9, librdkafka does not give up before its time is over.
    with pytest.raises((Refused, TimeoutError)):
        client.produce(HIDDEN, [Message(b"never")])
    who = f"User:CN={SUBJECT}" if way.mechanism == CERTIFICATE else f"User:{USER}"
    refused = [one for one in guarded.audit if one["event"] == "action_refused"]
    assert who in {one["by"] for one in refused}
    assert not (guarded.server.data_dir / f"{HIDDEN}-0").exists()
