"""`horolog quota`: set, remove, list.

With --data-dir the quotas in the data directory of a stopped broker are changed. Otherwise a
running broker is asked to change them; the change applies from the next request on.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Final

import typer

from ...client.administer.access import QuotaAdmin
from ...client.cluster.servers import Servers
from ...config.setting import RATE, form_of, format_amount, parse_amount
from ...protocol.api.security.client_quotas import QuotaAlteration, QuotaOp
from ...protocol.errors import CodedError
from ...server.quotas.rules import (
    DEFAULT,
    Entity,
    Quota,
    QuotaChange,
    Quotas,
    asked_entity,
    entity_parts,
    problem_of_name,
    problem_of_value,
)
from ...storage.metadata.local_metadata import LocalMetadata
from ..broker_requests import ask
from ..errors import CommandFailed, WrongUsage
from ..options import DEFAULT_SERVER, Json, Server, check_text, check_texts, group
from ..output import emit, json_line, table
from .offline_directory import DataDir, OfflineDirectory

quotas = group("Say how much users and clients may take, and list that.")

_NAMES: Final = ", ".join(Quota)
_DEFAULT_SHOWN: Final = "<default>"
_UNITS: Final = {
    Quota.PRODUCER_BYTE_RATE: "B/s",
    Quota.CONSUMER_BYTE_RATE: "B/s",
    Quota.REQUEST_PERCENTAGE: "%",
    Quota.CONTROLLER_MUTATION_RATE: "partitions/s",
}
_RATES: Final = (Quota.PRODUCER_BYTE_RATE, Quota.CONSUMER_BYTE_RATE)

User = Annotated[
    str | None,
    typer.Option("--for-user", metavar="NAME", callback=check_text, help="Quotas of this user."),
]
UserDefaults = Annotated[
    bool, typer.Option("--for-user-defaults", help="Quotas of each user without own quotas.")
]
Client = Annotated[
    str | None,
    typer.Option(
        "--for-client-id",
        metavar="NAME",
        callback=check_text,
        help="Quotas of this client id.",
    ),
]
ClientDefaults = Annotated[
    bool,
    typer.Option("--for-client-defaults", help="Quotas of each client id without own quotas."),
]

Quotas_ = Mapping[Entity, Mapping[Quota, float]]


@quotas.command("set")
def set_(
    values: Annotated[
        list[str],
        typer.Argument(metavar="QUOTA=VALUE...", callback=check_texts, help=f"Of {_NAMES}."),
    ],
    user: User = None,
    user_defaults: UserDefaults = False,
    client_id: Client = None,
    client_defaults: ClientDefaults = False,
    data_dir: DataDir = None,
    server: Server = DEFAULT_SERVER,
) -> None:
    """Set quotas of a user, a client id, or a client id of a user.

    Rates of bytes may have a unit: producer_byte_rate=10MB/s.
    """
    entity = _entity(user, user_defaults, client_id, client_defaults)
    wanted: dict[Quota, float | None] = {}
    for text in values:
        name, equals, number = text.partition("=")
        quota = _quota(name)
        if not equals or quota in wanted:
            raise WrongUsage(f"{text!r}: write each quota once, as {quota}=VALUE")
        wanted[quota] = _value(quota, number)
    _target(data_dir, server, makes=True).change(QuotaChange(entity, wanted))
    emit(f"set for {entity}: {_shown(quota, value)}" for quota, value in wanted.items())


@quotas.command()
def remove(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[QUOTA...]", callback=check_texts, help=f"Of {_NAMES}; none: all of them."
        ),
    ] = None,
    user: User = None,
    user_defaults: UserDefaults = False,
    client_id: Client = None,
    client_defaults: ClientDefaults = False,
    data_dir: DataDir = None,
    server: Server = DEFAULT_SERVER,
) -> None:
    """Remove quotas."""
    entity = _entity(user, user_defaults, client_id, client_defaults)
    wanted = [_quota(name) for name in names or ()]
    target = _target(data_dir, server)
    there = target.quotas().get(entity, {})
    doomed = [quota for quota in there if not wanted or quota in wanted]
    if not doomed:
        raise CommandFailed(f"there is no such quota of {entity}; see `horolog quota list`")
    target.change(QuotaChange(entity, dict.fromkeys(doomed)))
    emit(f"removed for {entity}: {quota}" for quota in doomed)


@quotas.command("list")
def list_(data_dir: DataDir = None, server: Server = DEFAULT_SERVER, as_json: Json = False) -> None:
    """List the quotas."""
    found = sorted(
        _target(data_dir, server).quotas().items(),
        key=lambda item: (item[0].user or "", item[0].client_id or "", str(item[0])),
    )
    if as_json:
        emit(
            json_line(
                entity={part.entity_type: part.entity_name for part in entity_parts(entity)},
                quotas={quota.value: value for quota, value in values.items()},
            )
            for entity, values in found
        )
    elif found:
        rows = [
            (_name(entity.user), _name(entity.client_id), _shown(quota, value))
            for entity, values in found
            for quota, value in values.items()
        ]
        emit(table(("user", "client-id", "quota"), rows))
    else:
        emit(["no quotas"])


def _entity(
    user: str | None, user_defaults: bool, client_id: str | None, client_defaults: bool
) -> Entity:
    for kind, name, default in (
        ("user", user, user_defaults),
        ("client", client_id, client_defaults),
    ):
        if name is not None and default:
            raise WrongUsage(f"give the name of a {kind} or --for-{kind}-defaults, not both")
        problem = None if name is None else problem_of_name(kind, name)
        if problem is not None:
            raise WrongUsage(problem)
    entity = Entity(DEFAULT if user_defaults else user, DEFAULT if client_defaults else client_id)
    if entity == Entity():
        raise WrongUsage(
            "say whose quota it is: --for-user or --for-user-defaults, --for-client-id or "
            "--for-client-defaults, or one of each"
        )
    return entity


def _quota(name: str) -> Quota:
    try:
        return Quota(name.replace("-", "_"))
    except ValueError:
        raise WrongUsage(f"there is no quota {name!r}; there are {_NAMES}") from None


def _value(quota: Quota, text: str) -> float:
    try:
        value = _number(quota, text)
    except ValueError:
        forms = f", nor {form_of(RATE)}" if quota in _RATES else ""
        raise WrongUsage(f"{quota} is {text[:100]!r}, which is no number{forms}") from None
    problem = problem_of_value(quota, value)
    if problem is not None:
        raise WrongUsage(problem)
    return value


def _number(quota: Quota, text: str) -> float:
    """Return the number in `10MB/s`, `2.5%` or `7`. Raises `ValueError`."""
    if quota in _RATES:
        amount = parse_amount(text, RATE)
        if amount is not None:
            return amount
    return float(text.removesuffix("%") if quota is Quota.REQUEST_PERCENTAGE else text)


def _name(name: str | None) -> str:
    return "" if name is None else name or _DEFAULT_SHOWN


def _shown(quota: Quota, value: float | None) -> str:
    if quota in _RATES and value is not None and value == int(value):
        amount = format_amount(int(value), RATE)
        if not amount.isdecimal():
            return f"{quota} {amount}"
    return f"{quota} {value:.15g} {_UNITS[quota]}"


class _BrokerQuotas:
    """Quotas of a running broker, changed through its API."""

    def __init__(self, server: Servers) -> None:
        self._server = server

    def quotas(self) -> Quotas_:
        return {
            asked_entity(entry.entity): {Quota(each.key): each.value for each in entry.values}
            for entry in ask(QuotaAdmin, self._server, QuotaAdmin.quotas)
        }

    def change(self, change: QuotaChange) -> None:
        ops = [
            QuotaOp(key=quota.value, value=0.0 if value is None else value, remove=value is None)
            for quota, value in change.values.items()
        ]
        alteration = QuotaAlteration(entity=entity_parts(change.entity), ops=ops)
        ask(QuotaAdmin, self._server, lambda admin: admin.alter_quotas([alteration]))


class _StoredQuotas(OfflineDirectory):
    """Quotas in the data directory of a stopped broker."""

    def quotas(self) -> Quotas_:
        return self.use(lambda metadata: Quotas(metadata.state.access.quotas).table.quotas)

    def change(self, change: QuotaChange) -> None:
        def alter(metadata: LocalMetadata) -> Sequence[CodedError | bool]:
            stored = Quotas(metadata.state.access.quotas)
            return metadata.change_access(lambda: stored.planned([change]))

        for outcome in self.use(alter):
            if isinstance(outcome, CodedError):
                raise outcome


def _target(
    data_dir: Path | None, server: Servers, *, makes: bool = False
) -> _BrokerQuotas | _StoredQuotas:
    if data_dir is None:
        return _BrokerQuotas(server)
    return _StoredQuotas(data_dir, makes=makes)
