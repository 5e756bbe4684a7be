"""Reads at any replica: the policy `read_from="any"`, with the order of brokers and the largest
offsets that the client has received."""

import asyncio
import random
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Final

from ...config.address import join_address
from ...protocol.api.log.count_by_time import CountByTimeRequest
from ...protocol.api.log.fetch import FetchRequest, FetchResponse
from ...protocol.api.log.list_offsets import LATEST, ListOffsetsRequest
from ...protocol.api.schema import Api, ServedBy, replaced
from ...protocol.api.topics.describe_configs import DESCRIBE_CONFIGS
from ...protocol.api.topics.metadata import METADATA, MetadataRequest, MetadataResponse
from ...protocol.errors import NO_ERROR, CodedError, HorologError, RequestTimedOut, StorageError
from ..errors import ConnectionFailed
from .connection import ClientConnection
from .link import ClientLink, Reach
from .retry import NOT_READABLE, Send, codes_of, first_error, serve

AVOIDED_S: Final = 5.0
"""Seconds for which a broker that failed is avoided, if there is another one."""

_STAGGER_S: Final = 0.5
"""Seconds to wait for a broker to accept the client before the next broker is tried too."""

TopicPartition = tuple[str, int]

Seen = dict[TopicPartition, int]
"""Largest high watermark of each partition that a client has received."""

STALE_MS: Final = 10_000
"""A follower that has not heard from its leader for so many milliseconds may be cut off, so another
broker is asked."""

ANEW_S: Final = 300.0
"""Seconds after which a broker is chosen again at random. Without it, all clients would end at the
broker that never restarts."""

_ANYWHERE: Final = frozenset((METADATA.key, DESCRIBE_CONFIGS.key))
"""Requests about topics that every broker answers."""

_WRONG_CODES: Final = codes_of(NOT_READABLE)


class Replicas:
    """Addresses of the brokers and the order in which to try them. Shared by the connections of a
    client."""

    def __init__(self, addresses: Iterable[str], *, chance: random.Random | None = None) -> None:
        self._avoided_until = dict.fromkeys(addresses, 0.0)
        self._chance = chance or random.Random()
        self.seen: dict[TopicPartition, int] = {}
        """Largest high watermark of each partition that the client has received. Messages below it
        must not disappear because the client changes to another broker."""

    def learn(self, addresses: Iterable[str]) -> None:
        """Add addresses that a broker has named."""
        for address in addresses:
            self._avoided_until.setdefault(address, 0.0)

    def avoid(self, address: str, now_s: float) -> None:
        """Avoid a broker that failed, for `AVOIDED_S`."""
        self._avoided_until[address] = now_s + AVOIDED_S

    def has_other(self, address: str, now_s: float) -> bool:
        """Whether there is another broker that is not avoided."""
        return any(
            until <= now_s for other, until in self._avoided_until.items() if other != address
        )

    def in_order(self, now_s: float) -> list[str]:
        """Return all addresses in random order, so that many clients spread; avoided brokers come
        last."""
        addresses = list(self._avoided_until)
        self._chance.shuffle(addresses)
        return sorted(addresses, key=lambda one: max(self._avoided_until[one], now_s))


async def connect_to_first(
    addresses: Sequence[str],
    reach: Reach,
    failed: Callable[[str], None],
) -> ClientConnection:
    """Return a connection to the first of these brokers that accepts the client. A slow broker
    delays the next one by only `_STAGGER_S`; `failed` is called for each broker that does not
    accept the client.

    Raises ConnectionFailed, or a security or authentication error if that is why.
    """
    waiting = deque(addresses)
    asked: dict[asyncio.Future[ClientConnection], str] = {}
    failures: list[HorologError] = []
    try:
        while waiting or asked:
            if waiting:
                address = waiting.popleft()
                asked[asyncio.ensure_future(reach(address))] = address
            ended, _ = await asyncio.wait(
                asked,
                timeout=_STAGGER_S if waiting else None,
                return_when=asyncio.FIRST_COMPLETED,
            )
            if not ended:
                continue
            answer = ended.pop()
            address = asked.pop(answer)
            try:
                return answer.result()
            except HorologError as error:
                failed(address)
                failures.append(error)
    finally:
        await _drop(list(asked))
    for failure in failures:
        if not isinstance(failure, ConnectionFailed):
            raise failure
    reasons = "; ".join(failure.message for failure in failures)
    raise ConnectionFailed(f"no broker at {','.join(addresses)} can be reached: {reasons}")


async def _drop(asked: "list[asyncio.Future[ClientConnection]]") -> None:
    """Cancel attempts that are no longer needed, and close their connections."""
    for answer in asked:
        answer.cancel()
    for result in await asyncio.gather(*asked, return_exceptions=True):
        if isinstance(result, ClientConnection):
            result.abort()


class ReplicaReads:
    """Sends requests that a follower may answer to a chosen broker.

    The client leaves a broker that cannot be read from, or that is behind what the client has seen.
    """

    def __init__(self, addresses: Sequence[str], reach: Reach, *, request_timeout_ms: int) -> None:
        self.replicas = Replicas(addresses)
        self._reach = reach
        self._request_timeout_ms = request_timeout_ms

    async def find(self) -> ClientConnection:
        """Return a connection to the first broker, in the order of `replicas`, that accepts the
        client. Raises the errors of `connect_to_first`."""
        loop = asyncio.get_running_loop()

        def failed(address: str) -> None:
            self.replicas.avoid(address, loop.time())

        order = self.replicas.in_order(loop.time())
        return await connect_to_first(order, self._connect_and_learn, failed)

    def serves(self, api: Api) -> bool:
        """Whether this is a read, which a follower may answer."""
        return api.served_by is ServedBy.LEADER_OR_FOLLOWER

    async def ask(
        self, link: ClientLink, api: Api, body: Any, send: Send, wait_ms: int
    ) -> Any | None:
        """Return the answer of the broker that `link` has chosen; None if the leader is to be
        asked."""
        if api.key in _ANYWHERE:
            return await self._ask_any(link, api, body, send)
        if not self.serves(api):
            return None
        choose_anew(link)
        asked: Any = body

        async def attempt(connection: ClientConnection) -> Any:
            nonlocal asked
            asked = allowing_follower(body, self.replicas.seen)
            try:
                answer = await send(connection, asked)
            except (ConnectionFailed, RequestTimedOut):
                self.replicas.avoid(connection.address, asyncio.get_running_loop().time())
                raise
            if _failure_in(answer) is None:
                self._note(link, connection, asked, answer, wait_ms)
            return answer

        return await self._served(link, api, attempt)

    def submit_if_ready(
        self, link: ClientLink, api: Api, body: object
    ) -> "asyncio.Future[Any] | None":
        """Send a read if the chosen broker accepts it now; None if it would have to wait."""
        asked = allowing_follower(body, self.replicas.seen)
        connection = link.current
        answer = link.submit_if_ready(api, asked)
        if answer is not None and connection is not None:
            answer.add_done_callback(partial(self._look, link, connection, asked))
        return answer

    async def _connect_and_learn(self, address: str) -> ClientConnection:
        """Connect to a broker and learn the addresses of the other brokers from it."""
        connection = await self._reach(address)
        try:
            response: MetadataResponse = await connection.submit(
                METADATA, MetadataRequest(topics=[], allow_auto_topic_creation=False)
            )
        except BaseException as error:
            connection.abort()
            if isinstance(error, RequestTimedOut):
                raise ConnectionFailed(error.message) from None
            raise
        others = [one for one in response.brokers if one.node_id != response.node_id]
        self.replicas.learn(join_address(one.host, one.port) for one in others)
        return connection

    async def _ask_any(self, link: ClientLink, api: Api, body: Any, send: Send) -> Any | None:
        """Ask the chosen broker about topics. Returns None if that broker does not know a topic, or
        if a topic may have to be created."""
        if getattr(body, "allow_auto_topic_creation", False):
            return None
        answer = await self._served(link, api, lambda connection: send(connection, body))
        found = answer.topics if api is METADATA else answer.results
        return answer if all(one.error_code == NO_ERROR for one in found) else None

    async def _served(
        self, link: ClientLink, api: Api, send: Callable[[ClientConnection], Awaitable[Any]]
    ) -> Any:
        async def ask(connection: ClientConnection) -> Any:
            try:
                return await send(connection)
            except NOT_READABLE as error:
                return error

        answer = await serve(
            api,
            ask,
            connection=link.connection,
            not_yet=(ConnectionFailed,),
            lost=lambda: None,
            moved=partial(self._moved, link),
            timeout_ms=self._request_timeout_ms,
        )
        if isinstance(answer, CodedError):
            raise answer
        return answer

    def _moved(
        self, link: ClientLink, connection: ClientConnection, answer: object
    ) -> CodedError | None:
        """Return the error for which the broker is left; None if no broker can do better."""
        failure = _failure_in(answer)
        now_s = asyncio.get_running_loop().time()
        if isinstance(failure, StorageError) and not self.replicas.has_other(
            connection.address, now_s
        ):
            return None  # no broker can read it
        if failure is not None:
            self._leave(link, connection)
        return failure

    def _leave(self, link: ClientLink, connection: ClientConnection) -> None:
        self.replicas.avoid(connection.address, asyncio.get_running_loop().time())
        link.leave(connection)

    def _note(
        self, link: ClientLink, connection: ClientConnection, asked: Any, answer: Any, wait_ms: int
    ) -> None:
        """Record the end offsets in an answer, and leave a broker that lags.

        A broker lags if a fetch waited there and returned no messages, and the broker is behind
        what the client has seen or has not heard from its leader for `STALE_MS`.
        """
        behind = note_ends(asked, answer, self.replicas.seen)
        if not (isinstance(answer, FetchResponse) and wait_ms and answer.follower_heard_ms >= 0):
            return
        if any(one.records for topic in answer.topics for one in topic.partitions):
            return
        lags = behind or answer.follower_heard_ms >= STALE_MS
        now_s = asyncio.get_running_loop().time()
        if lags and self.replicas.has_other(connection.address, now_s):
            self._leave(link, connection)

    def _look(
        self,
        link: ClientLink,
        connection: ClientConnection,
        asked: Any,
        answer: "asyncio.Future[Any]",
    ) -> None:
        if answer.cancelled():
            return
        found = answer.exception() or answer.result()
        self._moved(link, connection, found)
        if not isinstance(found, BaseException) and _failure_in(found) is None:
            note_ends(asked, found, self.replicas.seen)


def choose_anew(link: ClientLink) -> None:
    """Leave the broker if it was chosen `ANEW_S` ago or longer, so that the next request chooses
    again."""
    if asyncio.get_running_loop().time() - link.opened_s >= ANEW_S:
        link.leave(link.current)


def _failure_in(answer: object) -> CodedError | None:
    """Return the error in an answer after which another broker is asked; None if there is none."""
    if isinstance(answer, BaseException):
        return answer if isinstance(answer, NOT_READABLE) else None
    return first_error(answer, _WRONG_CODES)


def allowing_follower(body: Any, seen: Seen) -> Any:
    """Return a copy of a read request that a follower may answer if the follower has everything
    that the client has seen."""
    if isinstance(body, CountByTimeRequest):
        seen_offset = seen.get((body.topic, body.partition), -1)
        return replaced(body, allow_follower=True, seen_offset=seen_offset)
    if isinstance(body, ListOffsetsRequest):
        topics = [
            replaced(
                topic,
                partitions=[
                    replaced(one, seen_offset=seen.get((topic.name, one.partition), -1))
                    for one in topic.partitions
                ],
            )
            for topic in body.topics
        ]
        return replaced(body, allow_follower=True, topics=topics)
    assert isinstance(body, FetchRequest)
    return replaced(body, allow_follower=True)


def note_ends(body: Any, answer: Any, seen: Seen) -> bool:
    """Record the high watermarks of an answer. Returns whether the answer comes from a follower
    that is behind what the client has seen. The leader's watermark is recorded even if it is
    lower."""
    from_leader = answer.follower_heard_ms < 0
    behind = False
    for key, offset in _ends(body, answer):
        known = seen.get(key, -1)
        behind = behind or (offset < known and not from_leader)
        seen[key] = offset if from_leader else max(offset, known)
    return behind


def _ends(body: Any, answer: Any) -> Iterator[tuple[TopicPartition, int]]:
    if isinstance(body, CountByTimeRequest):
        if answer.error_code == NO_ERROR and body.end_offset < 0:
            yield (body.topic, body.partition), answer.end_offset
        return
    targets = {}
    if isinstance(body, ListOffsetsRequest):
        targets = {
            (topic.name, one.partition): one.timestamp
            for topic in body.topics
            for one in topic.partitions
        }
    for topic in answer.topics:
        for one in topic.partitions:
            key = topic.name, one.partition
            if one.error_code != NO_ERROR:
                continue
            if not targets:
                yield key, one.high_watermark
            elif targets.get(key) == LATEST:
                yield key, one.offset
