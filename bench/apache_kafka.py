"""Runs a real Apache Kafka for tests and comparisons: Maven fetches it, Java runs it.

    with apache_kafka(folder, brokers=3) as kafka:
        ...  # kafka.bootstrap; kafka.brokers[1].stop()

At the first use Maven fetches the packages of `apache_kafka.pom.xml` into `build/apache-kafka`;
that takes a minute. Later uses need no network. All brokers listen on free ports of the loopback.
The first broker is also the controller, so in a cluster stop another one.
"""

import fcntl
import shutil
import signal
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import IO, Final

from ..testing.ports import free_ports

POM: Final = Path(__file__).with_suffix(".pom.xml")
CACHE: Final = Path(__file__).resolve().parents[1] / "build" / "apache-kafka"

SMALL_JVM: Final = ("-Xms64m", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
"""JVM options for tests: a start takes half the time and a quarter of the memory. Not for
measurements."""

MEASURED_JVM: Final = ("-Xms1g", "-Xmx1g", "-XX:+UseG1GC")
"""JVM options for measurements; about those of Kafka's own scripts."""

STARTED: Final = "Kafka Server started"
"""Text in the log line that a broker writes when it can serve."""

_PLAIN: Final = "PLAINTEXT"
"""The listener that every broker has, which the brokers use among themselves too."""

_CLUSTER_ID: Final = "aG9yb2xvZy1iZXNpZGU0Mg"
_RESOLVE_SECONDS: Final = 900
_START_SECONDS: Final = 300
_STOP_SECONDS: Final = 60
_LOGGING: Final = """\
log4j.rootLogger=WARN, out
log4j.logger.kafka=INFO
log4j.logger.org.apache.kafka=WARN
log4j.appender.out=org.apache.log4j.ConsoleAppender
log4j.appender.out.layout=org.apache.log4j.PatternLayout
log4j.appender.out.layout.ConversionPattern=%d %p %m (%c)%n
"""


class Unavailable(Exception):
    """Apache Kafka cannot be run on this machine; the text says what is missing."""


def why_unavailable() -> str | None:
    """Return what is missing to run Apache Kafka here; None if nothing is missing."""
    missing = [name for name in ("java", "mvn") if shutil.which(name) is None]
    if not missing:
        return None
    return (
        f"Apache Kafka needs Java and Maven, and there is no {' and no '.join(missing)}; on Debian "
        "and Ubuntu: apt-get install default-jre-headless maven"
    )


def class_path() -> str:
    """Return Java's class path with Kafka's jars and their dependencies. Raises `Unavailable`."""
    return jars(POM)


def tool(main: str, *arguments: str, jvm: Sequence[str] = ()) -> list[str]:
    """Return the command that runs one of Kafka's tools, for a test. `main` is the tool's Java
    class.

    The first run stores the classes that it loaded. Later runs load them from there, which halves
    the time of a start. Java ignores a stored file of another class path. Raises `Unavailable`.
    """
    path, program = class_path(), Path(shutil.which("java") or "java").resolve()
    made_of = f"{path} {program} {program.stat().st_mtime_ns}"
    stored = CACHE / f"classes-{sha256(made_of.encode()).hexdigest()[:16]}.jsa"
    option = "SharedArchiveFile" if stored.exists() else "ArchiveClassesAtExit"
    quick = (*SMALL_JVM, f"-XX:{option}={stored}", "-Xlog:disable", *jvm)
    return ["java", *quick, "-cp", path, main, *arguments]


def jars(pom: Path, properties: Mapping[str, str] | None = None) -> str:
    """Return the jars that a POM names, and their dependencies. Raises `Unavailable`."""
    reason = why_unavailable()
    if reason is not None:
        raise Unavailable(reason)
    more = [f"-D{name}={value}" for name, value in (properties or {}).items()]
    what = pom.read_bytes() + "".join(more).encode()
    found = CACHE / f"class-path-{sha256(what).hexdigest()[:16]}"
    if not found.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        # Maven's repository is not made for two processes that write to it.
        with (CACHE / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not found.exists():
                _resolve(pom, more, found)
    return found.read_text().strip()


def _resolve(pom: Path, properties: Sequence[str], target: Path) -> None:
    """Have Maven fetch the jars and write their paths to `target`."""
    written = target.with_suffix(".new")
    command = [
        "mvn",
        "--batch-mode",
        "--quiet",
        f"--file={pom}",
        f"-Dmaven.repo.local={CACHE / 'repository'}",
        f"-Dmdep.outputFile={written}",
        *properties,
        "dependency:build-classpath",
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_RESOLVE_SECONDS)
    if done.returncode != 0 or not written.exists():
        said = (done.stdout + done.stderr)[-2000:]
        raise Unavailable(f"Maven could not fetch Apache Kafka:\n{said}")
    written.rename(target)


@dataclass(slots=True)
class KafkaBroker:
    """One broker of a cluster: a process that can be stopped, killed and started again."""

    node_id: int
    address: str
    """`HOST:PORT` of its Kafka protocol."""
    listeners: Mapping[str, str]
    """`HOST:PORT` of its other listeners, by name."""
    folder: Path
    """The folder of its configuration, its data (`data`) and its output (`log`)."""
    command: Sequence[str]
    process: subprocess.Popen[str] | None = None

    @property
    def data_dir(self) -> Path:
        return self.folder / "data"

    def begin(self) -> threading.Event:
        """Start the process. The returned event is set when the broker serves, or has ended."""
        self.process = subprocess.Popen(
            self.command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        ready = threading.Event()
        threading.Thread(
            target=_copy_lines, args=(self.process.stdout, self.folder / "log", ready), daemon=True
        ).start()
        return ready

    def start(self) -> None:
        """Start it, and wait until it serves. Raises `RuntimeError` with the broker's output."""
        self.wait_for(self.begin())

    def wait_for(self, ready: threading.Event) -> None:
        """Wait until it serves. Raises `RuntimeError` when it does not."""
        in_time = ready.wait(_START_SECONDS)
        assert self.process is not None
        if not in_time or self.process.poll() is not None:
            written = (self.folder / "log").read_text()[-4000:]
            raise RuntimeError(f"Kafka's broker {self.node_id} did not start:\n{written}")

    def stop(self) -> None:
        """Stop the broker with a clean shutdown."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """Kill it. Does nothing if it does not run."""
        self._end(signal.SIGKILL)

    def _end(self, number: int) -> None:
        if self.process is not None:
            self.process.send_signal(number)
            self.process.wait(_STOP_SECONDS)
            self.process = None


def _copy_lines(lines: IO[str], log: Path, ready: threading.Event) -> None:
    """Copy the output of a broker to its log. Set the event when the broker serves, or closes its
    output."""
    with lines, log.open("a") as target:
        for line in lines:
            target.write(line)
            target.flush()
            if STARTED in line:
                ready.set()
    ready.set()


@dataclass(frozen=True, slots=True)
class ApacheKafka:
    """A running cluster."""

    brokers: Sequence[KafkaBroker]
    class_path: str = field(repr=False)

    @property
    def bootstrap(self) -> str:
        """The addresses of all brokers, in the form of `bootstrap.servers`."""
        return ",".join(broker.address for broker in self.brokers)

    def at(self, listener: str) -> str:
        """The addresses of all brokers at another listener."""
        return ",".join(broker.listeners[listener] for broker in self.brokers)


@contextmanager
def apache_kafka(
    folder: Path,
    *,
    brokers: int = 1,
    jvm: Sequence[str] = SMALL_JVM,
    settings: Mapping[str, str] | None = None,
    listeners: Mapping[str, str] | None = None,
    users: Sequence[str] = (),
) -> Iterator[ApacheKafka]:
    """Start a cluster with its files in `folder`; yield it when it serves, and kill it at the end.

    `settings` are those of every broker, under Kafka's names. `listeners` are listeners besides the
    plain one: name -> security protocol. `users` has the form of `kafka-storage format
    --add-scram`. Raises `Unavailable`, and `RuntimeError` if a broker does not start.
    """
    jars = class_path()
    more = listeners or {}
    ports = iter(free_ports(1 + brokers * (1 + len(more))))
    controller = f"127.0.0.1:{next(ports)}"
    started = [
        _configured(
            folder / f"broker-{number}",
            number,
            {name: f"127.0.0.1:{next(ports)}" for name in (_PLAIN, *more)},
            controller,
            brokers,
            _protocols(more) | dict(settings or {}),
        )
        for number in range(1, brokers + 1)
    ]
    formats = [
        subprocess.Popen(_format(jars, broker, users), stdout=subprocess.DEVNULL)
        for broker in started
    ]
    codes = [process.wait(_START_SECONDS) for process in formats]
    if any(codes):
        raise RuntimeError(f"Kafka's storage could not be formatted in {folder}")
    with ExitStack() as ends:
        waits = []
        for broker in started:
            broker.command = _java(jars, jvm, broker.folder, "kafka.Kafka", _properties(broker))
            ends.callback(broker.kill)
            waits.append(broker.begin())
        for broker, ready in zip(started, waits, strict=True):
            broker.wait_for(ready)
        yield ApacheKafka(started, jars)


def _configured(
    folder: Path,
    node_id: int,
    addresses: Mapping[str, str],
    controller: str,
    brokers: int,
    settings: Mapping[str, str],
) -> KafkaBroker:
    """Write the configuration of a broker that is not started yet."""
    folder.mkdir(parents=True)
    leads = node_id == 1
    listeners = ",".join(f"{name}://{address}" for name, address in addresses.items())
    copies = str(min(brokers, 3))
    own = {
        "node.id": str(node_id),
        "process.roles": "broker,controller" if leads else "broker",
        "listeners": listeners + (f",CONTROLLER://{controller}" if leads else ""),
        "advertised.listeners": listeners,
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": f"1@{controller}",
        "log.dirs": str(folder / "data"),
        "offsets.topic.replication.factor": copies,
        "offsets.topic.num.partitions": "3",
        "transaction.state.log.replication.factor": copies,
        "transaction.state.log.min.isr": "1",
        "transaction.state.log.num.partitions": "3",
        "group.initial.rebalance.delay.ms": "0",
        # Messages of years ago are sent too, and retention runs half a minute after the start.
        "log.retention.ms": "-1",
    }
    lines = [f"{name}={value}\n" for name, value in {**own, **settings}.items()]
    more = {name: address for name, address in addresses.items() if name != _PLAIN}
    broker = KafkaBroker(node_id, addresses[_PLAIN], more, folder, ())
    _properties(broker).write_text("".join(lines))
    (folder / "log4j.properties").write_text(_LOGGING)
    return broker


def _properties(broker: KafkaBroker) -> Path:
    return broker.folder / "server.properties"


def _protocols(listeners: Mapping[str, str]) -> dict[str, str]:
    """The setting that says which security protocol each listener has."""
    if not listeners:
        return {}
    known = {"CONTROLLER": _PLAIN, _PLAIN: _PLAIN, **listeners}
    text = ",".join(f"{name}:{protocol}" for name, protocol in known.items())
    return {"listener.security.protocol.map": text}


def _format(jars: str, broker: KafkaBroker, users: Sequence[str]) -> list[str]:
    """The command that prepares a broker's empty data directory."""
    arguments = ["format", "--cluster-id", _CLUSTER_ID, "--config", str(_properties(broker))]
    for user in users:
        arguments += ("--add-scram", user)
    return _java(jars, SMALL_JVM, broker.folder, "kafka.tools.StorageTool", *arguments)


def _java(
    jars: str, jvm: Sequence[str], folder: Path, main: str, *arguments: str | Path
) -> list[str]:
    logging = f"-Dlog4j.configuration=file:{folder / 'log4j.properties'}"
    options = ["-Djava.awt.headless=true", f"-Dkafka.logs.dir={folder}", logging, *jvm]
    return ["java", *options, "-cp", jars, main, *map(str, arguments)]
