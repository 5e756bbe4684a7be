"""The services that every handler gets, and the operations that a client may do on a resource."""

from collections.abc import Callable, Iterable

from ...clock import Clock
from ...config.broker import BrokerSettings
from ...protocol.api.rights import bits
from ...protocol.api.security.acl_terms import Operation, ResourceType
from ...storage.directory.log_directory import LogDirectory
from ...storage.log.flush import GroupCommit
from ...values import value_class
from ..completeness import Completeness
from ..conversions import Conversions
from ..groups.service import GroupService
from ..late_appends import LateAppends
from ..logs import Logs
from ..metadata_store import MetadataStore
from ..metrics.figures import Figures
from ..metrics.lags import Lags
from ..outcomes import Outcomes
from ..parking import ParkingLot
from ..replication.service import Replication
from ..requests import Call
from ..scrubbing import Scrubber
from ..security.service import SecurityService
from ..topic_creation import Creations
from ..trusted_time import TrustedTime
from ..work import Deferrals, TimeMaps, Work


@value_class
class Services:
    """The parts of a broker that handlers use."""

    settings: BrokerSettings
    directory: LogDirectory
    logs: Logs
    metadata: MetadataStore
    completeness: Completeness
    creations: Creations
    lags: Lags
    groups: GroupService
    clock: Clock
    trusted_time: TrustedTime
    """The clock that retention uses."""
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
    replication: Replication
    """The broker's place in its cluster."""


def allowed_bits(
    services: Services,
    call: Call,
    kind: ResourceType,
    name: str,
    operations: Iterable[Operation],
) -> int:
    """Return, as bits, which of `operations` the client of a request may do on a resource; without
    authorization, all of them."""
    if not services.security.authorization:
        return bits(operations)
    rights = services.security.authorizer.rights(call.principal, call.client_host)
    return bits(each for each in operations if rights.may(each, kind, name))
