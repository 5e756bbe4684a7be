"""describe-configs, alter-configs and incremental-alter-configs: settings of topics and brokers.

describe-configs (key 32): versions 0 to 2, native 0 to 2 (KIP-133)
     1  sources and synonyms (KIP-226)
     2  the response comes before the client is throttled (KIP-219)
alter-configs (key 33): versions 0 to 1, native 0 to 1 (KIP-133)
     1  the response comes before the client is throttled (KIP-219)
incremental-alter-configs (key 44): versions 0 to 1, native 0 to 1 (KIP-339)
     1  compact encoding (KIP-482)

Left out: documentation and types of settings (KIP-569), changes of a broker's settings.

A topic's `min.insync.replicas` may be above the number of brokers that can be in sync. Messages
with acks=all are refused then, and waiting does not help. It is allowed, because brokers may be
added, so the broker warns: at its start, and when a topic is created or altered.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

from ...config.broker import BROKER_SETTINGS
from ...config.setting import Kind
from ...config.topic import TOPIC_SETTINGS, canonical_name, check_overrides, places, without_repeats
from ...protocol.api.pieces import Pieces
from ...protocol.api.schema import replaced
from ...protocol.api.topics import incremental_alter_configs
from ...protocol.api.topics.alter_configs import (
    ALTER_CONFIGS,
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResponse,
    AlterConfigsResult,
)
from ...protocol.api.topics.describe_configs import (
    BROKER_RESOURCE,
    DESCRIBE_CONFIGS,
    FROM_BROKER,
    FROM_DEFAULT,
    FROM_TOPIC,
    TOPIC_RESOURCE,
    ConfigSynonym,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribedConfig,
)
from ...protocol.api.topics.incremental_alter_configs import (
    INCREMENTAL_ALTER_CONFIGS,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementalAlterConfigsResponse,
    IncrementalAlterConfigsResult,
    IncrementalConfig,
)
from ...protocol.errors import InvalidConfig, InvalidRequest
from ...protocol.limits import MAX_DESCRIBED_WINDOWS
from ...protocol.window_topics import base_of, find_window
from ...storage.directory.topics import TopicEntry
from ...storage.events import Observer
from ...storage.stepped_change import Steps
from ..requests import Call, PendingAnswer, in_turns
from .base import Services
from .changing import answer_later
from .registration import handles

_SETTING: Final = "min.insync.replicas"
_EVENT: Final = "min_insync_unmet"

_SOURCES: Final = {"topic": FROM_TOPIC, "broker": FROM_BROKER, "default": FROM_DEFAULT}

_KAFKA_ONLY: Final = {
    "default.replication.factor": "1",
}
"""Settings of a Kafka broker that Kafka's tools ask for, with the only value possible here."""


@handles(DESCRIBE_CONFIGS)
def describe(
    services: Services, request: DescribeConfigsRequest, call: Call
) -> DescribeConfigsResponse | PendingAnswer:
    return in_turns(services.work, _describing(services, request, call))


def _describing(
    services: Services, request: DescribeConfigsRequest, call: Call
) -> Pieces[DescribeConfigsResponse]:
    results = []
    topics, windows = services.directory.topics(), 0
    for (kind, name), keys in _described_once(request).items():
        result = DescribeConfigsResult(resource_type=kind, resource_name=name)
        try:
            if kind == TOPIC_RESOURCE and find_window(topics, name) is not None:
                windows += 1
                _check_windows(windows)
            described = _describer(kind)(services, name, call)
        except Exception as error:
            outcome = services.outcomes.of(error, api="describe-configs")
            result.error_code, result.error_message = outcome
        else:
            result.configs = described if keys is None else list(_asked(described, keys, call))
            if not request.include_synonyms:
                for config in result.configs:
                    config.synonyms = []
        results.append(result)
        yield
    return DescribeConfigsResponse(results=results)


def _check_windows(windows: int) -> None:
    """Raise `InvalidRequest` for more windows than one answer may describe."""
    if windows > MAX_DESCRIBED_WINDOWS:
        raise InvalidRequest(
            f"the request names more than {MAX_DESCRIBED_WINDOWS} windows; a window has the "
            "settings of its base, which is described once: name the base, or fewer windows"
        )


def _described_once(
    request: DescribeConfigsRequest,
) -> dict[tuple[int, str], dict[str, None] | None]:
    """Return each named resource once, with the names of the wanted settings; `None` for all
    settings."""
    found: dict[tuple[int, str], dict[str, None] | None] = {}
    for resource in request.resources:
        key = resource.resource_type, resource.resource_name
        keys, known = resource.configuration_keys, found.get(key, {})
        all_of_them = keys is None or known is None
        found[key] = None if all_of_them else {**(known or {}), **dict.fromkeys(keys or ())}
    return found


def _describer(resource_type: int) -> Callable[[Services, str, Call], list[DescribedConfig]]:
    if resource_type == TOPIC_RESOURCE:
        return _describe_topic
    if resource_type == BROKER_RESOURCE:
        return _describe_broker
    raise InvalidRequest(
        f"resource_type is {resource_type}; it must be {TOPIC_RESOURCE} (topic) or "
        f"{BROKER_RESOURCE} (broker)"
    )


def _describe_topic(services: Services, name: str, call: Call) -> list[DescribedConfig]:
    overrides = services.logs.topic(base_of(services.directory.topics(), name)).overrides
    return [
        _described(setting, each, found)
        for setting, found in places(services.settings.topic_defaults, overrides).items()
        # Every name is listed: some of Kafka's clients believe that other settings do not exist.
        for each in (TOPIC_SETTINGS[setting].topic_names if call.kafka else (setting,))
    ]


def _described(
    setting: str, name: str, found: Sequence[tuple[str, str]], *, read_only: bool = False
) -> DescribedConfig:
    """Describe a setting under `name`. `found` has its values with the places where they are set;
    the first value is in force."""
    value, place = found[0]
    kafka_name = _kafka_name(setting)
    return DescribedConfig(
        name=name,
        value=value,
        read_only=read_only,
        is_default=place == "default",
        config_source=_SOURCES[place],
        synonyms=[
            ConfigSynonym(
                name=setting if place == "topic" else kafka_name,
                value=value,
                source=_SOURCES[place],
            )
            for value, place in found
        ],
        source=place,
    )


def _kafka_name(name: str) -> str:
    setting = TOPIC_SETTINGS.get(name) or BROKER_SETTINGS.get(name)
    return name if setting is None else setting.kafka_name


def _describe_broker(services: Services, name: str, call: Call) -> list[DescribedConfig]:
    if call.kafka and not name:
        return []  # Settings for all brokers of a cluster at once: there are none.
    node_id = services.settings.broker_id
    if name != str(node_id):
        raise InvalidRequest(f"broker {name!r} does not exist here; this is broker {node_id}")
    found: dict[str, list[tuple[str, str]]] = {}
    if call.kafka:
        found |= {only: [(value, "default")] for only, value in _KAFKA_ONLY.items()}
    for setting in BROKER_SETTINGS.values():
        value = setting.format(getattr(services.settings, setting.attribute))
        default = setting.format(setting.default)
        own = [] if value == default else [(value, "broker")]
        found[setting.name] = [*own, (default, "default")]
    found |= places(services.settings.topic_defaults, {})
    return [
        _described(each, _kafka_name(each) if call.kafka else each, its, read_only=True)
        for each, its in found.items()
    ]


def _asked(
    described: list[DescribedConfig], keys: Iterable[str], call: Call
) -> Iterator[DescribedConfig]:
    """Yield the settings that `keys` name, by any of their names. Unknown names are left out.

    Kafka's clients get each setting under the name in their request, where they look for it.
    """
    by_name = {name: config for config in reversed(described) for name in _names(config.name)}
    found = {key: by_name[key] for key in keys if key in by_name}
    if call.kafka:
        yield from (replaced(config, name=key) for key, config in found.items())
    else:
        yield from {config.name: config for config in found.values()}.values()


_NAMES: Final[Mapping[str, frozenset[str]]] = {
    name: frozenset((setting.name, *setting.aliases))
    for setting in (*BROKER_SETTINGS.values(), *TOPIC_SETTINGS.values())
    for name in (setting.name, *setting.aliases)
}


def _names(name: str) -> frozenset[str]:
    """Return all names, in the same unit, of the setting called `name`."""
    return _NAMES.get(name, frozenset((name,)))


@handles(ALTER_CONFIGS)
def alter(services: Services, request: AlterConfigsRequest, call: Call) -> PendingAnswer:
    return answer_later(
        services,
        "alter-configs",
        (
            (name, AlterConfigsResult(resource_type=kind, resource_name=name), steps)
            for kind, name, steps in _altering_each(
                services,
                request.resources,
                incremental=request.incremental,
                validate_only=request.validate_only,
            )
        ),
        lambda results: AlterConfigsResponse(responses=results),
    )


@handles(INCREMENTAL_ALTER_CONFIGS)
def alter_some(
    services: Services, request: IncrementalAlterConfigsRequest, call: Call
) -> PendingAnswer:
    return answer_later(
        services,
        "incremental-alter-configs",
        (
            (name, IncrementalAlterConfigsResult(resource_type=kind, resource_name=name), steps)
            for kind, name, steps in _altering_each(
                services, request.resources, incremental=True, validate_only=request.validate_only
            )
        ),
        lambda results: IncrementalAlterConfigsResponse(responses=results),
    )


_Resource = AlterConfigsResource | IncrementalAlterConfigsResource


def _altering_each(
    services: Services, resources: Sequence[_Resource], *, incremental: bool, validate_only: bool
) -> Iterator[tuple[int, str, Steps[TopicEntry]]]:
    """Yield the type and name of each resource, once, with the steps that alter it."""
    named = [(each.resource_type, each.resource_name) for each in resources]
    times = Counter(named)
    for (kind, name), resource in dict(zip(named, resources, strict=True)).items():
        altering = _altering(
            services,
            resource,
            times[kind, name],
            incremental=incremental,
            validate_only=validate_only,
        )
        yield kind, name, altering


def _altering(
    services: Services, resource: _Resource, times: int, *, incremental: bool, validate_only: bool
) -> Steps[TopicEntry]:
    if times > 1:
        raise InvalidRequest(
            f"the request names {resource.resource_name[:100]!r} {times} times; name it once, with "
            "all its settings"
        )
    if resource.resource_type == BROKER_RESOURCE:
        raise InvalidRequest(
            "the broker's settings cannot be altered while it runs; change them in its "
            "configuration file, environment or command line and restart it"
        )
    if resource.resource_type != TOPIC_RESOURCE:
        raise InvalidRequest(
            f"resource_type is {resource.resource_type}; it must be {TOPIC_RESOURCE} (topic)"
        )
    entry = services.logs.topic(resource.resource_name)
    defaults = services.settings.topic_defaults
    given = _named_once(resource, lambda name: places(defaults, entry.overrides)[name][0][0])
    overrides = dict(entry.overrides) if incremental else {}
    for name in (name for name, value in given.items() if value is None):
        overrides.pop(canonical_name(name), None)
    asked = {name: value for name, value in given.items() if value is not None}
    overrides |= check_overrides(without_repeats(asked, defaults, entry.overrides))
    check_overrides(overrides)
    if validate_only:
        return entry
    altered = yield from services.metadata.topics.alter(entry.name, overrides)
    if altered.overrides != entry.overrides:
        warn_of_topic(services, altered)
    return altered


def _named_once(resource: _Resource, standing: Callable[[str], str]) -> dict[str, str | None]:
    """Return the new settings of `resource` by name, `None` for settings to unset. `standing`
    returns the present value of a setting.

    Raises `InvalidRequest` if a name occurs twice. If two names of one setting occur, both must
    have a value, between which the caller decides, or both must be unset.
    """
    given: dict[str, str | None] = {}
    unset: dict[str, bool] = {}
    for config in resource.configs:
        if config.name in given:
            raise InvalidRequest(
                f"the request names the setting {config.name[:100]!r} more than once; name it once"
            )
        given[config.name] = _value(config, standing)
        setting, is_unset = canonical_name(config.name), given[config.name] is None
        if unset.setdefault(setting, is_unset) != is_unset:
            raise InvalidRequest(
                f"the request sets {setting} and unsets it, under two of its names; name it once"
            )
    return given


def _value(
    config: AlterableConfig | IncrementalConfig, standing: Callable[[str], str]
) -> str | None:
    """Return the new value of a setting, `None` to unset it. Raises `InvalidRequest`,
    `InvalidConfig`."""
    if isinstance(config, AlterableConfig):
        return config.value
    name = canonical_name(config.name)
    match config.config_operation:
        case incremental_alter_configs.SET:
            if config.value is None:
                raise InvalidRequest(f"{name} cannot be set to null; give a value, or delete it")
            return config.value
        case incremental_alter_configs.DELETE:
            return None
        case incremental_alter_configs.APPEND | incremental_alter_configs.SUBTRACT:
            return _changed_list(config, name, standing)
    raise InvalidRequest(
        f"config_operation is {config.config_operation}; it must be 0 (set), 1 (delete), "
        "2 (append) or 3 (subtract)"
    )


def _changed_list(config: IncrementalConfig, name: str, standing: Callable[[str], str]) -> str:
    """Return the present list with the items of `config` appended, each once, or removed. Raises
    `InvalidRequest`, `InvalidConfig`."""
    if TOPIC_SETTINGS[name].kind is not Kind.CHOICES:
        raise InvalidConfig(
            f"{name} is no list, so nothing can be appended to it or taken out of it; set it"
        )
    if config.value is None:
        raise InvalidRequest(f"{name}: null can be neither appended nor taken out")
    items = [item.strip() for item in config.value.split(",")]
    before = standing(name).split(",")
    if config.config_operation == incremental_alter_configs.APPEND:
        return ",".join(dict.fromkeys([*before, *items]))
    return ",".join(item for item in before if item not in items)


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
