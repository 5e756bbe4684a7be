"""Effects that are carried out as one."""

from collections.abc import Iterable, Iterator, Sequence

from ...replication.effects import Effect, Send
from ...replication.messages import Confirm, Position
from ...replication.partition_log import Partition


def merged(effects: Sequence[Effect]) -> Iterable[Effect]:
    """The effects, with confirmations that follow each other on one connection as one."""
    return effects if len(effects) == 1 else _merged(effects)


def _merged(effects: Iterable[Effect]) -> Iterator[Effect]:
    pending: Send | None = None
    positions: dict[Partition, Position] = {}
    for effect in effects:
        message = effect.message if isinstance(effect, Send) else None
        if isinstance(effect, Send) and isinstance(message, Confirm):
            same = pending is not None and pending.connection == effect.connection
            if pending is not None and not same:
                yield _confirm(pending, positions)
                positions = {}
            pending = effect
            positions |= {one.partition: one for one in message.positions}
            continue
        if pending is not None:
            yield _confirm(pending, positions)
            pending, positions = None, {}
        yield effect
    if pending is not None:
        yield _confirm(pending, positions)


def _confirm(last: Send, positions: dict[Partition, Position]) -> Send:
    assert isinstance(last.message, Confirm)
    return Send(last.connection, Confirm(last.message.epoch, tuple(positions.values())))
