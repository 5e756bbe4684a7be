"""Makes the groups of a broker, and removes positions of groups that are no longer used."""

import asyncio
from typing import Final

from ...clock import Clock
from ...config.broker import BrokerSettings
from ...protocol.errors import CodedError, NotCoordinator
from ...storage.directory.position_reading import PositionReading
from ...storage.events import Observer
from ..maintenance import Maintenance
from ..metadata_store import MetadataStore
from ..trusted_time import TrustedTime
from ..work import Work
from .coordinator import Coordinator
from .service import GroupService

MINUTE_MS: Final = 60_000

USES_IN_RETENTION: Final = 10
"""How often within the retention time the broker records that a group has members. After a crash
positions may therefore expire a tenth too early; recording each heartbeat would cost a write
each."""


class OffsetRetention:
    """Task that removes expired positions.

    Nothing is removed before the broker has run for the longest session timeout. By then, the
    members that it had before a restart have returned or are lost.
    """

    def __init__(
        self,
        positions: PositionReading,
        metadata: MetadataStore,
        coordinator: Coordinator,
        work: Work,
        clock: Clock,
        observe: Observer,
        *,
        retention_minutes: int,
        settle_ms: int,
    ) -> None:
        self._positions = positions
        self._metadata = metadata
        self._coordinator = coordinator
        self._work = work
        self._clock = clock
        self._observe = observe
        self._retention_ms = retention_minutes * MINUTE_MS
        self._began = clock.monotonic()
        self._settle_seconds = settle_ms / 1000

    def begin(self) -> None:
        """Restart the waiting time, because this broker became the coordinator and members have to
        find it."""
        self._began = self._clock.monotonic()

    async def run(self, now_ms: int) -> None:
        """Check every name that has positions, if this broker is the coordinator.

        Raises `StorageError`.
        """
        try:
            self._metadata.check_coordinates()
        except NotCoordinator:
            return
        names = await self._work.in_storage_thread(self._positions.names)
        settled = self._clock.monotonic() - self._began >= self._settle_seconds
        turns = self._work.turns()
        for name in names:
            expires_ms = self._positions.expires_ms(name, self._retention_ms)
            if expires_ms is not None:
                if self._has_members(name):
                    last_ms = self._positions.last_used_ms(name)
                    if now_ms - last_ms >= self._retention_ms // USES_IN_RETENTION:
                        await self._used(name, now_ms)
                elif expires_ms <= now_ms and settled:
                    await self._forget(name, now_ms)
            await turns.give_way()

    def emptied(self, name: str, now_ms: int) -> None:
        """Record the use of a group whose last member has left: its retention time starts now."""
        if self._positions.has(name):
            self._work.start(self._try_to_note(name, now_ms))

    async def _try_to_note(self, name: str, now_ms: int) -> None:
        try:
            await self._used(name, now_ms)
        except CodedError as error:
            self._observe("group_use_failed", group=name, error=error)

    def _has_members(self, name: str) -> bool:
        group = self._coordinator.groups.get(name)
        return group is not None and len(group.members) > 0

    async def _used(self, name: str, now_ms: int) -> None:
        await self._metadata.used(name, now_ms)

    async def _forget(self, name: str, now_ms: int) -> None:
        count = await self._metadata.expire(name, self._retention_ms, now_ms)
        if count:
            self._observe("group_positions_expired", group=name, positions=count)


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
    """Return a group service whose deadlines follow `clock`, and register the task that removes
    expired positions.

    Retention of positions uses the broker's trusted time, as retention of messages does.
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
