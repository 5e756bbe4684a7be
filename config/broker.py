"""The broker's settings: the immutable view of them, and where they come from: a TOML file, the
environment and the command line; the later one wins."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY
from difflib import get_close_matches
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from ..protocol.errors import InvalidConfig
from ..values import frozen_class
from .broker_table import BROKER_NAMES_NOT_OFFERED, BROKER_SETTINGS, FLUSH_SCHEDULER_INTERVAL
from .cluster_table import OF_SEVERAL
from .setting import Names, OptionValue, Scope, Value
from .topic_table import TOPIC_NAMES_NOT_OFFERED, TOPIC_SETTINGS

PREFIX: Final = "HOROLOG_"
OTHER_VARIABLES: Final = frozenset(
    (
        *("SERVER", "PROFILE", "CA", "CLIENT_CERT", "CLIENT_KEY", "CLIENT_KEY_PASSWORD_FILE"),
        *("USER", "PASSWORD_FILE", "TOKEN_FILE", "MECHANISM"),
        *("REQUIRE", "KERNEL", "TZ"),
    )
)
"""Variables with Horolog's prefix that are not settings: connections of clients, requirements of
tests, the form of the kernel, and the time zone of commands."""

_MISSPELT: Final = 0.88
"""Minimum similarity (0 to 1) at which an unknown variable counts as a misspelt setting. Other
variables belong to other programs: Kubernetes sets HOROLOG_SERVICE_HOST and the like for a service
of this name."""

_KUBERNETES: Final = re.compile(r"SERVICE_(HOST|PORT)(_\w+)?|PORT(_\d+_(TCP|UDP|SCTP)(_\w+)?)?")

__all__ = ["BROKER_SETTINGS", "BrokerSettings", "broker_settings"]


@frozen_class
class BrokerSettings:
    """The settings in force for the broker. The fields have the settings' names with underscores.

    `topic_defaults` has the topic settings given for the whole broker: canonical name -> text, as
    `config.topic.topic_settings` takes them.
    """

    _: KW_ONLY

    data_dir: Path
    data_file_mode: str
    """Permissions of new files, in octal."""
    disk_reserve_bytes: int
    listen: str
    http_listen: str
    http_hosts: str
    kafka_listen: str
    kafka_listen_given: bool
    """Whether the setting was given. If the default address cannot be used, the broker still
    starts."""
    advertised_listeners: str
    allow_plaintext: bool
    tls_cert: str
    tls_key: str
    tls_key_password_file: str
    tls_client_ca: str
    tls_client_auth: str
    tls_min_version: str
    authentication: str
    sasl_enabled_mechanisms: str
    authentication_deadline_ms: int
    connections_unauthenticated_max: int
    connections_max_reauth_ms: int
    quota_window_num: int
    quota_window_size_seconds: int
    http_open_paths: str
    authorization: str
    super_users: str
    sasl_oauthbearer_jwks_endpoint_url: str
    sasl_oauthbearer_jwks_endpoint_refresh_ms: int
    sasl_oauthbearer_expected_issuer: str
    sasl_oauthbearer_expected_audience: str
    sasl_oauthbearer_clock_skew_seconds: int
    sasl_oauthbearer_sub_claim_name: str
    tls_principal_mapping_rules: str
    max_connections_per_ip_overrides: str
    max_connections_per_user: int
    max_connections_per_user_overrides: str
    auto_create_topics_enable: bool
    num_partitions: int
    max_topics: int
    max_partitions: int
    offset_metadata_max_bytes: int
    max_positions_bytes: int
    max_producer_states_bytes: int
    log_retention_check_interval_ms: int
    log_scrub_days: int
    log_initial_task_delay_ms: int
    log_flush_scheduler_interval_ms: int
    clock_step_max_ms: int
    clock_settle_ms: int
    checkpoint_interval_ms: int
    recovery_point_checkpoint_interval_ms: int
    group_min_session_timeout_ms: int
    group_max_session_timeout_ms: int
    group_initial_rebalance_delay_ms: int
    group_max_size: int
    group_max_bytes: int
    max_groups: int
    max_groups_bytes: int
    offsets_retention_minutes: int
    offsets_retention_check_interval_ms: int
    max_frame_bytes: int
    max_response_bytes: int
    max_buffered_bytes: int
    max_connections: int
    max_connections_per_ip: int
    connections_max_idle_ms: int
    max_requests_in_flight: int
    request_deadline_ms: int
    fetch_max_wait_ms: int
    connection_buffer_bytes: int
    socket_send_buffer_bytes: int
    index_cache_bytes: int
    max_open_files: int
    max_latency_window_ms: int
    broker_id: int
    cluster_follow: str
    cluster_etcd: str
    cluster_name: str
    cluster_address: str
    cluster_lease_ms: int
    cluster_unclean_leader_election_enable: bool
    cluster_etcd_credentials: str
    cluster_etcd_ca: str
    cluster_etcd_cert: str
    cluster_etcd_key: str
    cluster_credentials: str
    cluster_ca: str
    cluster_brokers: int
    cluster_create: bool
    cluster_alone: bool
    cluster_discard: bool
    replica_lag_time_max_ms: int
    event_loop: str
    log_format: str
    log_level: str
    topic_defaults: Mapping[str, str]

    @property
    def min_insync_replicas(self) -> int:
        """`min.insync.replicas` for positions, for changes of topics, and for topics without their
        own value."""
        return int(self.topic_defaults.get("min.insync.replicas", 1))

    @property
    def of_several(self) -> list[str]:
        """Names of the given settings that only have an effect on a cluster member."""
        each = map(BROKER_SETTINGS.__getitem__, OF_SEVERAL)
        return [one.name for one in each if getattr(self, one.attribute) != one.default]


NAMES: Final = Names(
    (*BROKER_SETTINGS.values(), *TOPIC_SETTINGS.values()),
    {**TOPIC_NAMES_NOT_OFFERED, **BROKER_NAMES_NOT_OFFERED},
)
"""Every name that may be given for the broker: its own settings, and defaults for its topics."""


def broker_settings(given: Mapping[str, str] | None = None) -> BrokerSettings:
    """Return the settings with the given values (by any name, as text), and defaults for the rest.

    Raises `InvalidConfig`.
    """
    return build(resolve(OptionValue(name, text) for name, text in (given or {}).items()))


def resolve(given: Iterable[OptionValue]) -> dict[str, Value]:
    """Return the given values by canonical name, checked. Raises `InvalidConfig`."""
    return NAMES.resolve(given, Scope.BROKER)


def build(values: Mapping[str, Value]) -> BrokerSettings:
    """Return the view of checked values by canonical name."""
    topic_defaults = {
        name: setting.format(values[name])
        for name, setting in TOPIC_SETTINGS.items()
        if name in values
    }
    if FLUSH_SCHEDULER_INTERVAL in values:
        topic_defaults.setdefault("flush.ms", str(values[FLUSH_SCHEDULER_INTERVAL]))
    seen: dict[str, Any] = {
        setting.attribute: values.get(name, setting.default)
        for name, setting in BROKER_SETTINGS.items()
    }
    seen["kafka_listen_given"] = "kafka.listen" in values
    seen["data_dir"] = Path(seen["data_dir"]).expanduser()
    return BrokerSettings(**seen, topic_defaults=MappingProxyType(topic_defaults))


def load(
    config_file: Path | None, environ: Mapping[str, str], overrides: Sequence[str]
) -> BrokerSettings:
    """Return the broker's settings. `overrides` are NAME=VALUE texts from the command line.

    Raises `InvalidConfig` that names the file, the variable or the option at fault.
    """
    values = resolve(_from_file(config_file)) if config_file is not None else {}
    values |= resolve(_from_environment(environ))
    values |= resolve(_from_options(overrides))
    return build(values)


def environment_name(name: str) -> str:
    """Return the environment variable of a setting: `HOROLOG_RETENTION_MS` for `retention.ms`."""
    return PREFIX + name.replace(".", "_").upper()


def ignored_variables(environ: Mapping[str, str]) -> list[str]:
    """Return variables that look like settings but are not, without those that Kubernetes sets."""
    known = {environment_name(name) for name in (*NAMES, *OTHER_VARIABLES)}
    return sorted(
        variable
        for variable in environ
        if variable.startswith(PREFIX)
        and variable not in known
        and not _KUBERNETES.fullmatch(variable.removeprefix(PREFIX))
    )


def _from_file(path: Path) -> Iterator[OptionValue]:
    import tomllib  # Most brokers start without a file.

    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidConfig(f"{path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidConfig(f"{path} is not TOML: {error}") from None
    for name, value in _flattened(tables, ""):
        yield OptionValue(name, value, is_text=False, origin=str(path))


def _flattened(table: Mapping[str, object], prefix: str) -> Iterator[tuple[str, object]]:
    """Yield names and values. `[retention]` with `ms = 1` equals the quoted key `"retention.ms" =
    1`."""
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _flattened(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def _from_environment(environ: Mapping[str, str]) -> Iterator[OptionValue]:
    names = {environment_name(name).removeprefix(PREFIX): name for name in NAMES}
    for variable, text in environ.items():
        rest = variable.removeprefix(PREFIX)
        if rest == variable or rest in OTHER_VARIABLES:
            continue
        if rest in names:
            yield OptionValue(names[rest], text, origin=variable)
            continue
        close = get_close_matches(rest, (*names, *OTHER_VARIABLES), 1, _MISSPELT)
        if close:
            raise InvalidConfig(f"{variable} is not a setting; did you mean {PREFIX}{close[0]}?")


def _from_options(overrides: Sequence[str]) -> Iterator[OptionValue]:
    last: dict[str, OptionValue] = {}
    for option in overrides:
        name, equals, text = option.partition("=")
        if not equals:
            raise InvalidConfig(f"--set {option}: write NAME=VALUE")
        last[name] = OptionValue(name.strip(), text, origin=f"--set {option}")
    yield from last.values()
