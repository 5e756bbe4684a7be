"""How often random tests try."""

from collections.abc import Callable

import hypothesis
from hypothesis import Phase


def examples(count: int) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Try a property `count` times where the profile has 100 of all tests, else in proportion."""
    profile = hypothesis.settings()
    # Explaining a failure traces every line of storage and takes minutes.
    phases = [phase for phase in Phase if phase is not Phase.explain]
    # The first example is always the simplest.
    tried = max(2, count * profile.max_examples // 100)
    return hypothesis.settings(max_examples=tried, phases=phases)
