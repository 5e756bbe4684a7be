"""Several Horolog brokers with the same topics, any of which is read from: the brokers and what was
seen there, and the requests that a follower may answer."""

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
from ..security.security import Security
from .cluster import ClusterConnections
from .connection import ClientConnection
from .serving import NOT_READABLE, codes_of, submit_or_drop
from .several_brokers import SeveralBrokers
from .targets import Some, Target

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

_Send = Callable[[ClientConnection, Any], Awaitable[Any]]
"""Sends one request over the given connection."""


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
    reach: Callable[[str], Awaitable[ClientConnection]],
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


class AnyReplica(SeveralBrokers):
    """One connection to a chosen broker for requests that a follower may answer, and one to the
    leader for all others.

    The client leaves a broker that cannot be read from, or that is behind what the client has seen.
    """

    wrong_broker = NOT_READABLE
    wrong_codes = codes_of(NOT_READABLE)

    def __init__(
        self,
        addresses: Sequence[str],
        *,
        client_id: str | None,
        request_timeout_ms: int,
        security: Security | None = None,
        replicas: Replicas | None = None,
    ) -> None:
        super().__init__(
            addresses,
            client_id=client_id,
            request_timeout_ms=request_timeout_ms,
            security=security,
        )
        self._replicas = replicas or Replicas(self._addresses)
        self._leader = SeveralBrokers(
            addresses,
            client_id=client_id,
            request_timeout_ms=request_timeout_ms,
            security=security,
        )
        self._chosen_s = 0.0

    async def request(
        self, api: Api, body: object, *, to: Target = Some.ANY, wait_ms: int = 0
    ) -> Any:
        def send(connection: ClientConnection, asked: Any) -> Awaitable[Any]:
            return connection.submit(api, asked, wait_ms=wait_ms)

        if api.key in _ANYWHERE:
            return await self._ask_any(api, body, send)
        if api.served_by is not ServedBy.LEADER_OR_FOLLOWER:
            return await self._leader.request(api, body, to=to, wait_ms=wait_ms)
        return await self._read(api, body, send, wait_ms)

    async def request_or_drop(
        self, api: Api, body: object, *, to: Target = Some.ANY, wait_ms: int = 0
    ) -> Any:
        def send(connection: ClientConnection, asked: Any) -> Awaitable[Any]:
            return submit_or_drop(connection, api=api, body=asked, wait_ms=wait_ms)

        if api.key in _ANYWHERE:
            return await self._ask_any(api, body, send)
        if api.served_by is not ServedBy.LEADER_OR_FOLLOWER:
            return await self._leader.request_or_drop(api, body, to=to, wait_ms=wait_ms)
        return await self._read(api, body, send, wait_ms)

    async def request_once(self, api: Api, body: object, *, to: Target, wait_ms: int = 0) -> Any:
        return await self._leader.request_once(api, body, to=to, wait_ms=wait_ms)

    async def request_all(
        self, api: Api, bodies: Sequence[object], *, to: Target = Some.ANY
    ) -> list[Any]:
        if api.served_by is not ServedBy.LEADER_OR_FOLLOWER:
            return await self._leader.request_all(api, bodies, to=to)
        # In turn, because each request depends on the offsets seen in the answers before it.
        return [await self.request(api, body, to=to) for body in bodies]

    async def send_unanswered(self, api: Api, body: object, *, to: Target) -> None:
        await self._leader.send_unanswered(api, body, to=to)

    def submit_if_ready(self, api: Api, body: object) -> "asyncio.Future[Any] | None":
        asked = allowing_follower(body, self._replicas.seen)
        answer = super().submit_if_ready(api, asked)
        if answer is not None:
            answer.add_done_callback(partial(self._note_later, asked))
        return answer

    def beside(self) -> ClusterConnections:
        return AnyReplica(
            self._addresses,
            client_id=self._client_id,
            request_timeout_ms=self._request_timeout_ms,
            security=self._security,
            replicas=self._replicas,
        )

    async def close(self) -> None:
        await self._leader.close()
        await super().close()

    # Choosing a broker.

    async def _reach(self) -> ClientConnection:
        loop = asyncio.get_running_loop()

        def failed(address: str) -> None:
            self._replicas.avoid(address, loop.time())

        self._chosen_s = loop.time()
        return await connect_to_first(
            self._replicas.in_order(loop.time()), self._connect_and_learn, failed
        )

    async def _connect_and_learn(self, address: str) -> ClientConnection:
        """Connect to a broker and learn the addresses of the other brokers from it."""
        connection = await self._connect_to(address)
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
        self._replicas.learn(join_address(one.host, one.port) for one in others)
        return connection

    def _leave(self, connection: ClientConnection) -> None:
        self._replicas.avoid(connection.address, asyncio.get_running_loop().time())
        super()._leave(connection)

    def _choose_anew(self) -> None:
        """Leave the broker if it was chosen `ANEW_S` ago or longer, so that the next request
        chooses again."""
        connection, now_s = self._connection, asyncio.get_running_loop().time()
        if connection is not None and now_s - self._chosen_s >= ANEW_S:
            super()._leave(connection)

    # Reading.

    async def _ask_any(self, api: Api, body: Any, send: _Send) -> Any:
        """Ask the chosen broker about topics. The leader is asked if that broker does not know a
        topic, or if a topic may have to be created."""
        if not getattr(body, "allow_auto_topic_creation", False):
            answer = await self._served(api, lambda connection: send(connection, body))
            found = answer.topics if api is METADATA else answer.results
            if all(one.error_code == NO_ERROR for one in found):
                return answer
        return await self._leader.request(api, body)

    async def _read(self, api: Api, body: object, send: _Send, wait_ms: int) -> Any:
        self._choose_anew()
        asked: Any = body

        async def attempt(connection: ClientConnection) -> Any:
            nonlocal asked
            asked = allowing_follower(body, self._replicas.seen)
            try:
                answer = await send(connection, asked)
            except (ConnectionFailed, RequestTimedOut):
                self._replicas.avoid(connection.address, asyncio.get_running_loop().time())
                raise
            if not self._is_wrong(answer):
                self._note(connection, asked, answer, wait_ms)
            return answer

        return await self._served(api, attempt)

    def _moved(self, connection: ClientConnection, answer: object) -> CodedError | None:
        failure = self._failure_in(answer)
        now_s = asyncio.get_running_loop().time()
        if isinstance(failure, StorageError) and not self._replicas.has_other(
            connection.address, now_s
        ):
            return None  # no broker can read it
        return super()._moved(connection, answer)

    def _is_wrong(self, answer: Any) -> bool:
        return isinstance(answer, CodedError) or self._failure_in(answer) is not None

    def _note(self, connection: ClientConnection, asked: Any, answer: Any, wait_ms: int) -> None:
        """Record the end offsets in an answer, and leave a broker that lags.

        A broker lags if a fetch waited there and returned no messages, and the broker is behind
        what the client has seen or has not heard from its leader for `STALE_MS`.
        """
        behind = note_ends(asked, answer, self._replicas.seen)
        if not (isinstance(answer, FetchResponse) and wait_ms and answer.follower_heard_ms >= 0):
            return
        if any(one.records for topic in answer.topics for one in topic.partitions):
            return
        lags = behind or answer.follower_heard_ms >= STALE_MS
        now_s = asyncio.get_running_loop().time()
        if lags and self._replicas.has_other(connection.address, now_s):
            self._leave(connection)

    def _note_later(self, asked: Any, answer: "asyncio.Future[Any]") -> None:
        if answer.exception() is None and not self._is_wrong(answer.result()):
            note_ends(asked, answer.result(), self._replicas.seen)


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
