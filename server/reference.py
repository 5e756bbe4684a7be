"""Writes generated pages of `docs/`: `python -m horolog.server.reference settings|metrics|rights`.

Settings come from the tables in `config/`, metrics from their families, and rights from the
declarations of the requests.
"""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from ..clock import SystemClock
from ..config.broker import environment_name
from ..config.broker_table import BROKER_NAMES_NOT_OFFERED, BROKER_SETTINGS
from ..config.setting import INT32_MAX, INT64_MAX, Kind, Setting
from ..config.topic_table import TOPIC_NAMES_NOT_OFFERED, TOPIC_SETTINGS
from ..protocol.api.registry import APIS
from ..protocol.api.rights import How, Need, Right, When
from ..protocol.api.schema import Api
from ..protocol.api.security.acl_terms import (
    CLUSTER_NAME,
    EVERYBODY,
    WILDCARD,
    Operation,
    PatternType,
    Permission,
    ResourceType,
    operation_title,
)
from .metrics.families import Gauges, families
from .metrics.figures import Figures
from .security.acls import Acl, AclTable, Resource

_SETTINGS = """\
# Settings

Generated from the tables in `config/` by `make docs`.

A setting is given in a TOML file (`horolog serve --config FILE`), in the environment, or on the
command line (`--set NAME=VALUE`); the later of these wins. In TOML, `"retention.ms" = 1000` and
`ms = 1000` under `[retention]` are the same. The environment variable of a setting is its name in
upper case after `HOROLOG_`, with dots as underscores: `retention.ms` is `HOROLOG_RETENTION_MS`.

A topic setting given to the broker holds for every topic that has no value of its own; a topic's
own values are set by `horolog topic create|alter NAME --set NAME=VALUE` and count from the next
append or maintenance pass on. A value that is not allowed is refused with the setting's name and
its range, and so is an unknown name. An unknown `HOROLOG_` variable is refused when it looks like
a misspelt setting, else ignored with a warning in the log (`variables_ignored`), because other
programs set variables with this prefix too.

Lengths of time and sizes may have a unit: `7d`, `90s`, `1h30m`, `1GiB`, `10MB`; in TOML they are
then texts (`"retention.ms" = "7d"`). `KiB`, `MiB`, `GiB` and `TiB` are powers of 1024, `KB`, `MB`,
`GB` and `TB` powers of 1000. Clients of Kafka's protocol get plain numbers.

Other names are Kafka's. Of several names of one setting the one in the smallest unit counts (ms
over minutes over hours); two in the same unit must agree.
"""


def setting_lines() -> Iterator[str]:
    """Yield the setting_lines of the page."""
    yield from _SETTINGS.splitlines()
    yield from _section("Topic settings", TOPIC_SETTINGS)
    yield from _section("Broker settings", BROKER_SETTINGS)
    yield from ("", "## Kafka settings that do not exist here", "")
    for name, why in {**TOPIC_NAMES_NOT_OFFERED, **BROKER_NAMES_NOT_OFFERED}.items():
        yield f"- `{name}` {why}."


def _section(title: str, settings: Mapping[str, Setting]) -> Iterator[str]:
    yield from ("", f"## {title}")
    for setting in settings.values():
        yield from ("", f"### `{setting.name}`", "", setting.doc, "")
        yield f"- Default: {_default_of(setting)}"
        yield f"- Allowed: {_readable(setting.allowed())}"
        if not setting.zero_in_broker:
            yield "- For the whole broker, 0 is refused."
        others = [f"`{name}`" for name in setting.names() if name != setting.name]
        if others:
            yield f"- Other names: {', '.join(others)}"
        yield f"- Environment: `{environment_name(setting.name)}`"


def _default_of(setting: Setting) -> str:
    if setting.no_limit is not None and setting.default == setting.no_limit:
        return "no limit"
    if setting.default == "":
        return "none"
    text = f"`{setting.format(setting.default)}`"
    if setting.kind is not Kind.INTEGER:
        return text
    if setting.default == INT64_MAX:
        return f"{text} (never)"
    return text + (f" {setting.unit}" if setting.unit else "") + _with_unit(setting)


def _with_unit(setting: Setting) -> str:
    shown = setting.shown(str(setting.default))
    return "" if shown == str(setting.default) else f" ({shown})"


def _readable(allowed: str) -> str:
    return allowed.replace(str(INT64_MAX), "2^63 - 1").replace(str(INT32_MAX), "2^31 - 1")


_METRICS = """\
# Metrics

Generated from `server/metrics/families.py` by `make docs`.

`http://HOST:PORT/metrics` on the HTTP port, in Prometheus' text format; the text is at most a
second old. Base units (seconds, bytes) are in the names. The `topic` label goes away with its
topic. The usual figures of the process (`process_*`) are there too.

| name | type | labels | meaning |
|---|---|---|---|"""

_WINDOW_MS = 60_000


def metric_lines() -> Iterator[str]:
    """Yield the metric_lines of the page."""
    yield from _METRICS.splitlines()
    figures = Figures(SystemClock(), _WINDOW_MS)
    for family in sorted(families(figures, Gauges()), key=lambda family: family.name):
        labels = ", ".join(f"`{label}`" for label in family.labels)
        meaning = family.meaning.replace("last 60 s", "last `max.latency.window.ms`")
        yield f"| `{family.name}` | {family.kind} | {labels} | {meaning} |"


_TYPES: Final = (ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER)

_OPERATIONS: Final = tuple(
    each for each in Operation if each not in (Operation.UNKNOWN, Operation.ANY)
)

_CODES: Final = {ResourceType.TOPIC: 29, ResourceType.GROUP: 30, ResourceType.CLUSTER: 31}

_RIGHTS: Final = """\
# Rights

Generated from the declarations in `protocol/api/` by `make docs`.

The rights that each request needs, in Kafka's protocol and in the native one, with
`authorization=on`. [Guarding a broker](guarding.md) says how to give rights. A request needs all
its rows, as far as their condition applies; of several rights in a row, one is enough. Errors are
29 for a topic, 30 for a group and 31 for the cluster. They do not tell whether the topic or group
exists.

| request | right | condition | without it |
|---|---|---|---|"""

_SINGLE_RIGHTS: Final = """
## Which single rights are enough

The rights, on what the request names, each of which lets it through by itself. Who may Read, Write,
Delete or Alter may Describe; AlterConfigs has DescribeConfigs in it, and All has every operation.

| request | on the topic | on the group | on the cluster |
|---|---|---|---|"""


def right_lines() -> Iterator[str]:
    """Yield the right_lines of the page."""
    yield _RIGHTS
    for api in sorted(APIS.values(), key=lambda each: each.key):
        yield from _needs_of(api)
    yield _SINGLE_RIGHTS
    for api in sorted(APIS.values(), key=lambda each: each.key):
        cells = (_enough(api.rights, kind) for kind in _TYPES)
        yield f"| {api.name} | {' | '.join(cells)} |"


def _needs_of(api: Api) -> Iterator[str]:
    if not api.rights:
        yield f"| {api.name} | none | | |"
    for number, need in enumerate(api.rights):
        rights = " or ".join(map(_right, need.any_of))
        name = "" if number else api.name
        code = _CODES[need.any_of[0].resource_type]
        how = need.how if need.how is How.LEFT_OUT else f"{need.how} ({code})"
        yield f"| {name} | {rights} | {need.when} | {how} |"


def _right(right: Right) -> str:
    kind = right.resource_type.name.lower()
    which = "some" if right.some else "the"
    return f"{operation_title(right.operation)} on {which} {kind}"


def _enough(needs: Sequence[Need], kind: ResourceType) -> str:
    found = [operation_title(each) for each in _OPERATIONS if is_enough(needs, each, kind)]
    if len(found) == len(_OPERATIONS):
        return "needs none"
    return ", ".join(found)


def is_enough(needs: Sequence[Need], operation: Operation, kind: ResourceType) -> bool:
    """Whether one ACL, for all resources of a type, meets every need of the usual requests: those
    of a consumer, about existing topics and, where there is a choice, about topic settings."""
    usual = [need for need in needs if need.when not in (When.MADE, When.FOLLOWER, When.OF_BROKER)]
    name = CLUSTER_NAME if kind is ResourceType.CLUSTER else WILDCARD
    rule = Acl(kind, PatternType.LITERAL, name, EVERYBODY, WILDCARD, operation, Permission.ALLOW)
    table = AclTable([rule])

    def has(right: Right) -> bool:
        asked = CLUSTER_NAME if right.resource_type is ResourceType.CLUSTER else "x"
        resource = Resource(right.resource_type, asked)
        return table.decide("User:x", "", right.operation, resource).allowed

    named = [need for need in usual if need.when is not When.NOT_NAMED]
    return all(any(map(has, need.any_of)) for need in named or usual)


PAGES: Final[Mapping[str, Callable[[], Iterator[str]]]] = {
    "settings": setting_lines,
    "metrics": metric_lines,
    "rights": right_lines,
}
"""The lines of each page."""


def main(arguments: list[str]) -> int:
    """Print a page."""
    if len(arguments) != 1 or arguments[0] not in PAGES:
        sys.stderr.write(f"usage: python -m horolog.server.reference {'|'.join(PAGES)}\n")
        return 2
    sys.stdout.writelines(f"{line}\n" for line in PAGES[arguments[0]]())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
