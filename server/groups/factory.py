"""The groups of a broker, put together with what they need of it."""

import asyncio

from ...clock import Clock
from ...config.broker import BrokerSettings
from ...storage.directory.position_reading import PositionReading
from ...storage.events import Observer
from ..maintenance import Maintenance
from ..metadata_store import MetadataStore
from ..trusted_time import TrustedTime
from ..work import Work
from .offset_retention import OffsetRetention
from .service import GroupService


def set_up_groups(
    loop: asyncio.AbstractEventLoop,
    settings: BrokerSettings,
    *,
    positions: PositionReading,
    metadata: MetadataStore,
    work: Work,
    clock: Clock,
    trusted_time: TrustedTime,
    maintenance: Maintenance,
    observe: Observer,
) -> GroupService:
    """A group service whose deadlines follow `clock`, and the task that forgets expired positions.

    Retention goes by the time that the broker trusts, as that of messages.
    """
    service = GroupService(
        loop,
        settings,
        clock,
        observe,
        emptied=lambda name: retention.emptied(name, trusted_time.now_ms()),
    )
    retention = OffsetRetention(
        positions,
        metadata,
        service.coordinator,
        work,
        clock,
        observe,
        retention_minutes=settings.offsets_retention_minutes,
        settle_ms=settings.group_max_session_timeout_ms,
    )

    def begin() -> None:
        service.begin()
        retention.begin()

    service.taken_over = begin
    maintenance.add(
        "offset_retention",
        lambda: retention.run(trusted_time.now_ms()),
        settings.offsets_retention_check_interval_ms,
    )
    maintenance.when_clock_moves.append(service.look)
    return service
