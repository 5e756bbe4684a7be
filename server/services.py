"""What requests are handled with: made, and put together, for one broker."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from random import Random

from ..clock import Clock
from ..config.broker import BrokerSettings
from ..storage.directory.log_directory import LogDirectory
from ..storage.events import Observer
from ..storage.files import Files
from ..storage.log.flush import GroupCommit
from .conversions import Conversions
from .creations import Creations
from .deferrals import Deferrals
from .groups.factory import set_up_groups
from .handlers.base import Services
from .late_appends import LateAppends
from .logs import Logs
from .maintenance import Maintenance
from .metadata_store import MetadataStore
from .metrics.figures import Figures
from .metrics.lags import Lags
from .outcomes import Outcomes
from .parking import ParkingLot
from .scrubbing import SCRUB_INTERVAL_MS, Scrubber
from .security.service import SecurityService
from .single_node import SingleNode, SingleNodeLeadership
from .time_maps import TimeMaps
from .trusted_time import TrustedTime
from .work import Work

MAX_PARKED_FETCHES = 10_000
"""Fetches that wait at one time. Each holds a timer and its request; a client whose fetch finds
no place is answered at once, with what there is."""

MAX_PARKED_PARTITIONS = 500_000
"""Partitions that waiting fetches name, all together: about 500 bytes each."""


def make_services(
    settings: BrokerSettings,
    cleanups: AsyncExitStack,
    *,
    directory: LogDirectory,
    files: Files,
    security: SecurityService,
    clock: Clock,
    trusted_time: TrustedTime,
    figures: Figures,
    observe: Observer,
    kafka_address: str | None,
) -> tuple[Services, Maintenance]:
    """The services of a broker that is alone, and what maintains its logs, which is not started.

    `cleanups` gets what ends them.
    """
    loop = asyncio.get_running_loop()
    work = Work(loop)
    cleanups.callback(lambda: scrubber.close())
    cleanups.callback(lambda: metadata.settle_all())
    cleanups.push_async_callback(work.stop)
    commits = _group_commit(loop, clock, figures, lambda: maintenance.note_sync(), cleanups)
    fetches = ParkingLot(loop, MAX_PARKED_FETCHES, MAX_PARKED_PARTITIONS)
    produces = ParkingLot(loop)
    logs = Logs(directory, settings, work, (fetches, produces))
    maintenance = Maintenance(
        settings,
        directory=directory,
        logs=logs,
        commits=commits,
        work=work,
        clock=clock,
        trusted_time=trusted_time,
        observe=observe,
    )
    scrubber = _scrubber(settings, directory, files, logs, work, clock, figures, observe)
    maintenance.add("scrub", scrubber.run_pass, SCRUB_INTERVAL_MS)
    maintenance.tasks["scrub"].first_after(settings.log_initial_task_delay_ms)
    metadata = _metadata_store(
        directory,
        security,
        logs=logs,
        work=work,
        commits=commits,
        figures=figures,
        observe=observe,
    )
    services = Services(
        settings=settings,
        directory=directory,
        logs=logs,
        metadata=metadata,
        creations=Creations(directory, settings, metadata, security.audit),
        lags=Lags(logs, directory.committed, work, clock),
        groups=set_up_groups(
            loop,
            settings,
            positions=directory.committed,
            metadata=metadata,
            work=work,
            clock=clock,
            trusted_time=trusted_time,
            maintenance=maintenance,
            observe=observe,
        ),
        clock=clock,
        trusted_time=trusted_time,
        figures=figures,
        outcomes=Outcomes(observe),
        fetches=fetches,
        produces=produces,
        commits=commits,
        work=work,
        deferrals=Deferrals(loop.call_soon),
        late_appends=LateAppends(work, loop.call_soon),
        conversions=Conversions(work),
        time_maps=TimeMaps(work),
        kafka_address=kafka_address,
        security=security,
        rolled=maintenance.note_roll,
        scrubber=scrubber,
        replication=SingleNode(settings.broker_id),
    )
    return services, maintenance


def _scrubber(
    settings: BrokerSettings,
    directory: LogDirectory,
    files: Files,
    logs: Logs,
    work: Work,
    clock: Clock,
    figures: Figures,
    observe: Observer,
) -> Scrubber:
    return Scrubber(
        settings,
        directory=directory,
        files=files,
        logs=logs,
        work=work,
        clock=clock,
        random=Random(),
        figures=figures,
        observe=observe,
    )


def _group_commit(
    loop: asyncio.AbstractEventLoop,
    clock: Clock,
    figures: Figures,
    note_sync: Callable[[], None],
    cleanups: AsyncExitStack,
) -> GroupCommit:
    """Syncs logs in threads of its own; `note_sync` is called after each sync."""

    def synced(seconds: float) -> None:
        figures.fsync.add(seconds)
        note_sync()

    syncs, index_syncs = (ThreadPoolExecutor(1, name) for name in ("sync", "index-sync"))
    for executor in (syncs, index_syncs):
        # Now, and not when a sync is needed: then there may be no memory for a thread.
        executor.submit(int)
        cleanups.callback(executor.shutdown)
    commits = GroupCommit(syncs, index_syncs, loop.call_soon_threadsafe, clock, synced)
    cleanups.push_async_callback(_commits_done, commits)
    return commits


async def _commits_done(commits: GroupCommit) -> None:
    done = asyncio.Event()
    commits.when_idle(done.set)
    await done.wait()


def _metadata_store(
    directory: LogDirectory,
    security: SecurityService,
    *,
    logs: Logs,
    work: Work,
    commits: GroupCommit,
    figures: Figures,
    observe: Observer,
) -> MetadataStore:
    def gone(topic: str, partitions: int) -> None:
        figures.forget(topic)
        logs.went_away(topic, partitions)

    store = MetadataStore(directory, work, commits, observe, SingleNodeLeadership(), security, gone)
    logs.settle, logs.create_now = store.settle, store.create_now
    return store
