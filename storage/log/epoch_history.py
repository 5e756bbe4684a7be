"""Which leader wrote which messages of a log: its leader epochs, and where each begins.

A pure value. `leader_epochs` stores it in a file.
"""

import re
from bisect import bisect_right
from collections.abc import Iterable
from operator import attrgetter
from typing import Final, NamedTuple

from ...values import value_class
from ..names import MAX_OFFSET

NO_EPOCH: Final = -1
"""Epoch of messages before the first epoch: a single broker wrote them."""

MAX_EPOCH: Final = 2**31 - 1

_VERSION: Final = "0"
_COUNT: Final = re.compile(r"[0-9]{1,10}")
_ENTRY: Final = re.compile(r"([0-9]{1,10}) ([0-9]{1,19})")


class EpochStart(NamedTuple):
    """An epoch and its first offset."""

    epoch: int
    start_offset: int


class EpochEnd(NamedTuple):
    """An epoch and the offset after its last message."""

    epoch: int
    """`NO_EPOCH` if the log has no epoch at or below the requested one."""
    end_offset: int


class MalformedEpochs(ValueError):
    """The given epochs are not valid. The text says where and why."""


@value_class
class EpochHistory:
    """The epochs of a log, oldest first. Epochs and offsets both rise."""

    starts: tuple[EpochStart, ...] = ()

    @property
    def last_epoch(self) -> int:
        """The newest epoch, with or without messages; -1 if there is none."""
        return self.starts[-1].epoch if self.starts else NO_EPOCH

    def epoch_at(self, offset: int) -> int:
        """Return the epoch of the message at `offset`; -1 before the first epoch."""
        number = bisect_right(self.starts, offset, key=attrgetter("start_offset"))
        return self.starts[number - 1].epoch if number else NO_EPOCH

    def end_of(self, epoch: int, log_start_offset: int, log_end_offset: int) -> EpochEnd:
        """Return the largest epoch at or below `epoch`, and its end offset, in a log with these
        offsets (KIP-101, KIP-279). `NO_EPOCH` stands for the messages before the first epoch. As in
        Kafka, an epoch that ended below the log start does not count: a log with messages of it has
        to learn that none of them is left."""
        number = bisect_right(self.starts, epoch, key=attrgetter("epoch"))
        found = self.starts[number - 1].epoch if number else NO_EPOCH
        if number == len(self.starts):
            return EpochEnd(found, log_end_offset)
        end_offset = min(self.starts[number].start_offset, log_end_offset)
        if end_offset < log_start_offset:
            return EpochEnd(NO_EPOCH, log_start_offset)
        return EpochEnd(found, end_offset)

    def between(self, offset: int, end_offset: int) -> tuple[EpochStart, ...]:
        """Return the epochs of the messages from `offset` up to, but not including, `end_offset`.
        The first is the epoch of `offset` itself, as if it began there; -1 if it has none."""
        starts = self.starts
        if starts and starts[-1].start_offset <= offset:
            return (EpochStart(starts[-1].epoch, offset),)
        first = bisect_right(self.starts, offset, key=attrgetter("start_offset"))
        within = [one for one in self.starts[first:] if one.start_offset < end_offset]
        return EpochStart(self.epoch_at(offset), offset), *within

    def assigned(self, epoch: int, start_offset: int) -> "EpochHistory":
        """Return the history with `epoch` from `start_offset` on. As in Kafka, only entries with
        both a smaller epoch and a smaller offset are kept before it."""
        if not 0 <= epoch <= MAX_EPOCH or not 0 <= start_offset <= MAX_OFFSET:
            raise ValueError(
                f"epoch {epoch} from offset {start_offset} on: an epoch is 0 to {MAX_EPOCH}, an "
                f"offset 0 to {MAX_OFFSET}"
            )
        before = [
            one for one in self.starts if one.epoch < epoch and one.start_offset < start_offset
        ]
        return EpochHistory((*before, EpochStart(epoch, start_offset)))

    def cut(self, offset: int) -> "EpochHistory":
        """Return the history of a log truncated at `offset`: without epochs that begin there or
        later."""
        if not self.starts or self.starts[-1].start_offset < offset:
            return self
        return EpochHistory(tuple(one for one in self.starts if one.start_offset < offset))

    def begun_at(self, offset: int) -> "EpochHistory":
        """Return the history of a log that begins at `offset`: without epochs that end at or before
        it."""
        number = bisect_right(self.starts, offset, key=attrgetter("start_offset"))
        return self if number <= 1 else EpochHistory(self.starts[number - 1 :])

    def followed(
        self, starts: Iterable[EpochStart], offset: int, end_offset: int
    ) -> "EpochHistory":
        """Return the history after messages from `offset`, the log end, up to `end_offset` were
        copied. `starts` are their epochs.

        Raises `MalformedEpochs` if the epochs do not continue this history: the log has to be
        truncated first.
        """
        history = self.cut(offset)
        for epoch, start_offset in starts:
            if start_offset >= end_offset:
                break
            if epoch < history.last_epoch:
                raise MalformedEpochs(
                    f"the messages from offset {max(start_offset, offset)} on are of epoch {epoch},"
                    f" those before them of epoch {history.last_epoch}"
                )
            if epoch > history.last_epoch:
                history = history.assigned(epoch, max(start_offset, offset))
        return history


def encode_epochs(history: EpochHistory) -> bytes:
    """Return the content of the file, in Kafka's text format with line feeds: the version (`0`),
    the number of epochs, then `epoch first_offset` for each."""
    lines = [_VERSION, str(len(history.starts))]
    lines += [f"{epoch} {start_offset}" for epoch, start_offset in history.starts]
    return ("\n".join(lines) + "\n").encode()


def decode_epochs(content: bytes) -> EpochHistory:
    """Return the epochs in a file's content. Raises `MalformedEpochs`.

    If several epochs have the same first offset, as older versions of Kafka could write, the last
    one counts.
    """
    try:
        lines = content.decode("ascii").splitlines()
    except UnicodeDecodeError as error:
        raise MalformedEpochs(f"byte {error.start} is not text") from error
    if not lines or lines[0] != _VERSION:
        raise MalformedEpochs(f"line 1: version {lines[:1]}, known is {_VERSION!r}")
    if len(lines) < 2 or _COUNT.fullmatch(lines[1]) is None:
        raise MalformedEpochs("line 2: the number of entries is missing")
    if len(lines) - 2 != int(lines[1]):
        raise MalformedEpochs(
            f"line 2 says {lines[1]} entries, the file has {len(lines) - 2}: it was cut or edited"
        )
    starts: list[EpochStart] = []
    for number, line in enumerate(lines[2:], start=3):
        match = _ENTRY.fullmatch(line)
        if match is None:
            raise MalformedEpochs(f"line {number}: {line[:40]!r} is not 'epoch first_offset'")
        one = EpochStart(int(match[1]), int(match[2]))
        if one.epoch > MAX_EPOCH or one.start_offset > MAX_OFFSET:
            raise MalformedEpochs(f"line {number}: {line[:40]!r} is beyond what there can be")
        if starts and (one.epoch <= starts[-1].epoch or one.start_offset < starts[-1].start_offset):
            raise MalformedEpochs(f"line {number}: {line!r} does not rise above the line before")
        if starts and one.start_offset == starts[-1].start_offset:
            starts.pop()
        starts.append(one)
    return EpochHistory(tuple(starts))
