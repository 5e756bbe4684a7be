"""`horolog serve`: a broker in the foreground. Its options are those of `demo` too.

Parsed by argparse, which is there at once: a broker's start should not wait for more.
"""

import gc
import os
from argparse import ArgumentParser, Namespace
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ..config.broker import BrokerSettings
from ..config.listeners import OFF
from ..config.loading import ignored_variables, load
from ..printable import printable
from ..protocol.errors import InvalidConfig
from .errors import WRONG_USAGE

_SETTING_OF: Final = {
    "data_dir": "data.dir",
    "listen": "listen",
    "http_listen": "http.listen",
    "kafka_listen": "kafka.listen",
    "broker_id": "broker.id",
    "follow": "cluster.follow",
    "etcd": "cluster.etcd",
    "cluster": "cluster.name",
    "create_cluster": "cluster.create",
    "alone": "cluster.alone",
    "discard": "cluster.discard",
}
"""Options that are settings under a shorter name."""

ENVIRONMENT: Final = (
    "Every setting can also be given in the environment: data.dir as HOROLOG_DATA_DIR. The command "
    "line wins over the environment, and the environment over the file."
)


@dataclass(frozen=True, slots=True)
class BrokerOption:
    """An option of a command that starts a broker."""

    flag: str
    metavar: str
    help: str
    repeats: bool = False
    is_flag: bool = False


_SET: Final = BrokerOption("--set", "NAME=VALUE", "any setting; may be repeated")

BROKER_OPTIONS: Final = (
    BrokerOption("--data-dir", "DIR", "where all data is (./horolog-data)"),
    BrokerOption(
        "--listen",
        "ADDRESS",
        "native protocol: HOST:PORT (127.0.0.1:7070; port 0 takes a free one) or tls://HOST:PORT; "
        "may be repeated",
        repeats=True,
    ),
    BrokerOption(
        "--http-listen",
        "ADDRESS",
        "the page and /metrics (127.0.0.1:7071), or off; may be repeated",
        repeats=True,
    ),
    BrokerOption(
        "--kafka-listen",
        "ADDRESS",
        "Kafka's protocol (127.0.0.1:9092), or off; may be repeated, and begin with SASL_SSL://",
        repeats=True,
    ),
    BrokerOption("--config", "FILE", "settings in TOML"),
    BrokerOption("--broker-id", "N", "number of this broker, of several with the same data"),
    BrokerOption(
        "--follow",
        "HOST:PORT[,HOST:PORT]",
        "the broker that leads, or brokers of which one does: copy what it has",
    ),
    BrokerOption("--etcd", "URL[,URL]", "addresses of etcd, which decides who leads"),
    BrokerOption("--cluster", "NAME", "name of the cluster in etcd"),
    BrokerOption(
        "--create-cluster", "", "lead from the first start on: others copy this data", is_flag=True
    ),
    BrokerOption("--alone", "", "lead although the other brokers do not answer", is_flag=True),
    BrokerOption(
        "--discard", "", "follow, and set aside messages that are of another cluster", is_flag=True
    ),
    _SET,
)


def serve(arguments: Sequence[str]) -> int:
    """Run a broker until SIGTERM or SIGINT; returns the exit code."""
    parser = broker_parser("horolog serve", "Run a broker until it is stopped (Ctrl-C, SIGTERM).")
    settings = settings_of(parser, parser.parse_args(arguments), os.environ)
    # Nothing that is imported is garbage; to look for it takes a twentieth of the start.
    gc.disable()
    from ..server.main import serve as serve_until_stopped

    gc.enable()
    return serve_until_stopped(settings, ignored=ignored_variables(os.environ))


def broker_parser(program: str, description: str) -> ArgumentParser:
    """A parser with the options of every command that starts a broker."""
    parser = ArgumentParser(
        prog=program,
        description=description,
        epilog=ENVIRONMENT,
        allow_abbrev=False,
    )
    for option in BROKER_OPTIONS:
        if option is _SET:
            parser.add_argument(
                option.flag,
                metavar=option.metavar,
                help=option.help,
                action="append",
                default=[],
                dest="settings",
            )
        elif option.is_flag:
            parser.add_argument(
                option.flag, help=option.help, action="store_const", const="true", default=None
            )
        else:
            action = "append" if option.repeats else "store"
            parser.add_argument(
                option.flag, metavar=option.metavar, help=option.help, action=action
            )
    return parser


def settings_of(
    parser: ArgumentParser, options: Namespace, environ: Mapping[str, str]
) -> BrokerSettings:
    """The settings that options and environment make. Leaves with wrong usage when refused."""
    overrides = list(options.settings)
    for attribute, name in _SETTING_OF.items():
        value = getattr(options, attribute)
        if value is not None:
            text = _joined(value) if isinstance(value, list) else value
            overrides.append(f"{name}={text}")
    try:
        config_file = None if options.config is None else Path(options.config)
        return load(config_file, environ, overrides)
    except InvalidConfig as error:
        parser.exit(WRONG_USAGE, f"horolog: {printable(error.message)}\n")


def _joined(addresses: list[str]) -> str:
    """Addresses of an option that was repeated. `off` takes back those before it."""
    last_off = max((place for place, each in enumerate(addresses) if each == OFF), default=-1)
    return ",".join(addresses[last_off + 1 :]) or OFF
