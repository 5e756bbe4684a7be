"""A clock for the tests of clocks."""

import pytest

from horolog.testing.clock import ManualClock


@pytest.fixture
def clock() -> ManualClock:
    """Stands at 2016-11-14T17:24:32.509Z until it is moved."""
    return ManualClock()
