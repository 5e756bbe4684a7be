"""`horolog acl`: add, remove, list, test.

With --data-dir the rules in the data directory of a stopped broker are changed. Otherwise a running
broker is asked to change them; the change applies from the next request on.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Final

import typer

from ..client.administer.access import AclAdmin
from ..client.cluster.servers import Servers
from ..protocol.api.security.acl_terms import (
    CLUSTER_NAME,
    OPERATIONS_BY_TITLE,
    WILDCARD,
    Operation,
    PatternType,
    Permission,
    ResourceType,
    operation_title,
)
from ..protocol.api.security.acls import AclFilter
from ..server.security.acl_store import (
    Acls,
    Filter,
    as_creation,
    asked_acl,
    problem_of,
    problem_of_host,
    written,
)
from ..server.security.acls import Acl, AclTable, Decision, Reason, Resource
from ..storage.metadata.local_metadata import LocalMetadata
from .broker_requests import ask
from .errors import CommandFailed, WrongUsage
from .options import (
    DEFAULT_SERVER,
    Json,
    Server,
    check_text,
    check_texts,
    complete_position_name,
    complete_topic,
    group,
)
from .output import emit, emit_object, json_line, table
from .security.offline_directory import DataDir, OfflineDirectory

acls = group("Say who may do what, list that, and ask what follows from it.")

_TITLES: Final = ", ".join(operation_title(each) for each in OPERATIONS_BY_TITLE.values())


def _complete_operation(incomplete: str) -> list[str]:
    return [title for title in _TITLES.split(", ") if title.startswith(incomplete)]


_ANY_PRINCIPAL: Final[list[tuple[Permission, str | None]]] = [(Permission.ANY, None)]

Allow = Annotated[
    list[str] | None,
    typer.Option(
        "--allow",
        metavar="PRINCIPAL",
        callback=check_texts,
        help="Principal that is allowed: User:NAME, or User:* for all. May be repeated.",
    ),
]
Deny = Annotated[
    list[str] | None,
    typer.Option(
        "--deny",
        metavar="PRINCIPAL",
        callback=check_texts,
        help="Principal that is denied, whatever other rules say. May be repeated.",
    ),
]
Operations = Annotated[
    list[str] | None,
    typer.Option(
        "--operation",
        metavar="OP",
        help=f"One of {_TITLES}. May be repeated.",
        show_default=False,
        autocompletion=_complete_operation,
    ),
]
Topic = Annotated[
    str | None,
    typer.Option(
        "--topic",
        metavar="NAME",
        callback=check_text,
        autocompletion=complete_topic,
        help="The topic; * for all.",
    ),
]
Group = Annotated[
    str | None,
    typer.Option(
        "--group",
        metavar="NAME",
        callback=check_text,
        autocompletion=complete_position_name,
        help="The consumer group, or the name of positions; * for all.",
    ),
]
Cluster = Annotated[bool, typer.Option("--cluster", help="The broker as a whole.")]
ClusterName = Annotated[
    str, typer.Argument(metavar="[CLUSTER]", help="Only with --cluster: the cluster's name.")
]
Prefixed = Annotated[
    bool, typer.Option("--prefixed", help="Match every resource whose name starts with NAME.")
]
Host = Annotated[
    str, typer.Option("--host", metavar="ADDRESS", help="Host of the client; * for any.")
]


@acls.command()
def add(
    cluster_name: ClusterName = CLUSTER_NAME,
    allow: Allow = None,
    deny: Deny = None,
    operation: Operations = None,
    topic: Topic = None,
    group: Group = None,
    cluster: Cluster = False,
    prefixed: Prefixed = False,
    host: Host = WILDCARD,
    data_dir: DataDir = None,
    server: Server = DEFAULT_SERVER,
) -> None:
    """Add rules that allow or deny a principal an operation."""
    resource = _resource(topic, group, cluster, cluster_name)
    whom = _whom(allow, deny)
    if resource is None or not whom or not operation:
        raise WrongUsage(
            "say who (--allow or --deny), what (--operation) and on what (--topic, --group or "
            "--cluster)"
        )
    if prefixed and topic == WILDCARD:
        raise WrongUsage(f"no topic begins with {WILDCARD}; it stands for all without --prefixed")
    pattern = PatternType.PREFIXED if prefixed else PatternType.LITERAL
    wanted = [
        Acl(resource.type, pattern, resource.name, principal, host, each, permission)
        for permission, principal in whom
        for each in map(_operation, operation)
    ]
    for acl in wanted:
        problem = problem_of(acl) or problem_of_host(host)
        if problem is not None:
            raise WrongUsage(problem)
    _target(data_dir, server, makes=True).add(wanted)
    emit(f"added: {acl}" for acl in wanted)


@acls.command()
def remove(
    cluster_name: ClusterName = CLUSTER_NAME,
    allow: Allow = None,
    deny: Deny = None,
    operation: Operations = None,
    topic: Topic = None,
    group: Group = None,
    cluster: Cluster = False,
    prefixed: Prefixed = False,
    host: Annotated[
        str | None, typer.Option("--host", metavar="ADDRESS", help="Only rules for this host.")
    ] = None,
    data_dir: DataDir = None,
    server: Server = DEFAULT_SERVER,
) -> None:
    """Remove the rules that match all given options."""
    resource = _resource(topic, group, cluster, cluster_name)
    whom = _whom(allow, deny)
    if resource is None and not whom:
        raise WrongUsage("say whose rules (--allow, --deny) or about what (--topic, --group, ...)")
    pattern = PatternType.PREFIXED if prefixed else PatternType.LITERAL
    filters = [
        AclFilter(
            resource_type=int(ResourceType.ANY if resource is None else resource.type),
            resource_name=None if resource is None else resource.name,
            pattern_type=int(PatternType.ANY if resource is None else pattern),
            principal=principal,
            host=host,
            operation=int(each),
            permission_type=int(permission),
        )
        for permission, principal in whom or _ANY_PRINCIPAL
        for each in [_operation(text) for text in operation or ()] or [Operation.ANY]
    ]
    gone = _target(data_dir, server).remove(filters)
    if not gone:
        raise CommandFailed("there is no such rule; `horolog acl list` shows which there are")
    emit(f"removed: {acl}" for acl in gone)


@acls.command("list")
def list_(data_dir: DataDir = None, server: Server = DEFAULT_SERVER, as_json: Json = False) -> None:
    """List the rules."""
    found = sorted(_target(data_dir, server).acls(), key=lambda acl: tuple(written(acl).values()))
    if as_json:
        emit(json_line(_shown(acl)) for acl in found)
    elif found:
        rows = [tuple(map(str, _shown(acl).values())) for acl in found]
        emit(table(tuple(_shown(found[0])), rows))
    else:
        emit(["no rules"])


@acls.command("test")
def decide(
    principal: Annotated[
        str,
        typer.Argument(
            metavar="PRINCIPAL", callback=check_text, help="The principal, such as User:alice."
        ),
    ],
    operation: Annotated[
        str,
        typer.Option(
            "--operation",
            metavar="OP",
            help=f"One of {_TITLES}.",
            autocompletion=_complete_operation,
        ),
    ],
    topic: Topic = None,
    group: Group = None,
    cluster: Cluster = False,
    host: Annotated[
        str, typer.Option("--host", metavar="ADDRESS", help="Host of the client.")
    ] = "127.0.0.1",
    data_dir: DataDir = None,
    server: Server = DEFAULT_SERVER,
    as_json: Json = False,
) -> None:
    """Say whether a principal may do something, and which rule decides that.

    The operation itself is not tried, and nothing is changed. Exit code 1 if it is refused.
    """
    resource = _resource(topic, group, cluster, CLUSTER_NAME)
    if resource is None:
        raise WrongUsage("say on what: --topic, --group or --cluster")
    if ":" not in principal:
        raise WrongUsage(f"the principal is {principal!r}; write it as User:NAME")
    problem = problem_of_host(host)
    if host == WILDCARD or problem is not None:
        raise WrongUsage(f"--host {host}: {problem or 'say from which address'}")
    target = _target(data_dir, server)
    known = target.authorization()
    state, super_users = ("unknown", "") if known is None else known
    asked = _operation(operation)
    if state == "off":
        _emit_everything_allowed(as_json=as_json)
        return
    table_ = AclTable(target.acls(), filter(None, super_users.split(";")))
    decision = table_.decide(principal, host, asked, resource)
    if as_json:
        rule = None if decision.rule is None else _shown(decision.rule)
        fields = {"allowed": decision.allowed, "reason": decision.reason.value, "rule": rule}
        emit_object({**fields, "authorization": state})
        _end(decision)
        return
    verdict = "allowed" if decision.allowed else "refused"
    lines = [f"{verdict}: {_why(decision, principal, asked, resource)}"]
    if state == "unknown":
        lines.append("the broker's super.users and authorization are not known here")
    emit(lines)
    _end(decision)


def _end(decision: Decision) -> None:
    """End the command with exit code 1 if the decision is a refusal."""
    if not decision.allowed:
        raise typer.Exit(1)


def _emit_everything_allowed(*, as_json: bool) -> None:
    """Print the decision of a broker with authorization=off, which allows everything."""
    reason = "authorization=off"
    if as_json:
        emit_object({"allowed": True, "reason": reason, "rule": None, "authorization": "off"})
    else:
        emit([f"allowed: {reason}: the broker does not look at rights, and allows everything"])


def _why(decision: Decision, principal: str, operation: Operation, resource: Resource) -> str:
    if decision.rule is not None:
        implied = decision.rule.operation not in (operation, Operation.ALL)
        more = f", and with it {operation_title(operation)}" if implied else ""
        return f"{decision.rule}{more}"
    if decision.reason is Reason.SUPER_USER:
        return f"{principal} is one of super.users"
    return f"no rule allows {principal} to {operation_title(operation)} {resource}"


def _shown(acl: Acl) -> dict[str, object]:
    return {
        "principal": acl.principal,
        "host": acl.host,
        "permission": acl.permission.name.lower(),
        "operation": operation_title(acl.operation),
        "resource": acl.resource_type.name.lower(),
        "name": acl.resource_name,
        "pattern": acl.pattern_type.name.lower(),
    }


def _whom(allow: list[str] | None, deny: list[str] | None) -> list[tuple[Permission, str]]:
    return [
        *((Permission.ALLOW, each) for each in allow or ()),
        *((Permission.DENY, each) for each in deny or ()),
    ]


def _operation(text: str) -> Operation:
    found = OPERATIONS_BY_TITLE.get(text.replace("_", "").replace("-", "").lower())
    if found is None:
        raise WrongUsage(f"--operation {text!r}: it must be one of {_TITLES}")
    return found


def _resource(
    topic: str | None, group: str | None, cluster: bool, cluster_name: str
) -> Resource | None:
    named = [
        *([Resource(ResourceType.TOPIC, topic)] if topic is not None else ()),
        *([Resource(ResourceType.GROUP, group)] if group is not None else ()),
        *([Resource(ResourceType.CLUSTER, CLUSTER_NAME)] if cluster else ()),
    ]
    if len(named) > 1:
        raise WrongUsage("give one of --topic, --group and --cluster")
    if cluster_name != CLUSTER_NAME:
        raise WrongUsage(f"{cluster_name!r} is too much; the only cluster is {CLUSTER_NAME}")
    return named[0] if named else None


class _BrokerAcls:
    """ACLs of a running broker, changed through its API."""

    def __init__(self, server: Servers) -> None:
        self._server = server

    def acls(self) -> Sequence[Acl]:
        return [asked_acl(each) for each in ask(AclAdmin, self._server, AclAdmin.acls)]

    def add(self, acls: Sequence[Acl]) -> None:
        wanted = [as_creation(acl) for acl in acls]
        ask(AclAdmin, self._server, lambda admin: admin.add_acls(wanted))

    def remove(self, filters: Sequence[AclFilter]) -> Sequence[Acl]:
        gone = ask(AclAdmin, self._server, lambda admin: admin.remove_acls(filters))
        return [asked_acl(each) for each in gone]

    def authorization(self) -> tuple[str, str] | None:
        return ask(AclAdmin, self._server, AclAdmin.authorization)


class _StoredAcls(OfflineDirectory):
    """ACLs in the data directory of a stopped broker."""

    def acls(self) -> Sequence[Acl]:
        return self.use(lambda metadata: Acls(metadata.state.access.rules).table.acls)

    def add(self, acls: Sequence[Acl]) -> None:
        def change(metadata: LocalMetadata) -> None:
            stored = Acls(metadata.state.access.rules)
            metadata.change_access(lambda: stored.plan_adding(acls))

        self.use(change)

    def remove(self, filters: Sequence[AclFilter]) -> Sequence[Acl]:
        wanted = [Filter(each) for each in filters]

        def change(metadata: LocalMetadata) -> Sequence[Acl]:
            stored = Acls(metadata.state.access.rules)
            return metadata.change_access(
                lambda: stored.plan_removing(lambda acl: any(each.means(acl) for each in wanted))
            )

        return self.use(change)

    def authorization(self) -> tuple[str, str] | None:
        return None


def _target(
    data_dir: Path | None, server: Servers, *, makes: bool = False
) -> _BrokerAcls | _StoredAcls:
    if data_dir is None:
        return _BrokerAcls(server)
    return _StoredAcls(data_dir, makes=makes)
