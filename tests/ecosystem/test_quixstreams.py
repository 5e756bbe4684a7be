"""quixstreams with state, which it has copies of in a compacted topic."""

import json
from pathlib import Path

import pytest

from .installing import PROGRAMS, python_of
from .messages import COUNTS, WORDS, Messages
from .running import run

_LIMIT_SECONDS = 600
"""The first run installs quixstreams."""


@pytest.mark.timeout(_LIMIT_SECONDS)
def test_its_state_comes_back_from_the_changelog(
    address: str, messages: Messages, tmp_path: Path
) -> None:
    """The second run has none of the first one's files."""
    program = PROGRAMS / "quixstreams" / "count_words.py"
    command = [python_of("quixstreams"), program, address]
    for folder in ("first", "second"):
        messages.send("words", WORDS)
        run([*command, tmp_path / folder, len(WORDS)], tmp_path / f"{folder}.log", seconds=120)
    counts = [json.loads(value or b"") for _, value in messages.read("counts", 2 * len(WORDS))]
    assert [(one["word"], one["count"]) for one in counts] == COUNTS
    assert messages.compacted() == {"changelog__counting--words--default"}
