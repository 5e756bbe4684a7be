"""faust with a table, which is made of a compacted topic whenever it starts."""

import json
from pathlib import Path

import pytest

from .installing import PROGRAMS, python_of
from .messages import COUNTS, WORDS, Messages
from .running import running

_LIMIT_SECONDS = 600
"""The first run installs faust."""


@pytest.mark.ecosystem
@pytest.mark.timeout(_LIMIT_SECONDS)
def test_its_table_comes_back_from_the_changelog(
    address: str, messages: Messages, tmp_path: Path
) -> None:
    command = [python_of("faust"), PROGRAMS / "faust" / "count_words.py", address]
    for number, folder in enumerate(("first", "second"), start=1):
        messages.send("words", WORDS)
        with running([*command, tmp_path / folder], tmp_path / f"{folder}.log"):
            found = messages.read("counts", number * len(WORDS))
    counts = [json.loads(value or b"") for _, value in found]
    assert [(one["word"], one["count"]) for one in counts] == COUNTS
    assert messages.compacted() == {"counting-seen-changelog"}
