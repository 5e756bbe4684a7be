"""Spark's source and sink at a guarded cluster; and nowhere that Spark shows anything, a secret."""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from horolog import Consumer, Producer, Security
from horolog.bench.apache_kafka import ApacheKafka
from horolog.pipeline.java import NoJava, find_java

from .certificates import KEY_PASSWORD, encrypted
from .conftest import NewTopic
from .listeners import PASSWORD, Certificates

pytestmark = pytest.mark.timeout(1200)

PROGRAM = Path(__file__).with_name("spark_program.py")
WRONG = "not-the-password-6602"
COUNT = 50


@pytest.mark.secure_clients  # guard/test_secrets_of_a_run.py looks at a broker and commands
async def test_no_secret_is_shown(
    apache: ApacheKafka, certificates: Certificates, new_topic: NewTopic, tmp_path: Path
) -> None:
    try:
        find_java(os.environ)
    except NoJava as error:
        if os.environ.get("HOROLOG_REQUIRE") == "all":
            pytest.fail(str(error))
        pytest.skip(str(error))
    source, *targets = [await new_topic() for _ in range(5)]
    plain = f"kafka://{apache.bootstrap}"
    async with Producer(plain) as producer:
        for number in range(COUNT):
            await producer.enqueue(source, b"%d" % number)
    secret_file = tmp_path / "secret-file"
    secret_file.write_text(PASSWORD)
    pair = encrypted(certificates.client)
    guarded, ca = apache.at("GUARDED"), certificates.ca
    options = [
        {
            "bootstrap.servers": f"kafka+tls://{guarded}",
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": "alice",
            "sasl.password": PASSWORD,
            "ssl.ca.location": ca,
        },
        {
            "kafka.bootstrap.servers": f"kafka://{guarded}",
            "kafka.security.protocol": "SASL_SSL",
            "kafka.sasl.mechanism": "PLAIN",
            "kafka.sasl.username": "alice",
            "kafka.sasl.password.file": str(secret_file),
            "kafka.ssl.ca.location": ca,
        },
        {
            "bootstrap.servers": f"kafka+tls://{apache.at('MUTUAL')}",
            "ssl.ca.location": ca,
            "ssl.certificate.location": str(pair.certificate),
            "ssl.key.location": str(pair.key),
            "ssl.key.password": KEY_PASSWORD,
        },
    ]
    of_stream = {
        "bootstrap.servers": f"kafka+tls://{guarded}",
        "sasl.username": "alice",
        "sasl.password.env": "TEST_PASSWORD",
        "ssl.ca.location": ca,
    }
    given = {
        "options": options,
        "of_stream": of_stream,
        "source": source,
        "targets": targets,
        "wrong": WRONG,
    }
    settings = tmp_path / "settings.json"
    settings.write_text(json.dumps(given))
    done = await asyncio.to_thread(_run, tmp_path)
    assert done.returncode == 0, done.stderr[-5000:]
    assert done.stdout.count(f"rows: {COUNT}\n") == len(options)
    assert done.stdout.count("did not let the user 'alice' in") >= 2
    for topic in targets:
        assert await read(plain, topic, None) == COUNT
    secret_file.unlink()
    settings.unlink()
    _check(tmp_path, done.stdout, done.stderr)


def _run(folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(PROGRAM), str(folder)],
        cwd=folder,
        env={**os.environ, "TEST_PASSWORD": PASSWORD},
        capture_output=True,
        text=True,
    )


def _check(folder: Path, *outputs: str) -> None:
    """No secret is in what was written or printed; and what was looked for is there at all."""
    files = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    events = b"".join(content for path, content in files.items() if "events" in path.parts)
    assert any("offsets" in path.parts for path in files)
    # Options are shown, in the event log, the page and the log, but for those that are secrets.
    out, log = outputs
    for text in (events.decode(), files[folder / "page.html"].decode(), out):
        assert "sasl.username" in text
        assert "redacted" in text
    assert " INFO " in log
    shown = [*files.values(), out.encode(), log.encode()]
    for secret in (PASSWORD, WRONG, KEY_PASSWORD):
        places = [str(path) for path, content in files.items() if secret.encode() in content]
        assert places == []
        assert all(secret.encode() not in one for one in shown)


async def read(address: str, topic: str, security: Security | None) -> int:
    async with Consumer(address, security=security) as consumer:
        consumer.assign(topic)
        await consumer.seek_to_beginning()
        return sum([len(await consumer.fetch()) for _ in range(3)])
