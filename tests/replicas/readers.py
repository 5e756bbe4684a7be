"""Kafka clients that read a partition from its beginning, and whether they see that it was cut."""

import subprocess
from base64 import b64decode
from pathlib import Path
from typing import Final

from confluent_kafka import Consumer as LibrdkafkaConsumer
from confluent_kafka import TopicPartition as LibrdkafkaPlace
from kafka import KafkaConsumer
from kafka import TopicPartition as PythonPlace

from horolog.bench.apache_kafka import SMALL_JVM, jars

_JAVA: Final = Path(__file__).parents[1] / "clients" / "java"
_VERSION: Final = "4.1.1"
_ENDS_S: Final = 20


class Librdkafka:
    """confluent-kafka; a log that was cut is an error to it."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._consumer = LibrdkafkaConsumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "g",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "topic.metadata.refresh.interval.ms": 500,
                "reconnect.backoff.max.ms": 200,
            }
        )
        self._consumer.assign([LibrdkafkaPlace(topic, 0, 0)])
        self.cut = False

    def poll(self) -> list[bytes]:
        message = self._consumer.poll(0.2)
        if message is None:
            return []
        error = message.error()
        if error is not None:
            self.cut = self.cut or "log truncation detected at offset" in error.str()
            return []
        return [message.value() or b""]

    def close(self) -> None:
        self._consumer.close()


class KafkaPython:
    """kafka-python; it goes back to where its log was cut."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._consumer = KafkaConsumer(
            bootstrap_servers=bootstrap.split(","),
            group_id=None,
            auto_offset_reset="latest",
            metadata_max_age_ms=500,
            reconnect_backoff_max_ms=200,
        )
        self._place = PythonPlace(topic, 0)
        self._consumer.assign([self._place])
        self._consumer.seek(self._place, 0)
        self._last = -1
        self.cut = False

    def poll(self) -> list[bytes]:
        found = self._consumer.poll(200).get(self._place, [])
        for record in found:
            self.cut = self.cut or record.offset <= self._last
            self._last = record.offset
        return [record.value for record in found]

    def close(self) -> None:
        self._consumer.close()


class Java:
    """Kafka's own, in a process that takes commands; it goes back to where its log was cut."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        path = jars(_JAVA / "pom.xml", {"kafka.version": _VERSION})
        self._process = subprocess.Popen(
            ["java", *SMALL_JVM, "-cp", path, str(_JAVA / "Commands.java")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self._say(f"bootstrap.servers={bootstrap}")
        self._ask("assign", "reader", topic, "0")
        self._last = -1
        self.cut = False

    def _say(self, *parts: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("\t".join(parts) + "\n")
        self._process.stdin.flush()

    def _ask(self, *parts: str) -> list[str]:
        self._say(*parts)
        assert self._process.stdout is not None
        outcome, *found = self._process.stdout.readline().rstrip("\n").split("\t")
        assert outcome == "ok", found
        return found

    def poll(self) -> list[bytes]:
        values = []
        for message in self._ask("poll", "reader", "200"):
            _, offset, _, value = message.split(":")
            self.cut = self.cut or int(offset) <= self._last
            self._last = int(offset)
            values.append(b64decode(value))
        return values

    def close(self) -> None:
        with self._process as process:
            assert process.stdin is not None
            process.stdin.close()
            try:
                process.wait(_ENDS_S)
            finally:
                process.kill()
