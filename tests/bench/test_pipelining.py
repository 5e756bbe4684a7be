"""Some hundred pipelined requests that take much memory, at a broker in a process of its own."""

import pytest

from horolog.bench.guard.pipelining import LIMIT_BYTES, attacks, pipelined


@pytest.mark.parametrize("name", ["count_by_time_read", "epochs"])
def test_what_a_broker_holds_is_bounded(name: str) -> None:
    """A broker that begins with all of them takes 4 GB before it has answered so many."""
    found = pipelined(name, attacks()[name], seconds=60, answers=40)
    assert found.answered >= 40
    assert found.peak_bytes < LIMIT_BYTES
    assert found.is_quiet
