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
from ..security.service import SecurityService
from ..security.session import ANONYMOUS, LoginSession
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
    """The clock of retention."""
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
    """The address of the port for Kafka's clients, if it is open."""
    security: SecurityService
    scrubber: Scrubber
    rolled: Callable[[str, int], None]
    """Called with a partition that rolled: retention checks it soon."""
    cluster: "Cluster | None" = None
    """The cluster of the broker; `None` for a single broker."""


@value_class
class Call:
    """The request as it came: its version and encoding, and its client."""

    version: int
    local_address: tuple[str, int]
    """The broker's address as the client reached it."""
    kafka: bool = False
    """Whether it came in Kafka's encoding."""
    client_id: str | None = None
    """The client's own name for itself."""
    client_host: str = ""
    """The client's address."""
    session: LoginSession | None = None
    """The connection's login; `None` if the listener needs none."""

    @property
    def principal(self) -> str:
        """The principal of the client."""
        return ANONYMOUS if self.session is None else self.session.principal


def then(outcome: Any, change: Callable[[Any], Any]) -> Any:
    """`outcome` with `change` applied to its response, at once or when that is made."""
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
    """The answer of a handler that works in pieces: at once if one turn is enough, otherwise
    pending, in turns with other requests.

    Later requests of its connection wait until it is made: they could overtake it.
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

    Returns for each what its handler would return, or the exception that it would raise; requests
    behind a `CloseConnection` may have no outcome.
    """

    def __call__(
        self, services: Services, version: int, requests: Sequence[Any], /
    ) -> Sequence[Any]: ...


def each_alone(answer: Callable[[Services, Any, int], Any]) -> HandlerOfMany:
    """A handler of many that handles each request by itself: `answer` returns the outcome of one
    request of a version, or raises."""

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
    """The handler of one request, made of a handler of many."""

    def handle(services: Services, request: Any, call: Call) -> Any:
        (outcome,) = handle_many(services, call.version, (request,))
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    return handle
