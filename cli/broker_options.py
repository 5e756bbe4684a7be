"""The options of every command that starts a broker."""

from typing import Final

from ..values import value_class

ENVIRONMENT: Final = (
    "Every setting can also be given in the environment: data.dir as HOROLOG_DATA_DIR. The command "
    "line wins over the environment, and the environment over the file."
)


@value_class
class BrokerOption:
    """An option of a command that starts a broker."""

    flag: str
    metavar: str
    help: str
    repeats: bool = False
    is_flag: bool = False


HISTORY: Final = BrokerOption(
    "--history",
    "PATH",
    "take the history from this folder: its commits when it is a git repository with more than "
    "1,000 of them, else its files",
)

SET: Final = BrokerOption("--set", "NAME=VALUE", "any setting; may be repeated")

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
    SET,
)
