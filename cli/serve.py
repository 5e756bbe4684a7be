"""`horolog serve`: runs a broker in the foreground. `horolog demo` has the same options.

Options are parsed by argparse, which is quick to import, so that a broker starts quickly.
"""

import os
from argparse import ArgumentParser, Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from ..config.address import OFF
from ..config.broker import BrokerSettings, ignored_variables, load
from ..memory import no_collection
from ..printable import printable
from ..protocol.errors import InvalidConfig
from .broker_options import BROKER_OPTIONS, ENVIRONMENT, SET
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
"""Options that set a setting -> the name of the setting."""


def serve(arguments: Sequence[str]) -> int:
    """Run a broker until SIGTERM or SIGINT; return the exit code."""
    parser = broker_parser("horolog serve", "Run a broker until it is stopped (Ctrl-C, SIGTERM).")
    settings = settings_of(parser, parser.parse_args(arguments), os.environ)
    with no_collection():
        from ..server.main import serve as serve_until_stopped

    return serve_until_stopped(settings, ignored=ignored_variables(os.environ))


def broker_parser(program: str, description: str) -> ArgumentParser:
    """Make a parser with the options of every command that starts a broker."""
    parser = ArgumentParser(
        prog=program,
        description=description,
        epilog=ENVIRONMENT,
        allow_abbrev=False,
    )
    for option in BROKER_OPTIONS:
        if option is SET:
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
    """Return the settings from options, environment and file. A wrong setting ends the program with
    exit code 2."""
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
    """Join the addresses of a repeated option with commas. `off` cancels those before it."""
    last_off = max((place for place, each in enumerate(addresses) if each == OFF), default=-1)
    return ",".join(addresses[last_off + 1 :]) or OFF
