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

Programs written for Kafka work with Horolog unchanged: point them at the address that `horolog
serve` shows as `kafka=` (`kafka.listen`, by default `127.0.0.1:9092`). Clients on other machines
connect to the addresses in `advertised.listeners`. A single broker looks to clients like a Kafka
2.1 cluster of one node. [Several brokers with the same data](replication/README.md) look like a
cluster of that size, in which one broker leads every partition.

The table shows what `tests/clients` checks in every test run, with the versions named: real
clients, a broker in its own process, real sockets and files. `make docs` writes this page from the
declarations of those tests.
"""
_TAIL: Final = """\
## Good to know

- **Times.** A search by time (`offsets_for_times`, `fetchTopicOffsetsByTimestamp`, `kcat -Q`) finds
  the first message at or after that time, inside a compressed batch too. The topic's
  `message.timestamp.type` says whether timestamps are the producer's or the broker's.
  `max.message.time.difference.ms`, which Kafka calls `message.timestamp.difference.max.ms`, limits
  how far a producer's timestamps may be from the broker's clock. Clients create, alter and describe
  topics with either name; if one request has both, the one that only repeats the present value is
  ignored. The broker refuses other timestamps with `INVALID_TIMESTAMP`. Most clients show only that
  name, so the broker's log says which message and which times (`timestamp_refused`).
- **Message formats.** Batches are stored as they were sent. For a consumer that is too old for the
  stored format the broker converts messages; they lose their headers then, and in format v0 their
  timestamps too. With `message.format.version` a topic stores everything in one format instead.
- **Old clients** that expect Kafka 0.9 or 0.10 can share topics with current clients. Messages of
  0.9 clients (format v0) have no timestamp. librdkafka then shows the time 0 with the type "not
  available"; with `message.format.version=0.10.2` or later it shows -1.
- **lz4 of old clients** has a different checksum in format v0, which most current clients refuse.
  The broker stores such messages as v1, which every client reads, and converts them back for 0.9
  clients. A topic whose `message.format.version` is 0.9 does store v0: choose another codec there.
  kafka-python needs the package `xxhash` for lz4 in v0.
- **Compression.** Messages come back with the codec that they were sent with. Not every client has
  every codec: kafkajs has only gzip, and needs other packages for snappy and lz4. Consumers from
  before Kafka 2.1 have no zstd. If they know record batches (Fetch from version 4 on), they still
  get zstd batches as stored.
- **lz4 frames** need independent blocks, as everywhere in Kafka; `lz4js` for Node.js cannot write
  them.
- **A restart** of the broker is only a pause for clients. Idempotent producers
  (`enable.idempotence`) send batches again that were not acknowledged, and nothing is stored twice.
  Members of consumer groups join again by themselves and go on from their committed offsets. A
  topic whose `message.format.version` is older than 0.11 cannot store sequence numbers and refuses
  such batches (43), as Kafka does: its producers need `enable.idempotence=false`.
- **Metadata** requests are served up to version 7: with older versions librdkafka 2.3 and later
  fails on several topics with short names. Cluster members serve them up to version 10, because
  clients use leader epochs only from version 9 on. With epochs, clients notice when messages that
  they have read were lost with a leader: Kafka's Java client and kafka-python go back to the offset
  of the loss, and librdkafka resets by `auto.offset.reset`.
- **Transactions** are not supported. A producer with a `transactional.id` fails when it starts:
  with `UnsupportedVersionException` in Java (so in Flink and Kafka Streams),
  `_UNSUPPORTED_FEATURE` in librdkafka, `UNSUPPORTED_VERSION` (35) in others. Leave
  `transactional.id` out, and choose at-least-once in frameworks that have the choice;
  `enable.idempotence` works. Java's message is "Cannot create a v0 FindCoordinator request because
  we require features supported only in 2 or later": the cause is the missing transactions, not the
  network. The broker leaves FindCoordinator 2 out on purpose: with it librdkafka would retry until
  its time-out instead of failing at once.
- **Topics that do not exist** are created when a client produces to them or requests their metadata
  (`auto.create.topics.enable`), at any cluster member: a follower has the leader create them. The
  access rules of the broker that got the request decide whether the client may create a topic.
- **Compacted topics** (`cleanup.policy=compact`) are accepted, but not cleaned yet: every message
  stays, and a message without a key is refused. Programs that keep their state in such topics work.
  Their topics grow, and a program that starts without its state reads the whole topic again.
- **Replication factor.** A single broker refuses a replication factor above 1, as Kafka does:
  Connect (`config.storage.replication.factor` and its siblings), MirrorMaker 2 and goka ask for
  more unless configured otherwise. [A cluster](replication/README.md#how-many-copies-there-are)
  accepts factors up to its number of brokers.
- **`batch.size`** matters where every batch waits for a sync. With `acks=all` the broker answers
  once the batch is on the disk, so a producer that sends one small batch at a time waits for one
  sync per batch. Larger batches (`batch.size`, `linger.ms`) and several requests in flight share a
  sync.
- **kminion** by default reads offsets from the topic `__consumer_offsets`, which Horolog does not
  have: set `consumerGroups.scrapeMode: adminApi`.
- **streamz** (`from_kafka_batched`) loses its first message if its group rebalances at once. Set
  `group.initial.rebalance.delay.ms` above 0, as in Kafka; Horolog's default is 0.
- **Not supported** either: the group protocol of Kafka 4, and commits to a group with an empty
  name, which Kafka 2.1 still accepts. With `group.protocol=consumer` librdkafka gets no messages
  and no error for 15 seconds; leave it at `classic`.
"""


def lines() -> Iterator[str]:
    """Yield the lines of the page."""
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
    """The version that the tests run with; "(Debian)" for kcat, which Debian packages."""
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
