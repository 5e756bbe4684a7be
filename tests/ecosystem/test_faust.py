"""faust with a table, which is made of a compacted topic whenever it starts, at the broker of the
fixture `kafka_bootstrap`."""

import json
from functools import partial
from pathlib import Path

import pytest

from horolog.testing.waiting import wait_until

from .installing import PROGRAMS, python_of
from .messages import COUNTS, WORDS, Messages
from .running import running, tail

_LIMIT_SECONDS = 600
"""The first run installs faust."""


@pytest.fixture
def address(kafka_bootstrap: str) -> str:
    """The address of the fixture's broker, in place of that of a process of its own."""
    return kafka_bootstrap


@pytest.mark.ecosystem
@pytest.mark.timeout(_LIMIT_SECONDS)
def test_its_table_comes_back_from_the_changelog(
    address: str, messages: Messages, tmp_path: Path
) -> None:
    command = [python_of("faust"), "-u", PROGRAMS / "faust" / "count_words.py", address]
    messages.create("words", {})
    for number, folder in enumerate(("first", "second"), start=1):
        log = tmp_path / f"{folder}.log"
        with running([*command, tmp_path / folder], log):
            # faust drops a message that it gets while it still reads its table.
            wait_until(partial(_has_started, log), within_s=120, state=partial(tail, log))
            messages.send("words", WORDS)
            found = messages.read("counts", number * len(WORDS))
    counts = [json.loads(value or b"") for _, value in found]
    assert [(one["word"], one["count"]) for one in counts] == COUNTS
    assert messages.compacted() == {"counting-seen-changelog"}


def _has_started(log: Path) -> bool:
    return "OK ^" in tail(log)
