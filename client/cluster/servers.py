"""Addresses of what a client talks to: one Horolog broker, or a Kafka cluster.

127.0.0.1:7070                  a Horolog broker, over its own protocol
kafka://a:9092,b:9092           a Kafka cluster, or Kafka's port of a Horolog broker
"""

from dataclasses import dataclass
from typing import Final

from ...config.address import split_address

KAFKA: Final = "kafka://"


@dataclass(frozen=True, slots=True)
class Servers:
    """Where to begin."""

    addresses: tuple[str, ...]
    """`HOST:PORT`, at least one; of a cluster any of its brokers."""
    kafka: bool


def parse_servers(text: str) -> Servers:
    """Take an address apart. Raises `ValueError` saying what is wrong with it."""
    if not text.startswith(KAFKA):
        if "://" in text:
            raise ValueError(f"{text!r} is neither HOST:PORT nor kafka://HOST:PORT[,HOST:PORT...]")
        split_address(text)
        return Servers((text,), kafka=False)
    addresses = tuple(one.strip() for one in text[len(KAFKA) :].rstrip("/").split(","))
    for one in addresses:
        split_address(one)
    return Servers(addresses, kafka=True)
