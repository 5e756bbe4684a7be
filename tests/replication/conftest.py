"""Which of the known schedules a run takes."""

from collections.abc import Callable
from random import Random
from typing import Final

import pytest

_EVERY: Final = 3
"""A run takes one schedule in this many; over a few runs all of them are taken."""


@pytest.fixture
def sample(request: pytest.FixtureRequest) -> Callable[[int], range]:
    """`sample(count)` is the seeds below `count` that this run takes. The run's own seed, which is
    printed when it fails, chooses them."""
    first = Random(f"sample {request.config.option.hypothesis_seed}").randrange(_EVERY)
    return lambda count: range(first, count, _EVERY)
