"""The construction of a broker's services, which handlers use."""

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
from ..values import value_class
from .completeness import Completeness
from .conversions import Conversions
from .groups.service import GroupService, set_up_groups
from .handlers.base import Services
from .late_appends import LateAppends
from .logs import Logs
from .maintenance import Maintenance
from .metadata_store import MetadataStore
from .metrics.figures import Figures
from .metrics.lags import Lags
from .outcomes import Outcomes
from .parking import ParkingLot
from .replication.service import SingleNode, SingleNodeLeadership
from .scrubbing import SCRUB_INTERVAL_MS, Scrubber
from .security.service import SecurityService
from .topic_creation import Creations
from .trusted_time import TrustedTime
from .work import Deferrals, TimeMaps, Work

MAX_PARKED_FETCHES = 10_000
"""The most fetches that wait at a time. Each holds a timer and its request; if there are more, a
fetch is answered at once, with the messages that are available."""

MAX_PARKED_PARTITIONS = 500_000
"""The most partitions that all waiting fetches name together, at about 500 bytes each. A partition
of a window topic counts as four."""


@value_class
class ServiceInputs:
    """The parts of a broker from which its services are made."""

    settings: BrokerSettings
    directory: LogDirectory
    files: Files
    security: SecurityService
    clock: Clock
    trusted_time: TrustedTime
    figures: Figures
    observe: Observer
    kafka_address: str | None


def make_services(inputs: ServiceInputs, cleanups: AsyncExitStack) -> tuple[Services, Maintenance]:
    """Make the services of a single broker, and its background tasks, not yet started.

    The functions that stop them are added to `cleanups`.
    """
    settings, directory, security = inputs.settings, inputs.directory, inputs.security
    clock, figures = inputs.clock, inputs.figures
    loop = asyncio.get_running_loop()
    work = Work(loop)
    cleanups.callback(lambda: scrubber.close())
    cleanups.callback(lambda: metadata.settle_all())
    cleanups.push_async_callback(work.stop)
    commits = _group_commit(loop, clock, figures, lambda: maintenance.note_sync(), cleanups)
    fetches = ParkingLot(loop, MAX_PARKED_FETCHES, MAX_PARKED_PARTITIONS)
    produces = ParkingLot(loop)
    logs = Logs(directory, settings, work, (fetches, produces))
    metadata = _metadata_store(inputs, logs, commits, work)
    maintenance = _maintenance(inputs, logs, commits, work, metadata)
    scrubber = _scrubber(inputs, logs, work, maintenance)
    groups = _groups(inputs, loop, metadata, work, maintenance)
    services = Services(
        settings=settings,
        directory=directory,
        logs=logs,
        metadata=metadata,
        completeness=Completeness(directory, metadata),
        creations=Creations(directory, settings, metadata, security.audit),
        lags=Lags(logs, directory.committed, work, clock, groups.assignments),
        groups=groups,
        clock=clock,
        trusted_time=inputs.trusted_time,
        figures=figures,
        outcomes=Outcomes(inputs.observe),
        fetches=fetches,
        produces=produces,
        commits=commits,
        work=work,
        deferrals=Deferrals(loop.call_soon),
        late_appends=LateAppends(work, loop.call_soon),
        conversions=Conversions(work),
        time_maps=TimeMaps(work),
        kafka_address=inputs.kafka_address,
        security=security,
        rolled=maintenance.note_roll,
        scrubber=scrubber,
        replication=SingleNode(settings.broker_id),
    )
    return services, maintenance


def _maintenance(
    inputs: ServiceInputs, logs: Logs, commits: GroupCommit, work: Work, metadata: MetadataStore
) -> Maintenance:
    return Maintenance(
        inputs.settings,
        directory=inputs.directory,
        logs=logs,
        commits=commits,
        work=work,
        clock=inputs.clock,
        trusted_time=inputs.trusted_time,
        observe=inputs.observe,
        record=metadata.record_removed,
    )


def _scrubber(inputs: ServiceInputs, logs: Logs, work: Work, maintenance: Maintenance) -> Scrubber:
    scrubber = Scrubber(
        inputs.settings,
        directory=inputs.directory,
        logs=logs,
        work=work,
        clock=inputs.clock,
        random=Random(),
        figures=inputs.figures,
        observe=inputs.observe,
    )
    maintenance.add("scrub", scrubber.run_pass, SCRUB_INTERVAL_MS)
    maintenance.tasks["scrub"].first_after(inputs.settings.log_initial_task_delay_ms)
    return scrubber


def _groups(
    inputs: ServiceInputs,
    loop: asyncio.AbstractEventLoop,
    metadata: MetadataStore,
    work: Work,
    maintenance: Maintenance,
) -> GroupService:
    return set_up_groups(
        loop,
        inputs.settings,
        positions=inputs.directory.committed,
        metadata=metadata,
        work=work,
        clock=inputs.clock,
        trusted_time=inputs.trusted_time,
        maintenance=maintenance,
        observe=inputs.observe,
    )


def _group_commit(
    loop: asyncio.AbstractEventLoop,
    clock: Clock,
    figures: Figures,
    note_sync: Callable[[], None],
    cleanups: AsyncExitStack,
) -> GroupCommit:
    """Make the `GroupCommit`, with threads of its own; `note_sync` is called after each sync, also
    after those of indexes."""

    def synced(seconds: float) -> None:
        figures.fsync.add(seconds)
        note_sync()

    syncs, index_syncs = (ThreadPoolExecutor(1, name) for name in ("sync", "index-sync"))
    for executor in (syncs, index_syncs):
        # Start the thread now: when a sync is needed, there may be no memory for it.
        executor.submit(int)
        cleanups.callback(executor.shutdown)
    commits = GroupCommit(syncs, index_syncs, loop.call_soon_threadsafe, clock, synced, note_sync)
    cleanups.push_async_callback(_commits_done, commits)
    return commits


async def _commits_done(commits: GroupCommit) -> None:
    done = asyncio.Event()
    commits.when_idle(done.set)
    await done.wait()


def _metadata_store(
    inputs: ServiceInputs, logs: Logs, commits: GroupCommit, work: Work
) -> MetadataStore:
    def gone(topic: str, partitions: int) -> None:
        inputs.figures.forget(topic)
        logs.went_away(topic, partitions)

    leadership, security = SingleNodeLeadership(), inputs.security
    store = MetadataStore(
        inputs.directory, work, commits, inputs.observe, leadership, security, gone
    )
    logs.settle, logs.create_now = store.settle, store.create_now
    return store
