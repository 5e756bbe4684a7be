"""`min.insync.replicas` above the number of brokers that can be in sync.

Messages with acks=all are refused then, and waiting does not help. The setting is allowed, because
brokers may be added, so the broker warns: at its start, and when a topic is created or altered.
"""

from typing import Final

from ...storage.directory.topics import TopicEntry
from ...storage.events import Observer
from .base import Services

_SETTING: Final = "min.insync.replicas"
_EVENT: Final = "min_insync_unmet"


def unmet_topics(services: Services) -> list[tuple[str, int]]:
    """Return the topics whose own value is too high, with the value, sorted by name."""
    most = services.replication.most_in_sync()
    if most is None:
        return []
    wanted = ((name, _own_value(entry)) for name, entry in services.directory.topics().items())
    return sorted((name, value) for name, value in wanted if value > most)


def warn_at_start(services: Services, observe: Observer) -> None:
    """Warn if the broker's value, or a topic's own, is too high; only of the first such topic. With
    etcd nothing is said, because other brokers may join later."""
    most = services.replication.most_in_sync()
    if most is None or services.settings.cluster_etcd:
        return
    wanted = services.settings.min_insync_replicas
    if wanted > most:
        _warn(observe, wanted, most)
    found = unmet_topics(services)
    if found:
        name, wanted = found[0]
        _warn(observe, wanted, most, topic=name, topics=len(found))


def warn_of_topic(services: Services, entry: TopicEntry) -> None:
    """Warn if the value of a topic that was just created or altered is too high."""
    wanted, most = _own_value(entry), services.replication.most_in_sync()
    if most is not None and wanted > most:
        _warn(services.outcomes.observe, wanted, most, topic=entry.name)


def _own_value(entry: TopicEntry) -> int:
    return int(entry.overrides.get(_SETTING, 0))


def _warn(observe: Observer, wanted: int, most: int, **fields: object) -> None:
    observe(
        _EVENT,
        min_insync_replicas=wanted,
        brokers=most,
        hint="acks=all is refused until as many brokers are in sync; alter min.insync.replicas, or "
        "have more brokers",
        **fields,
    )
