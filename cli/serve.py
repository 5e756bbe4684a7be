"""`horolog serve`: a broker in the foreground. Its options are those of `demo` too.

Parsed by argparse, which is there at once: a broker's start should not wait for more.
"""

import os
from argparse import ArgumentParser, Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from ..config.broker import BrokerSettings
from ..config.loading import load
from ..protocol.errors import InvalidConfig

WRONG_USAGE: Final = 2

_SETTING_OF: Final = {
    "data_dir": "data.dir",
    "listen": "listen",
    "http_listen": "http.listen",
    "kafka_listen": "kafka.listen",
}
"""Options that are settings under a shorter name."""


def serve(arguments: Sequence[str]) -> int:
    """Run a broker until SIGTERM or SIGINT; returns the exit code."""
    parser = broker_parser("horolog serve", "Run a broker until it is stopped (Ctrl-C, SIGTERM).")
    settings = settings_of(parser, parser.parse_args(arguments), os.environ)
    from ..server.main import serve as serve_until_stopped

    return serve_until_stopped(settings)


def broker_parser(program: str, description: str) -> ArgumentParser:
    """A parser with the options of every command that starts a broker."""
    parser = ArgumentParser(
        prog=program,
        description=description,
        epilog="Every setting can also be given in the environment: data.dir as HOROLOG_DATA_DIR. "
        "The command line wins over the environment, and the environment over the file.",
        allow_abbrev=False,
    )
    parser.add_argument("--data-dir", metavar="DIR", help="where all data is (./horolog-data)")
    parser.add_argument(
        "--listen", metavar="HOST:PORT", help="native protocol (127.0.0.1:7070; port 0: a free one)"
    )
    parser.add_argument("--http-listen", metavar="HOST:PORT", help="/metrics (127.0.0.1:7071), off")
    parser.add_argument("--kafka-listen", metavar="HOST:PORT", help="Kafka's (127.0.0.1:9092), off")
    parser.add_argument("--config", metavar="FILE", type=Path, help="settings in TOML")
    parser.add_argument(
        "--set",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        dest="settings",
        help="any setting; may be repeated",
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
            overrides.append(f"{name}={value}")
    try:
        return load(options.config, environ, overrides)
    except InvalidConfig as error:
        parser.exit(WRONG_USAGE, f"horolog: {error.message}\n")
