"""`horolog cluster create` and `remove`: what people do in etcd itself."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar

import typer

from ...config.broker import broker_settings
from ...protocol.errors import HorologError, InvalidConfig
from ...server.replication.etcd.access import Access
from ...storage.directory.known_files import CLUSTER_ID_FILE, IDENTITY_FILE
from ...storage.directory.lock import LOCK_FILE
from ..errors import CommandFailed, WrongUsage
from ..options import Json
from ..output import emit, emit_object

T = TypeVar("T")

Etcd = Annotated[
    str, typer.Option("--etcd", metavar="URL[,URL]", help="Addresses of etcd, separated by commas.")
]
Credentials = Annotated[
    str, typer.Option("--etcd-credentials", metavar="FILE", help="User and password, a line each.")
]
Ca = Annotated[
    str, typer.Option("--etcd-ca", metavar="FILE", help="What signs etcd's certificate.")
]
Cert = Annotated[
    str, typer.Option("--etcd-cert", metavar="FILE", help="A certificate to show to etcd.")
]
Key = Annotated[str, typer.Option("--etcd-key", metavar="FILE", help="Its private key.")]

BY_HAND: Final = (
    "--etcd and --cluster say in which cluster. Without etcd there is no list of brokers to take "
    "one out of: stop that broker, and start the others with a smaller cluster.brokers and, where "
    "it is larger than that, min.insync.replicas"
)


def create(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the cluster in etcd.")],
    etcd: Etcd,
    data_dir: Annotated[
        Path, typer.Option("--data-dir", metavar="DIR", help="The data that counts.")
    ],
    broker_id: Annotated[
        int | None,
        typer.Option(
            "--broker-id", min=1, max=999, help="For a directory that has had none; else 1."
        ),
    ] = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="Do it although the cluster is in etcd already.")
    ] = False,
    credentials: Credentials = "",
    ca: Ca = "",
    cert: Cert = "",
    key: Key = "",
    as_json: Json = False,
) -> None:
    """Make a cluster in etcd, of the data in a directory.

    The broker of that directory must not run. It leads when it is started with --etcd and
    --cluster; all others copy from it. With --replace the brokers of the cluster must not run
    either: after etcd was restored from a backup, where the one is that led last.
    """
    access = _access(name, etcd, credentials, ca, cert, key)
    from ...server.replication.etcd.administering import create as create_in_etcd

    with _made(data_dir):
        made = _run(lambda: create_in_etcd(access, name, data_dir, broker_id, replace=replace))
    if as_json:
        emit_object({"cluster": made.cluster_id, "broker": made.broker_id, "name": name})
    else:
        emit([f"created cluster {name} ({made.cluster_id}); start broker {made.broker_id} first"])


@contextmanager
def _made(directory: Path) -> Iterator[None]:
    """Make a directory; it goes again when what follows fails before etcd may name its broker."""
    missing = [each for each in (directory, *directory.parents) if not each.exists()]
    try:
        directory.mkdir(parents=True, exist_ok=True)
        yield
    except BaseException:
        if not (directory / IDENTITY_FILE).exists():
            with suppress(OSError):
                if directory in missing:
                    (directory / LOCK_FILE).unlink(missing_ok=True)
                    (directory / CLUSTER_ID_FILE).unlink(missing_ok=True)
                for each in missing:
                    each.rmdir()
        raise


def remove(
    broker_id: Annotated[int, typer.Argument(metavar="ID", min=1, max=999, help="The broker.")],
    etcd: Etcd = "",
    name: Annotated[
        str, typer.Option("--cluster", metavar="NAME", help="Name of the cluster in etcd.")
    ] = "",
    accept_loss: Annotated[
        bool,
        typer.Option("--accept-loss", help="Do it although no other broker may have what it has."),
    ] = False,
    credentials: Credentials = "",
    ca: Ca = "",
    cert: Cert = "",
    key: Key = "",
    as_json: Json = False,
) -> None:
    """Take a broker out of a cluster in etcd that does not come back.

    It must not run. One that was stopped leaves the brokers in sync by itself; this is for one
    that the others wait for, because it alone may have what was answered. By hand there is no list
    of brokers: cluster.brokers says how many there are.
    """
    if not etcd or not name:
        raise WrongUsage(BY_HAND)
    access = _access(name, etcd, credentials, ca, cert, key)
    from ...server.replication.etcd.administering import remove as remove_in_etcd

    was_there = _run(lambda: remove_in_etcd(access, name, broker_id, accept_loss=accept_loss))
    if as_json:
        emit_object({"broker": broker_id, "removed": was_there})
    elif was_there:
        emit([f"broker {broker_id} is not waited for any more"])
    else:
        emit([f"broker {broker_id} was not in the state of cluster {name}; no broker waits for it"])


def _access(name: str, etcd: str, credentials: str, ca: str, cert: str, key: str) -> Access:
    given = {
        "cluster.name": name,
        "cluster.etcd": etcd,
        "cluster.etcd.credentials": credentials,
        "cluster.etcd.ca": ca,
        "cluster.etcd.cert": cert,
        "cluster.etcd.key": key,
    }
    from ...server.replication.etcd.access import access_of

    try:
        settings = broker_settings({one: text for one, text in given.items() if text})
        if not name or not etcd:
            raise InvalidConfig("NAME and --etcd must not be empty")
        access = access_of(settings)
        access.tls()  # Its files are read.
    except InvalidConfig as error:
        raise WrongUsage(error.message) from None
    return access


def _run(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    try:
        return asyncio.run(work())
    except HorologError as error:
        raise CommandFailed(error.message) from error
