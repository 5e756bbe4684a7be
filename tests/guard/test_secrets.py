"""No secret that was used stands in anything that a broker or the program says."""

import io
import subprocess
import sys
from pathlib import Path

import aiohttp
import pytest

from horolog.protocol.errors import SaslAuthenticationFailed
from horolog.testing.access import log_in
from horolog.testing.program import Program
from horolog.testing.wire import wire

from .conftest import PASSWORD, USERS, Authority, Guarded, Pair, openssl

GUESS = "guess-0f9a61"
KEY_PASSWORD = "key-5d11c7"


async def test_a_run(
    guarded: Guarded,
    authority: Authority,
    pair: Pair,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    log, said = io.StringIO(), []
    locked, password = tmp_path / "locked.pem", tmp_path / "password"
    password.write_text(KEY_PASSWORD)
    openssl(*("pkcs8", "-topk8", "-in", pair.key, "-out", locked, "-passout", f"file:{password}"))
    tls = authority.trusting()
    async with (
        guarded(
            log_stream=log, log_level="debug", tls_key=locked, tls_key_password_file=password
        ) as broker,
        aiohttp.ClientSession() as session,
    ):
        for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN"):
            async with wire(broker.addresses.native, tls=tls) as client:
                await log_in(client, "alice", PASSWORD, mechanism)
            async with wire(broker.addresses.native, tls=tls) as client:
                with pytest.raises(SaslAuthenticationFailed) as refused:
                    await log_in(client, "bob", GUESS, mechanism)
                said.append(str(refused.value))
        url = f"https://{broker.addresses.http}"
        for secret in (PASSWORD, GUESS):
            body = {"user": "alice", "password": secret}
            async with session.post(f"{url}/login", json=body, ssl=tls) as answer:
                said.append(await answer.text())
        async with session.get(f"{url}/metrics", ssl=tls) as answer:
            said.append(await answer.text())
        said.append(repr(broker.settings))
        said.append(repr(broker.security.users.any_credential("alice").mechanism))
        stored = [
            each for name in USERS for each in broker.security.users.credentials(name).values()
        ]
        keys = [key.hex() for each in stored for key in (each.stored_key, each.server_key)]
    captured = capfd.readouterr()
    everything = "\n".join((log.getvalue(), *said, captured.out, captured.err))
    assert "login_failed" in everything
    for secret in (*USERS.values(), GUESS, KEY_PASSWORD, *keys):
        assert secret not in everything


def test_the_arguments_of_the_program(tmp_path: Path) -> None:
    """What `ps` shows while a user is added: the password comes by standard input."""
    program = Program()
    help_text = program.ok("user", "add", "--help").out
    assert "--password-file" in help_text
    assert "--password " not in help_text
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "horolog", "user", "add", "a", "--password-file", "-"),
            *("--data-dir", str(tmp_path)),
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    shown = Path(f"/proc/{process.pid}/cmdline").read_bytes()
    environment = Path(f"/proc/{process.pid}/environ").read_bytes()
    out, err = process.communicate(PASSWORD.encode() + b"\n")
    assert process.returncode == 0, err
    stored = [each.read_bytes() for each in tmp_path.rglob("*") if each.is_file()]
    for text in (shown, environment, out, err, *stored):
        assert PASSWORD.encode() not in text
