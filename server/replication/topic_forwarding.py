"""Creation of topics that a follower forwards to its leader: clients of Kafka's protocol ask any
broker for a topic's metadata, and expect that a missing topic is created."""

import asyncio
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from itertools import islice
from typing import Any, Final

from ...protocol.api.cluster.replicate import (
    REPLICATE,
    Answers,
    ReplicateRequest,
    ReplicateResponse,
    Says,
    TopicNotMade,
)
from ...protocol.api.topics.metadata import MetadataRequest
from ...protocol.errors import (
    HorologError,
    InvalidTopic,
    LeaderNotAvailable,
    UnknownTopicOrPartition,
    error_from_code,
)
from ...storage.names import check_topic_name
from ..handlers.base import Services
from ..requests import Call, PendingAnswer
from ..window_topics import is_reserved
from .member import ClusterMember
from .replica_fetcher import AcceptsFollower, ReplicaFetcher
from .replica_states import ReplicaStates

ASK_WITHIN_MS: Final = 10_000
"""How long the leader may take to answer. After that clients are told to ask again, and then find
topics that were created later."""

ASKED_AT_ONCE: Final = 1000
"""The most topics in one request to the leader; this many names are not a large request."""

HERE_WITHIN_S: Final = 2.0
"""How long a follower waits for topics that the leader has created, before the client is told to
ask again."""


class ForwardedTopicCreation:
    """Asks the leader to create topics. Topics that are wanted at the same time go in one request,
    and requests go one after another, so that any number of clients takes one connection."""

    def __init__(
        self, member: ClusterMember, fetcher: ReplicaFetcher, states: ReplicaStates
    ) -> None:
        self._member = member
        self._fetcher = fetcher
        self._states = states
        self._wanted: dict[str, asyncio.Future[Exception | None]] = {}
        """Topics of the next request to the leader, with the waits for their outcome."""
        self._under_way: dict[str, asyncio.Future[Exception | None]] = {}
        self._asking: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()

    def topics_changed(self) -> None:
        """Check again for created topics, because topics changed here."""
        self._changed.set()

    def missing(self, services: Services, request: MetadataRequest, call: Call) -> Collection[str]:
        """Return the missing topics of a metadata request that the leader has to create, each once.

        Empty for clients of the native protocol, which ask the leader themselves.
        """
        if not (call.kafka and request.allow_auto_topic_creation and request.topics):
            return ()
        if not services.settings.auto_create_topics_enable:
            return ()
        there = self._member.directory.topics()
        return dict.fromkeys(
            topic.name
            for topic in request.topics
            if topic.name not in there and not is_reserved(there, topic.name)
        )

    async def make(self, topics: Collection[str]) -> Mapping[str, Exception]:
        """Have the leader create topics, and wait until they exist here. Returns the error of each
        topic for which that failed."""
        outcomes: dict[str, Exception | None] = {}
        waits = {}
        for topic in topics:
            try:
                check_topic_name(topic)
                waits[topic] = self._wait_for(topic)
            except InvalidTopic as error:
                outcomes[topic] = error
        if waits:
            await asyncio.wait(waits.values())
        outcomes |= {topic: wait.result() for topic, wait in waits.items()}
        return {topic: error for topic, error in outcomes.items() if error is not None}

    def _wait_for(self, topic: str) -> "asyncio.Future[Exception | None]":
        wait = self._under_way.get(topic) or self._wanted.get(topic)
        if wait is None:
            wait = self._wanted[topic] = asyncio.get_running_loop().create_future()
        if self._asking is None:
            self._asking = self._member.start_work(self._ask_for_all())
        return wait

    async def _ask_for_all(self) -> None:
        try:
            while self._wanted:
                asked = list(islice(self._wanted, ASKED_AT_ONCE))
                self._under_way = {topic: self._wanted.pop(topic) for topic in asked}
                outcomes = await self._outcomes(self._under_way)
                for topic, wait in self._under_way.items():
                    wait.set_result(outcomes.get(topic))
        finally:
            self._asking = None
            self._under_way = {}

    async def _outcomes(self, topics: Collection[str]) -> Mapping[str, Exception]:
        """Ask the leader for topics, and return the error of each topic that failed."""
        try:
            failed = await self._asked(topics)
        except Exception as error:  # Any error: clients must not wait forever.
            text = error.message if isinstance(error, HorologError) else str(error)
            late = LeaderNotAvailable(
                f"{self._states.leader_hint}, and it could not be asked for the topic: {text}"
            )
            return dict.fromkeys(topics, late)
        made = [topic for topic in topics if topic not in failed]
        await self._here(made)
        late = LeaderNotAvailable("the leader has made the topic, and it is not here yet")
        there = self._member.directory.topics()
        return failed | {topic: late for topic in made if topic not in there}

    async def _asked(self, topics: Collection[str]) -> dict[str, Exception]:
        """Send a request to the leader, and return the errors in its answer. Raises the errors of
        the connection."""
        member = self._member
        address = self._fetcher.address
        if member.node.follower is None or not address or self._states.leader_is_silent:
            raise LeaderNotAvailable("no leader is known that answers")
        accepts = AcceptsFollower(member.settings.cluster_credentials, member.settings.cluster_ca)
        connection = await accepts.connect(address, ASK_WITHIN_MS)
        request = ReplicateRequest(says=Says.MAKE, connection=0, topics=list(topics))
        try:
            response: ReplicateResponse = await connection.submit(REPLICATE, request)
        finally:
            connection.abort()
        return {
            topic.name: error_from_code(topic.error_code, topic.error_message)
            for topic in response.not_made
        }

    async def _here(self, topics: Iterable[str]) -> None:
        """Wait until the topics exist here, for `HERE_WITHIN_S` at most."""
        there, wanted = self._member.directory.topics, set(topics)
        with suppress(TimeoutError):
            async with asyncio.timeout(HERE_WITHIN_S):
                while not wanted <= there().keys():
                    self._changed.clear()
                    await self._changed.wait()

    # At the leader.

    def make_for_others(
        self, services: Services, request: ReplicateRequest
    ) -> ReplicateResponse | PendingAnswer:
        """At the leader: create the topics that a follower's clients have asked for."""
        missing = services.creations.missing(request.topics)
        if not missing:
            return self._made(services, request, {})
        creating = services.creations.make(missing)
        return PendingAnswer(
            creating.ready, lambda: self._made(services, request, creating.failures())
        )

    def _made(
        self, services: Services, request: ReplicateRequest, failures: Mapping[str, Exception]
    ) -> ReplicateResponse:
        there = self._member.directory.topics()
        not_made = []
        for topic in request.topics:
            if topic not in there:
                failure = failures.get(topic) or UnknownTopicOrPartition(
                    f"there is no topic {topic!r}, and none is made at the leader "
                    "(auto.create.topics.enable)"
                )
                code, message = services.outcomes.of(failure, api="metadata")
                not_made.append(TopicNotMade(name=topic, error_code=code, error_message=message))
        member = self._member
        return ReplicateResponse(
            answers=Answers.MADE,
            epoch=member.epoch,
            broker_id=member.broker_id,
            not_made=not_made,
        )


def with_failures(response: Any, failures: Mapping[str, Exception], services: Services) -> Any:
    """Add to a follower's answer why topics could not be created."""
    for topic in response.topics:
        failure = failures.get(topic.name)
        if failure is not None and topic.error_code == UnknownTopicOrPartition.code:
            outcome = services.outcomes.of(failure, api="metadata")
            topic.error_code, topic.error_message = outcome
    return response
