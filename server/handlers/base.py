"""What every handler is given, and the ways in which it can answer."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from ...clock import Clock
from ...config.broker import BrokerSettings
from ...protocol.api.pieces import Pieces
from ...storage.directory.log_directory import LogDirectory
from ...storage.log.flush import GroupCommit
from ...values import value_class
from ..conversions import Conversions
from ..creations import Creations
from ..deferrals import Deferrals
from ..groups.service import GroupService
from ..late_appends import LateAppends
from ..logs import Logs
from ..metadata_store import MetadataStore
from ..metrics.figures import Figures
from ..metrics.lags import Lags
from ..outcomes import Outcomes
from ..parking import ParkingLot
from ..requests import PendingAnswer
from ..scrubbing import Scrubber
from ..security.service import Security
from ..security.session import ANONYMOUS, Session
from ..time_maps import TimeMaps
from ..trusted_time import TrustedTime
from ..work import Work

if TYPE_CHECKING:
    from ..replication.cluster import Cluster

R = TypeVar("R")


@value_class
class Services:
    """The broker as handlers see it."""

    settings: BrokerSettings
    directory: LogDirectory
    logs: Logs
    metadata: MetadataStore
    creations: Creations
    lags: Lags
    groups: GroupService
    clock: Clock
    trusted_time: TrustedTime
    """Tells what time it is for retention."""
    figures: Figures
    outcomes: Outcomes
    fetches: ParkingLot
    produces: ParkingLot
    commits: GroupCommit
    work: Work
    deferrals: Deferrals
    late_appends: LateAppends
    conversions: Conversions
    time_maps: TimeMaps
    kafka_address: str | None
    """Where the port for Kafka's clients is, if it is open."""
    security: Security
    scrubber: Scrubber
    rolled: Callable[[str, int], None]
    """Called with a partition that rolled: its retention is looked at soon."""
    cluster: "Cluster | None" = None
    """The cluster that the broker is one of; `None` for one that is alone."""


@value_class
class Call:
    """What a request brings along beside its body."""

    version: int
    local_address: tuple[str, int]
    """The broker's address as this client reached it."""
    kafka: bool = False
    """Whether it came in Kafka's encoding."""
    client_id: str | None = None
    """What the client calls itself."""
    client_host: str = ""
    """Where the client is."""
    session: Session | None = None
    """The connection's login; `None` where logins are not asked for."""

    @property
    def principal(self) -> str:
        """Who asks."""
        return ANONYMOUS if self.session is None else self.session.principal


def then(outcome: Any, change: Callable[[Any], Any]) -> Any:
    """What `change` makes of the response, once there is one."""
    if not isinstance(outcome, PendingAnswer):
        return change(outcome)
    return PendingAnswer(
        outcome.ready,
        lambda: then(outcome.make(), change),
        outcome.may_hurry,
        outcome.alone,
        outcome.held_bytes,
        outcome.turns,
    )


def in_turns(services: Services, pieces: Pieces[R]) -> R | PendingAnswer:
    """What a handler that works in pieces returns: at once where that takes one turn, else later,
    in turns with other requests.

    No request behind it on its connection is handled before it is made: it could overtake this one,
    and take turns beside it.
    """
    turns = services.work.turns()
    try:
        next(pieces)
        while not turns.over:
            next(pieces)
    except StopIteration as end:
        found: R = end.value
        return found
    turns.end()
    task = services.work.start_pieces(pieces, turns)
    return PendingAnswer(task, task.result, alone=True, turns=turns)


class Handler(Protocol):
    """Answers one kind of request: a response, a `PendingAnswer`, or `None` for no answer.

    Raises `CodedError` for a request that is refused as a whole; what concerns one topic or
    partition is in the response.
    """

    def __call__(self, services: Services, request: Any, call: Call, /) -> Any: ...


class HandlerOfMany(Protocol):
    """Answers requests of one kind and version that arrived together.

    For each there is what its handler would have returned, or the exception it would have raised;
    behind a `CloseConnection` there may be nothing.
    """

    def __call__(
        self, services: Services, version: int, requests: Sequence[Any], /
    ) -> Sequence[Any]: ...


def each_alone(answer: Callable[[Services, Any, int], Any]) -> HandlerOfMany:
    """The handler of many requests that gain nothing by it: `answer` gives the response of one, of
    a version, or raises."""

    def handle_many(services: Services, version: int, requests: Sequence[Any]) -> list[Any]:
        outcomes: list[Any] = []
        for request in requests:
            try:
                outcomes.append(answer(services, request, version))
            except Exception as error:
                outcomes.append(error)
        return outcomes

    return handle_many


def list_of_one(handle_many: HandlerOfMany) -> Handler:
    """The handler of one request of those that are handled as lists."""

    def handle(services: Services, request: Any, call: Call) -> Any:
        (outcome,) = handle_many(services, call.version, (request,))
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    return handle
