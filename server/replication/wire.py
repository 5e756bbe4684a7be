"""What leader and followers say, in the terms of `replication/` and in those of the protocol."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from ...protocol.api.cluster.replicate import (
    Answers,
    DamagedPartition,
    EpochBegin,
    EpochOwner,
    ReplicaPosition,
    ReplicatedPart,
    ReplicateRequest,
    ReplicateResponse,
    Says,
)
from ...protocol.errors import InvalidRequest
from ...protocol.limits import MAX_DATA_BYTES, MAX_PRODUCER_STATE_PIECES
from ...replication.effects import Effect, Send
from ...replication.epoch_owners import Owners
from ...replication.messages import (
    Confirm,
    EpochRefusal,
    Fetch,
    Fetched,
    FollowerPosition,
    FromFollower,
    FromLeader,
    HandedOver,
    Hello,
    PartitionAnswer,
    Welcome,
)
from ...replication.partition_log import Partition
from ...replication.settings import Member
from ...storage.files import Buffer
from ...storage.log.epoch_history import NO_EPOCH, EpochEnd, EpochStart
from ...storage.metadata.state_copy import StatePart
from ...storage.names import MAX_OFFSET
from ...storage.read.slices import FileRange, Slice
from ...storage.replica.copy_facts import CopyFacts, MalformedFacts, Stored, Stretch
from ...storage.replica.copying import Copied
from ..network.file_sending import MAX_FILE_RANGES, MIN_FILE_RANGE_BYTES

MAX_BROKER_ID: Final = 999
"""Leader epochs are 1,000 apart, and end in the id of the broker that gave it to itself."""


def read_hello(request: ReplicateRequest) -> Hello:
    """What a follower says first. Raises `InvalidRequest`."""
    if not 1 <= request.broker_id <= MAX_BROKER_ID:
        raise InvalidRequest(f"broker_id is {request.broker_id}; it must be 1 to {MAX_BROKER_ID}")
    if min(request.epoch, request.highest_epoch) < NO_EPOCH or request.nonce < 0:
        raise InvalidRequest(
            f"epoch {request.epoch}, highest_epoch {request.highest_epoch} and nonce "
            f"{request.nonce}: epochs are -1 or more, a nonce is 0 or more"
        )
    member = Member(request.broker_id, request.nonce)
    return Hello(member, request.epoch, request.highest_epoch, _read_owners(request.owners))


def _read_owners(owners: Iterable[EpochOwner]) -> Owners:
    found: dict[int, Member] = {}
    for one in owners:
        if one.epoch < 0 or not 1 <= one.broker_id <= MAX_BROKER_ID or one.nonce < 0:
            raise InvalidRequest(
                f"epoch {one.epoch} is said to be of broker {one.broker_id}, nonce {one.nonce}: "
                f"a broker id is 1 to {MAX_BROKER_ID}, the others are 0 or more"
            )
        found[one.epoch] = Member(one.broker_id, one.nonce)
    return found


def _write_owners(owners: Owners) -> list[EpochOwner]:
    return [
        EpochOwner(epoch=epoch, broker_id=member.broker_id, nonce=member.nonce)
        for epoch, member in owners.items()
    ]


def read_positions(
    request: ReplicateRequest, place: Callable[[str, FollowerPosition], bool]
) -> Fetch | Confirm:
    """What a follower says later, without the positions that `place` does not know: it is given
    topic ids with them. Raises `InvalidRequest`."""
    known = []
    for one in request.positions:
        position = _read_position(one)
        if place(one.topic_id, position):
            known.append(position)
    if request.says == Says.FETCH:
        return Fetch(request.epoch, tuple(known), request.ahead)
    return Confirm(request.epoch, tuple(known), request.leaving)


def _read_position(one: ReplicaPosition) -> FollowerPosition:
    least = min(one.log_start_offset, one.synced_offset)
    if not least >= 0 or not one.log_start_offset <= one.end_offset or one.last_epoch < NO_EPOCH:
        raise InvalidRequest(
            f"a position in {one.topic[:249]}-{one.partition} from {one.log_start_offset} to "
            f"{one.end_offset}, synced to {one.synced_offset}, of epoch {one.last_epoch}, is none"
        )
    partition = one.topic, one.partition
    return FollowerPosition(
        partition,
        one.end_offset,
        one.last_epoch,
        one.synced_offset,
        one.log_start_offset,
        one.check,
    )


def write_request(
    connection: int, message: FromFollower, topic_id: Callable[[Partition], str]
) -> ReplicateRequest:
    """The request of a follower; a hello is still without what it says of the broker."""
    if isinstance(message, Hello):
        return ReplicateRequest(
            says=Says.HELLO,
            connection=connection,
            epoch=message.epoch,
            broker_id=message.member.broker_id,
            nonce=message.member.nonce,
            highest_epoch=message.highest_epoch,
            owners=_write_owners(message.owners),
        )
    return ReplicateRequest(
        says=Says.FETCH if isinstance(message, Fetch) else Says.CONFIRM,
        connection=connection,
        epoch=message.epoch,
        positions=[_write_position(one, topic_id(one.partition)) for one in message.positions],
        ahead=isinstance(message, Fetch) and message.ahead,
        leaving=isinstance(message, Confirm) and message.leaving,
    )


def _write_position(one: FollowerPosition, topic_id: str) -> ReplicaPosition:
    return ReplicaPosition(
        topic=one.partition[0],
        topic_id=topic_id,
        partition=one.partition[1],
        end_offset=one.end,
        last_epoch=one.last_epoch,
        synced_offset=one.synced,
        log_start_offset=one.log_start_offset,
        check=one.check,
    )


def write_response(message: FromLeader, broker_id: int) -> ReplicateResponse:
    """The response of a leader, still without the topics, and without those messages that are not
    in memory (`unread`)."""
    if isinstance(message, Fetched):
        file_ranges = Stretches()
        return ReplicateResponse(
            answers=Answers.FETCHED,
            epoch=message.epoch,
            broker_id=broker_id,
            parts=[_write_part(part, file_ranges) for part in message.parts],
        )
    if isinstance(message, EpochRefusal):
        return refusal(message.highest_epoch, broker_id)
    if isinstance(message, Welcome):
        return ReplicateResponse(
            answers=Answers.WELCOME,
            epoch=message.epoch,
            broker_id=broker_id,
            owners=_write_owners(message.owners),
            damaged=[
                DamagedPartition(topic=topic, partition=number)
                for topic, number in sorted(message.damaged)
            ],
        )
    answers = Answers.HANDED_OVER
    return ReplicateResponse(answers=answers, epoch=message.epoch, broker_id=broker_id)


def refusal(highest_epoch: int, broker_id: int) -> ReplicateResponse:
    """The response of a broker that does not lead."""
    return ReplicateResponse(answers=Answers.REFUSAL, epoch=highest_epoch, broker_id=broker_id)


class Stretches:
    """Takes messages from where they lie: few are read, many go from their file to the socket."""

    def __init__(self) -> None:
        self._left = MAX_FILE_RANGES

    def take(self, found: Slice) -> Buffer | FileRange | None:
        """`None` where they have to be read, and that would wait for the disk."""
        if found.size >= MIN_FILE_RANGE_BYTES and self._left:
            stretch = found.stretch()
            if stretch is not None:
                self._left -= 1
                return stretch
        return found.read_now()


def _write_part(part: PartitionAnswer, file_ranges: Stretches) -> ReplicatedPart:
    written = ReplicatedPart(
        topic=part.partition[0],
        partition=part.partition[1],
        epochs=_write_epochs(part.epoch_starts),
        log_start_offset=part.log_start_offset,
        first_visible_offset=part.log_start_offset,
        high_watermark=part.high_watermark,
        sync_to=part.sync_to,
        producers=_pieces(part.producers) if isinstance(part.producers, bytes) else [],
    )
    if part.diverging is not None:
        written.diverging = _write_epochs([part.diverging])
    if part.stored is not None and part.stored.data is not None:
        copied: Copied = part.stored.data
        written.records = file_ranges.take(copied.found)  # type: ignore[assignment] # not only bytes
        written.facts = copied.facts.encode()
        written.next_offset = part.stored.next_offset
    return written


def unread(part: PartitionAnswer, written: ReplicatedPart) -> Slice | None:
    """Where messages of a part are that have to be got from the disk; `None` where all are read."""
    if written.records is not None or part.stored is None or part.stored.data is None:
        return None
    copied: Copied = part.stored.data
    return copied.found


def read_all(parts: Iterable[tuple[ReplicatedPart, Slice]]) -> None:
    """Read what is `unread`, in any thread. Raises `OSError`."""
    for written, found in parts:
        written.records = found.read()


def _write_epochs(starts: Iterable[EpochStart | EpochEnd]) -> list[EpochBegin]:
    return [EpochBegin(epoch=epoch, offset=offset) for epoch, offset in starts]


def read_response(response: ReplicateResponse) -> FromLeader:
    """What a leader said. Raises `InvalidRequest`."""
    if response.answers == Answers.FETCHED:
        return Fetched(response.epoch, tuple(map(_read_part, response.parts)))
    if response.answers == Answers.WELCOME:
        damaged = frozenset((one.topic, one.partition) for one in response.damaged)
        return Welcome(response.epoch, _read_owners(response.owners), damaged)
    if response.answers == Answers.REFUSAL:
        return EpochRefusal(response.epoch)
    if response.answers == Answers.HANDED_OVER:
        return HandedOver(response.epoch)
    raise InvalidRequest(f"a leader's answer is of kind {response.answers}; there are 0 to 3")


def _read_part(part: ReplicatedPart) -> PartitionAnswer:
    numbers = (part.log_start_offset, part.first_visible_offset, part.sync_to)
    begins = [*part.diverging, *part.epochs]
    if min(numbers) < 0 or part.high_watermark < -1 or any(not _is_begin(one) for one in begins):
        raise InvalidRequest(f"what the leader says of {part.topic}-{part.partition} cannot be")
    return PartitionAnswer(
        (part.topic, part.partition),
        EpochEnd(part.diverging[0].epoch, part.diverging[0].offset) if part.diverging else None,
        _read_stored(part),
        _read_epochs(part.epochs),
        part.log_start_offset,
        part.high_watermark,
        part.sync_to,
        b"".join(part.producers) or None,
    )


def read_state_part(part: ReplicatedPart) -> StatePart:
    """A part of the metadata log's stored state. Raises `InvalidRequest`."""
    numbers = (part.state_offset, part.state_bytes, part.state_position)
    if min(numbers) < 0 or max(numbers) > MAX_OFFSET:
        raise InvalidRequest(f"a part of a state at {numbers} cannot be")
    return StatePart(*numbers, part.state)


def write_state_part(written: ReplicatedPart, part: StatePart) -> None:
    """The opposite of `read_state_part`."""
    written.state_offset, written.state_bytes, written.state_position, written.state = part


def _pieces(data: bytes) -> list[bytes]:
    """What is known of producers, in pieces; nothing where it is too much."""
    if len(data) > MAX_PRODUCER_STATE_PIECES * MAX_DATA_BYTES:
        return []
    return [data[at : at + MAX_DATA_BYTES] for at in range(0, len(data), MAX_DATA_BYTES)]


def _is_begin(one: EpochBegin) -> bool:
    return one.epoch >= NO_EPOCH and 0 <= one.offset <= MAX_OFFSET


def _read_stored(part: ReplicatedPart) -> Stored | None:
    if part.records is None:
        return None
    try:
        facts = CopyFacts.decode(part.facts)
    except MalformedFacts as error:
        raise InvalidRequest(
            f"what goes with the messages of {part.topic}-{part.partition} is not good: {error}"
        ) from error
    return Stored(Stretch(part.records, facts), part.next_offset, len(part.records))


def _read_epochs(begins: Sequence[EpochBegin]) -> tuple[EpochStart, ...]:
    return tuple([EpochStart(one.epoch, one.offset) for one in begins])


def merged(effects: Sequence[Effect]) -> Iterable[Effect]:
    """The effects of a follower, with confirmations that follow each other on one connection as
    one."""
    return effects if len(effects) == 1 else _merged(effects)


def _merged(effects: Iterable[Effect]) -> Iterator[Effect]:
    pending: Send | None = None
    positions: dict[Partition, FollowerPosition] = {}
    leaving = False
    for effect in effects:
        message = effect.message if isinstance(effect, Send) else None
        if isinstance(effect, Send) and isinstance(message, Confirm):
            same = pending is not None and pending.connection == effect.connection
            if pending is not None and not same:
                yield _confirm(pending, positions, leaving)
                positions, leaving = {}, False
            pending = effect
            positions |= {one.partition: one for one in message.positions}
            leaving = leaving or message.leaving
            continue
        if pending is not None:
            yield _confirm(pending, positions, leaving)
            pending, positions, leaving = None, {}, False
        yield effect
    if pending is not None:
        yield _confirm(pending, positions, leaving)


def _confirm(last: Send, positions: dict[Partition, FollowerPosition], leaving: bool) -> Send:
    assert isinstance(last.message, Confirm)
    confirm = Confirm(last.message.epoch, tuple(positions.values()), leaving=leaving)
    return Send(last.connection, confirm)
