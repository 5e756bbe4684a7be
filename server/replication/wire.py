"""The requests and answers between brokers: they are checked when they arrive, and their messages
are read, or located in files, before they are sent."""

from collections.abc import Callable, Iterable
from typing import Final

from ...protocol.api.cluster.replicate import (
    Answers,
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
from ...storage.files import Buffer
from ...storage.log.epoch_history import NO_EPOCH
from ...storage.metadata.snapshot import StatePart
from ...storage.names import MAX_OFFSET
from ...storage.read.slices import FileRange, Slice
from ...storage.replica.copy_facts import CopyFacts, MalformedFacts, ReceivedSets, Stored
from ...storage.replica.copying import Copied
from ..network.file_sending import MAX_FILE_RANGES, MIN_FILE_RANGE_BYTES

MAX_BROKER_ID: Final = 999
"""Largest broker id: the last three digits of a leader epoch are the id of the broker that chose
it."""


# At the leader: requests come in.


def check_request(request: ReplicateRequest) -> None:
    """Raise `InvalidRequest` for a request that no follower can send."""
    if request.says == Says.HELLO:
        _check_hello(request)
    elif request.says in (Says.FETCH, Says.CONFIRM):
        for one in request.positions:
            _check_position(one)
    else:
        raise InvalidRequest(f"says is {request.says}; it must be 0, 1, 2 or 3")


def _check_hello(request: ReplicateRequest) -> None:
    if not 1 <= request.broker_id <= MAX_BROKER_ID:
        raise InvalidRequest(f"broker_id is {request.broker_id}; it must be 1 to {MAX_BROKER_ID}")
    if min(request.epoch, request.highest_epoch) < NO_EPOCH or request.nonce < 0:
        raise InvalidRequest(
            f"epoch {request.epoch}, highest_epoch {request.highest_epoch} and nonce "
            f"{request.nonce}: epochs are -1 or more, a nonce is 0 or more"
        )
    _check_owners(request.owners)


def _check_owners(owners: Iterable[EpochOwner]) -> None:
    for one in owners:
        if one.epoch < 0 or not 1 <= one.broker_id <= MAX_BROKER_ID or one.nonce < 0:
            raise InvalidRequest(
                f"epoch {one.epoch} has the leader {one.broker_id}, nonce {one.nonce}: "
                f"a broker id is 1 to {MAX_BROKER_ID}, the others are 0 or more"
            )


def _check_position(one: ReplicaPosition) -> None:
    least = min(one.log_start_offset, one.synced_offset)
    if not least >= 0 or not one.log_start_offset <= one.end_offset or one.last_epoch < NO_EPOCH:
        raise InvalidRequest(
            f"invalid position in {one.topic[:249]}-{one.partition}: from {one.log_start_offset} "
            f"to {one.end_offset}, synced to {one.synced_offset}, epoch {one.last_epoch}"
        )


# At the leader: responses go out.


class Stretches:
    """Decides how messages of an answer are sent: few are read, many go from file to socket."""

    def __init__(self) -> None:
        self._left = MAX_FILE_RANGES

    def take(self, found: Slice) -> Buffer | FileRange | None:
        """Return the bytes, or the range of the file to send them from; `None` if they have to be
        read and that would wait for the disk."""
        if found.size >= MIN_FILE_RANGE_BYTES and self._left:
            stretch = found.stretch()
            if stretch is not None:
                self._left -= 1
                return stretch
        return found.read_now()


def put_messages(part: ReplicatedPart, file_ranges: Stretches) -> Slice | None:
    """Put the messages of `part.stored` into the fields that are sent. Returns the slice if it has
    to be read from the disk first."""
    state = part.producer_state
    part.producers = _pieces(state) if isinstance(state, bytes) else []
    if part.stored is None or part.stored.data is None:
        return None
    copied: Copied = part.stored.data
    part.records = file_ranges.take(copied.found)  # type: ignore[assignment] # not only bytes
    part.facts = copied.facts.encode()
    part.next_offset = part.stored.next_offset
    return copied.found if part.records is None else None


def read_all(parts: Iterable[tuple[ReplicatedPart, Slice]]) -> None:
    """Read the slices that `put_messages` returned, in any thread. Raises `OSError`."""
    for part, found in parts:
        part.records = found.read()


def write_state_part(part: ReplicatedPart, state: StatePart) -> None:
    """Put a part of the metadata log's stored state into an answer."""
    part.state_offset, part.state_bytes, part.state_position, part.state = state


def _pieces(data: bytes) -> list[bytes]:
    """Split the state of producers into pieces; an empty list if it is too large."""
    if len(data) > MAX_PRODUCER_STATE_PIECES * MAX_DATA_BYTES:
        return []
    return [data[at : at + MAX_DATA_BYTES] for at in range(0, len(data), MAX_DATA_BYTES)]


# At the follower: responses come in.


def take_response(response: ReplicateResponse, here: Callable[[ReplicatedPart], bool]) -> None:
    """Check a leader's answer, and decode its messages. Parts for which `here` is false are left
    out. Raises `InvalidRequest`."""
    if response.answers not in (
        Answers.WELCOME, Answers.REFUSAL, Answers.FETCHED, Answers.HANDED_OVER
    ):  # fmt: skip
        raise InvalidRequest(f"answers is {response.answers}; it must be 0, 1, 2 or 3")
    _check_owners(response.owners)
    if not all(map(here, response.parts)):
        response.parts = [part for part in response.parts if here(part)]
    for part in response.parts:
        _take_part(part)


def _take_part(part: ReplicatedPart) -> None:
    numbers = (part.log_start_offset, part.first_visible_offset, part.sync_to)
    begins = [*part.diverging, *part.epochs]
    if min(numbers) < 0 or part.high_watermark < -1 or any(not _is_begin(one) for one in begins):
        raise InvalidRequest(f"the leader sent invalid offsets for {part.topic}-{part.partition}")
    part.producer_state = b"".join(part.producers) or None
    if part.records is None:
        return
    try:
        facts = CopyFacts.decode(part.facts)
    except MalformedFacts as error:
        raise InvalidRequest(
            f"the leader sent invalid facts for {part.topic}-{part.partition}: {error}"
        ) from error
    part.stored = Stored(ReceivedSets(part.records, facts), part.next_offset, len(part.records))


def _is_begin(one: EpochBegin) -> bool:
    return one.epoch >= NO_EPOCH and 0 <= one.offset <= MAX_OFFSET


def read_state_part(part: ReplicatedPart) -> StatePart:
    """Return the part of the metadata log's stored state in an answer. Raises `InvalidRequest`."""
    numbers = (part.state_offset, part.state_bytes, part.state_position)
    if min(numbers) < 0 or max(numbers) > MAX_OFFSET:
        raise InvalidRequest(f"invalid part of the metadata log's state: {numbers}")
    return StatePart(*numbers, part.state)
