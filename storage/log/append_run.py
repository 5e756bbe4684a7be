"""Sets on their way into a log together."""

import msgspec

from ...protocol.records.layout import NO_TIMESTAMP
from ..producers.producer_states import Producer
from .appended import Appended


class AppendRun(msgspec.Struct):
    """Sets that are appended together, and what becomes of each."""

    now_ms: int
    wait_for_sync: bool
    outcomes: list[Appended | Exception] = []
    settled: int = 0
    """How many outcomes are final; the others hold if what is staged can be written."""
    first_offset: int | None = None
    """Where what is staged begins; `None` when nothing is."""
    last_stamp_ms: int = NO_TIMESTAMP
    producers_before: list[tuple[int, Producer | None]] = []
    """What was known of the producers of what is staged, by id, oldest first."""

    def settle(self, failure: Exception | None = None) -> None:
        """What was staged is written, or could not be."""
        self.first_offset = None
        self.producers_before.clear()
        if failure is not None:
            unsettled = self.outcomes[self.settled :]
            del self.outcomes[self.settled :]
            for outcome in unsettled:
                if isinstance(outcome, Appended) and outcome.count:
                    self.outcomes += [failure] * len(outcome.first_offsets)
                else:
                    self.outcomes.append(outcome)
        self.settled = len(self.outcomes)
