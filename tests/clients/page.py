"""Writes docs/clients.md from what the tests here are declared to prove."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from horolog.tests.ecosystem.page import lines as ecosystem_lines

from .apache_tools import ApacheTools, version
from .client import Client
from .kafka_js import SOURCES, KafkaJs
from .kcat import Kcat
from .matrix import OLD_CLIENTS, SHOWN
from .steps import Step

_LOCK: Final = Path(__file__).resolve().parents[2] / "requirements" / "dev.txt"
_HEAD: Final = """\
# Clients of Kafka

What was written for Kafka works with Horolog as it is: point it at the address that `horolog serve`
shows as `kafka=` (`kafka.listen`, by default `127.0.0.1:9092`). Clients on other machines are sent
to `advertised.listeners`. To them a broker that is alone is a Kafka 2.1 of one node, and
[several with the same data](replication/README.md) are a cluster of as many, of which one leads.

The table is what `tests/clients` runs in every test run, against the versions named: real clients,
a broker in a process of its own, real sockets and files. This page is written from those tests'
declarations by `make docs`.
"""
_TAIL: Final = """\
## What is worth knowing

- **Times.** "The first offset at a time" (`offsets_for_times`, `fetchTopicOffsetsByTimestamp`,
  `kcat -Q`) finds the first message at or after it, inside a compressed batch too. Whose times they
  are is a topic's `message.timestamp.type`. How far a producer's times may be from the broker's
  clock is `max.message.time.difference.ms`, which Kafka calls
  `message.timestamp.difference.max.ms`; clients create, alter and describe topics with either name.
  Of the two in one request, the one that only repeats what stands gives way. What is refused meets
  `INVALID_TIMESTAMP`; most clients show only that name, so the broker's log says which message and
  which times (`timestamp_refused`).
- **Message formats.** Batches are stored as they were sent. Readers that are too old for a format
  get it in theirs; headers are lost then, and in format v0 times too. `message.format.version` of
  a topic stores everything in one format instead.
- **Old clients** that believe they talk to a Kafka 0.9 or 0.10 share topics with those of today.
  What clients of 0.9 send (format v0) has no time, and librdkafka then shows the time 0 with the
  type "not available"; with `message.format.version=0.10.2` or later it shows -1.
- **lz4 of old clients** has a checksum of its own in format v0, which most clients of today refuse.
  So it is stored as v1, where every client reads it, and clients of 0.9 get theirs. A topic whose
  `message.format.version` is 0.9 stores v0 all the same: choose another codec there. kafka-python
  needs the package `xxhash` for lz4 in v0.
- **Compression.** Every codec comes back as it was sent. Not every client has every one: kafkajs
  has only gzip, and takes snappy and lz4 from other packages. Readers of before Kafka 2.1 have no
  zstd; those that know record batches (fetch from version 4 on) get it as it is stored all the
  same.
- **lz4 frames** need independent blocks, as everywhere in Kafka; `lz4js` for Node.js cannot write
  them.
- **A restart** of the broker is a pause: producers that number their batches (`enable.idempotence`)
  send again what was not acknowledged, and nothing is stored twice. Members of groups join again by
  themselves and go on where they have committed. A topic whose `message.format.version` is older
  than 0.11 has no place for such numbers and refuses them (43), as Kafka does: its producers write
  with `enable.idempotence=false`.
- **Metadata** is served up to version 7: with older ones librdkafka 2.3 and later fails on several
  topics with short names. A broker of several serves it up to version 10, because clients believe
  leader epochs from version 9 on only. So they know when messages that they have read were lost
  with their leader: Kafka's own for Java and kafka-python go back to where that was, librdkafka
  resets as `auto.offset.reset` says.
- **Transactions** are not there. A producer with a `transactional.id` ends when it starts: with
  `UnsupportedVersionException` in Java (so in Flink and Kafka Streams), `_UNSUPPORTED_FEATURE` in
  librdkafka, `UNSUPPORTED_VERSION` (35) in others. Leave `transactional.id` out, and choose
  at-least-once where a framework asks; `enable.idempotence` is served. In Java the text is "Cannot
  create a v0 FindCoordinator request because we require features supported only in 2 or later": it
  is about this, not about a network. FindCoordinator 2 stays out, because with it librdkafka would
  try again for its whole time-out instead of ending at once.
- **Topics that do not exist** are made when a client produces to them or asks about them
  (`auto.create.topics.enable`), whichever broker of several it asks: a follower has its leader make
  them. Whether the client may create a topic is decided by the rules of the broker that it asked.
- **Compacted topics** (`cleanup.policy=compact`) are accepted, not cleaned yet: every message
  stays, and a message without a key is refused. Programs that keep their state in such topics work;
  their topics grow, and a program that starts without its state reads all of it again.
- **Copies.** A broker alone refuses a replication factor above 1, as a Kafka of one broker does:
  Connect (`config.storage.replication.factor` and its siblings), MirrorMaker 2 and goka ask for
  more unless told so. [Several brokers](replication/README.md#how-many-copies-there-are) accept up
  to their number.
- **`batch.size`** matters where every batch waits for a sync: with `acks=all` a batch is answered
  once it is on the disk, so a producer that sends one small batch at a time sends one a sync.
  Larger batches (`batch.size`, `linger.ms`) and several requests under way share it.
- **kminion** reads offsets by the topic `__consumer_offsets` unless told otherwise, and there is
  none: set `consumerGroups.scrapeMode: adminApi`.
- **streamz** (`from_kafka_batched`) loses its first message where its group rebalances at once:
  set `group.initial.rebalance.delay.ms` above 0, as Kafka has it; here it is 0 by default.
- **Not there** either: the group protocol of Kafka 4, commits to a group whose name is empty, which
  Kafka 2.1 still takes. With `group.protocol=consumer` librdkafka gets nothing and says nothing for
  15 seconds; leave it at `classic`.
"""


def lines() -> Iterator[str]:
    """The page, line by line."""
    yield from _HEAD.splitlines()
    yield ""
    yield "| | " + " | ".join(f"{kind.name} {version_of(kind)}".rstrip() for kind in SHOWN) + " |"
    yield "|---" * (len(SHOWN) + 1) + "|"
    notes: list[str] = []
    for step in Step:
        cells = [_cell(kind, step, notes) for kind in SHOWN]
        yield f"| {step.value} | " + " | ".join(cells) + " |"
    yield ""
    for number, note in enumerate(notes, start=1):
        yield f"{number}. {note}."
    yield ""
    yield (
        f"A dash is what is not tried: {ApacheTools.name} are `kafka-console-producer`, "
        "`kafka-console-consumer` and others over Kafka's Java client, and each needs seconds to "
        "start. `kafka-topics` (create, describe, delete), `kafka-configs` (alter a "
        "topic), `kafka-consumer-groups` and `kafka-get-offsets` (by time) are tried apart."
    )
    yield ""
    names = ", ".join(kind.name for kind in OLD_CLIENTS)
    yield f"The last row has three more readers and writers: {names}."
    yield ""
    yield from ecosystem_lines()
    yield ""
    yield from _TAIL.splitlines()


def _cell(kind: type[Client], step: Step, notes: list[str]) -> str:
    reason = kind.unable.get(step)
    if reason is None:
        return "-" if step in kind.untried else "yes"
    note = f"{kind.name} {reason}"
    if note not in notes:
        notes.append(note)
    return f"no ({notes.index(note) + 1})"


def version_of(kind: type[Client]) -> str:
    """The version that tests run with; Debian's for what comes from there."""
    if kind is Kcat:
        return "(Debian)"
    if kind is ApacheTools:
        return version()
    if kind is KafkaJs:
        lock = json.loads((SOURCES / "package-lock.json").read_text("utf-8"))
        return str(lock["packages"][f"node_modules/{kind.name}"]["version"])
    pin = re.search(rf"^{kind.name}==(\S+)", _LOCK.read_text("utf-8"), re.MULTILINE)
    assert pin is not None, kind.name
    return pin[1]


if __name__ == "__main__":
    print("\n".join(lines()))  # noqa: T201 - it is made for a shell
