"""Which tokens are taken (RFC 7519, RFC 7515, KIP-768), and which key sets (RFC 7517)."""

import base64
import contextlib
import hashlib
import hmac
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import given
from hypothesis import strategies as st

from horolog.config.broker import broker_settings
from horolog.protocol.errors import InvalidConfig, SaslAuthenticationFailed
from horolog.protocol.sasl.mechanisms import OAuthBearerClient, read_bearer
from horolog.server.security.tokens import (
    ALGORITHMS,
    FETCH_SECONDS,
    MAX_BYTES,
    MAX_TOKEN_CHARS,
    KeySource,
    TokenRefused,
    Tokens,
    read_keys,
)
from horolog.testing.clock import ManualClock
from horolog.testing.issuer import AUDIENCE, Issuer, token_settings
from horolog.testing.logs import RecordedEvents

CLOCK = ManualClock()


@pytest.fixture(scope="module")
def issuer() -> Issuer:
    """With a key for each algorithm."""
    made = Issuer(CLOCK)
    for algorithm in ALGORITHMS:
        made.add(algorithm, algorithm)
    made.add("last")
    return made


def checker(issuer: Issuer, folder: Path, **settings: Any) -> Tokens:
    found = {**token_settings(issuer.write(folder / "keys.json")), **settings}
    names = {name.replace("_", "."): str(value) for name, value in found.items()}
    read = broker_settings(names)
    url = read.sasl_oauthbearer_jwks_endpoint_url
    source = KeySource(url, 60.0, RecordedEvents())
    return Tokens(read, source, CLOCK.now_ms, ThreadPoolExecutor(1))


@pytest.fixture
def tokens(issuer: Issuer, tmp_path: Path) -> Tokens:
    return checker(issuer, tmp_path)


async def why(tokens: Tokens, token: str) -> str:
    """Why a token is not taken."""
    with pytest.raises(TokenRefused) as refused:
        await tokens.verified(token)
    text = str(refused.value)
    for part in token.split("."):
        assert len(part) < 8 or part not in text
    return text


@pytest.mark.parametrize("algorithm", ALGORITHMS)
async def test_every_algorithm(issuer: Issuer, tokens: Tokens, algorithm: str) -> None:
    good = issuer.token("bob", 100, key=algorithm)
    found = await tokens.verified(good)
    assert (found.name, round(found.seconds)) == ("bob", 100)
    head, claims, signature = good.split(".")
    for number in (0, len(signature) // 2):
        changed = "A" if signature[number] != "A" else "B"
        bad = f"{head}.{claims}.{signature[:number]}{changed}{signature[number + 1 :]}"
        assert "signature" in await why(tokens, bad)


def encoded(part: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=")


async def test_no_token_without_a_signature(issuer: Issuer, tokens: Tokens) -> None:
    for algorithm in ("none", "None", "NONE", "", None, 7):
        head = encoded({"alg": algorithm, "kid": "first"})
        for end in ("", "x"):
            text = await why(tokens, f"{head}.{encoded(issuer.claims())}.{end}")
            assert "signed by" in text or "no signed JWT" in text


@pytest.mark.parametrize("algorithm", ["HS256", "HS384", "HS512"])
async def test_no_secret_is_made_of_a_public_key(
    issuer: Issuer, tokens: Tokens, algorithm: str
) -> None:
    """Key confusion: signed by HMAC, with what everybody knows of a key for the secret."""
    _, private = issuer.keys["RS256"]
    public = private.public_key()
    forms = [
        public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo),
        public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo),
        issuer.key_set(),
    ]
    for secret in forms:
        signed = f"{encoded({'alg': algorithm, 'kid': 'RS256'})}.{encoded(issuer.claims())}"
        hash_ = getattr(hashlib, f"sha{algorithm[2:]}")
        mac = hmac.digest(secret, signed.encode(), hash_)
        signature = base64.urlsafe_b64encode(mac).decode().rstrip("=")
        assert f"signed by '{algorithm}'" in await why(tokens, f"{signed}.{signature}")


async def test_a_key_is_for_its_algorithm_only(issuer: Issuer, tokens: Tokens) -> None:
    """One of RSA whose set names none takes any of RSA; a curve has its own."""
    _, private = issuer.keys["ES256"]
    token = jwt.encode(issuer.claims(), private, "ES256", headers={"kid": "ES384"})
    assert "there is no key 'ES384' for ES256" in await why(tokens, token)
    _, private = issuer.keys["RS256"]
    other = jwt.encode(issuer.claims(), private, "PS512", headers={"kid": "RS256"})
    assert (await tokens.verified(other)).name == "alice"


async def test_keys_in_a_token_are_not_looked_at(issuer: Issuer, tokens: Tokens) -> None:
    stranger = Issuer(CLOCK)
    (own,) = stranger.public_keys()
    headers = {"jwk": own, "jku": "https://elsewhere.example/keys"}
    text = await why(tokens, stranger.token(headers=headers))
    assert "signature" in text


@pytest.mark.parametrize("more", [{"crit": ["exp"]}, {"crit": ["b64"], "b64": False}])
async def test_extensions_that_are_not_known(
    issuer: Issuer, tokens: Tokens, more: dict[str, Any]
) -> None:
    text = await why(tokens, issuer.token(headers=more))
    assert "crit" in text or "no signed JWT" in text


@pytest.mark.parametrize(
    ("claims", "expected"),
    [
        ({"seconds": -31}, "expired 31 s ago"),
        ({"seconds": -30}, "expired 30 s ago"),
        ({"exp": None}, "has no exp"),
        ({"exp": "9999999999"}, "exp is no number"),
        ({"exp": True}, "exp is no number"),
        ({"exp": float("inf")}, "exp is no time"),
        ({"exp": float("nan")}, "exp is no time"),
        ({"exp": 10**400}, "exp is no time"),
        ({"nbf": CLOCK.now_ms() / 1000 + 31}, "holds only in 31 s (nbf)"),
        ({"iat": CLOCK.now_ms() / 1000 + 31}, "holds only in 31 s (iat)"),
        ({"nbf": []}, "nbf is no number"),
        ({"iss": "https://other.example"}, "iss is not what is expected"),
        ({"iss": None}, "has no iss"),
        ({"iss": [1]}, "iss is not what is expected"),
        ({"aud": "other"}, "aud is not what is expected"),
        ({"aud": ["other", "another"]}, "aud is not what is expected"),
        ({"aud": {}}, "has no aud"),
        ({"aud": [AUDIENCE, 5]}, "aud is not what is expected"),
        ({"aud": None}, "has no aud"),
        ({"sub": None}, "has no name in 'sub'"),
        ({"sub": ""}, "has no name in 'sub'"),
        ({"sub": "  "}, "has no name in 'sub'"),
        ({"sub": 5}, "has no name in 'sub'"),
        ({"sub": "a\0b"}, "has no name in 'sub'"),
        ({"sub": "\ud800"}, "is not Unicode"),
        ({"sub": "x" * 256}, "more than 255 bytes"),
    ],
)
async def test_claims_that_are_refused(
    issuer: Issuer, tokens: Tokens, claims: dict[str, Any], expected: str
) -> None:
    assert expected in await why(tokens, issuer.token(**claims))


@pytest.mark.parametrize(
    ("claims", "seconds"),
    [
        ({"seconds": -29}, 1),
        ({"seconds": 0.2}, 1),
        ({"seconds": 7}, 7),
        ({"nbf": CLOCK.now_ms() / 1000 + 29}, 3600),
        ({"iat": None}, 3600),
        ({"aud": ["x", AUDIENCE]}, 3600),
        ({"seconds": 1e15}, 10 * 365 * 86_400),
        ({"sub": "x" * 255}, 3600),
    ],
)
async def test_claims_that_are_taken(
    issuer: Issuer, tokens: Tokens, claims: dict[str, Any], seconds: float
) -> None:
    found = await tokens.verified(issuer.token(**claims))
    assert found.seconds == pytest.approx(seconds, abs=0.01)


async def test_settings(issuer: Issuer, tmp_path: Path) -> None:
    tokens = checker(
        issuer,
        tmp_path,
        sasl_oauthbearer_expected_issuer="",
        sasl_oauthbearer_expected_audience="one, two",
        sasl_oauthbearer_sub_claim_name="preferred_username",
        sasl_oauthbearer_clock_skew_seconds=0,
    )
    good: dict[str, Any] = {"preferred_username": "carol", "sub": None, "iss": None, "aud": "two"}
    assert (await tokens.verified(issuer.token(**good))).name == "carol"
    assert "expired" in await why(tokens, issuer.token(seconds=-0.001, **good))
    assert "no name" in await why(tokens, issuer.token(aud="two"))
    anyones = checker(issuer, tmp_path, sasl_oauthbearer_expected_audience="")
    assert (await anyones.verified(issuer.token(aud=None))).name == "alice"
    assert "aud is not" in await why(anyones, issuer.token(aud="some"))


async def test_without_an_id_the_only_key_counts(issuer: Issuer, tmp_path: Path) -> None:
    alone = Issuer(CLOCK)
    _, private = alone.keys["first"]
    token = jwt.encode(alone.claims("dave"), private, "ES256")
    assert (await checker(alone, tmp_path).verified(token)).name == "dave"
    alone.add("second")
    assert "no key the only one" in await why(checker(alone, tmp_path), token)


@given(st.text(max_size=200) | st.binary(max_size=200).map(lambda raw: raw.decode("latin-1")))
async def test_any_text_is_refused(text: str) -> None:
    with ThreadPoolExecutor(1) as executor:
        tokens = Tokens(broker_settings(), _nothing(), CLOCK.now_ms, executor)
        with pytest.raises(TokenRefused):
            await tokens.verified(text)


def _nothing() -> KeySource:
    return KeySource("http://127.0.0.1:1/", 60.0, RecordedEvents())


async def test_tokens_that_are_nearly_good(issuer: Issuer, tokens: Tokens) -> None:
    """Each part changed at random: none is taken, and none is anything but refused."""
    random = Random(20)
    good = issuer.token(key="first")
    for _ in range(400):
        changed = list(good)
        for _ in range(random.randrange(1, 4)):
            changed[random.randrange(len(changed) - 2)] = random.choice("AZaz09-_.{é\0 ")
        text = "".join(changed)
        if text != good:
            await why(tokens, text)
    deep = base64.urlsafe_b64encode(b"[" * 9000).decode()
    numbers = base64.urlsafe_b64encode(b"9" * 9000).decode()
    for part in (deep, numbers):
        for text in (f"{part}.e30.eA", f"{good.split('.')[0]}.{part}.eA"):
            await why(tokens, text)
    assert "more than" in await why(tokens, "x" * (MAX_TOKEN_CHARS + 1))


class TestKeySets:
    @pytest.mark.parametrize(
        ("content", "expected"),
        [
            (b"", "not JSON of the form"),
            (b"{}", "not JSON of the form"),
            (b"[]", "not JSON of the form"),
            (b'{"keys": 5}', "no list of at most 100"),
            (b'{"keys": []}', "none of its 0 keys"),
            (b'{"keys": [5, null, {}, {"kty": []}]}', "none of its 4 keys"),
            (b"[" * 100_000, "not JSON of the form"),
            (b" " * (MAX_BYTES + 1), "more than 262144 bytes"),
            (json.dumps({"keys": [{}] * 101}).encode(), "no list of at most 100"),
            (b'{"keys": [{"kty": "oct", "k": "c2VjcmV0", "kid": "a"}]}', "none of its 1 keys"),
            (b'{"keys": [{"kty": "RSA", "n": "AQ", "e": "AQAB"}]}', "none of its 1 keys"),
            (b'{"keys": [{"kty": "EC", "crv": "P-256", "x": "A", "y": "B"}]}', "none of its"),
        ],
    )
    def test_that_are_refused(self, content: bytes, expected: str) -> None:
        with pytest.raises(ValueError, match=expected):
            read_keys(content)

    def test_short_keys_and_other_uses_are_left_out(self, issuer: Issuer) -> None:
        short = jwt.get_algorithm_by_name("RS256").to_jwk(
            rsa.generate_private_key(65537, 1024).public_key(), as_dict=True
        )
        good = issuer.public_keys()[0]
        listed = [short, {**good, "use": "enc"}, {**good, "alg": "ES384"}, {**good, "kid": 5}]
        with pytest.raises(ValueError, match="none of its 4 keys"):
            read_keys(json.dumps({"keys": listed}).encode())
        assert len(read_keys(json.dumps({"keys": [*listed, good]}).encode())) == 1

    def test_a_private_part_is_not_looked_at(self, issuer: Issuer) -> None:
        _, private = issuer.keys["RS256"]
        leaked = jwt.get_algorithm_by_name("RS256").to_jwk(private, as_dict=True)
        leaked.pop("key_ops")
        keys = read_keys(json.dumps({"keys": [{**leaked, "kid": "a"}]}).encode())
        found = keys.find("a", "RS256")
        assert found is not None
        assert not hasattr(found.public, "private_numbers")

    def test_a_file_that_is_not_there(self, tmp_path: Path) -> None:
        with pytest.raises(InvalidConfig, match=r"jwks\.endpoint\.url = .*No such file"):
            KeySource((tmp_path / "none.json").as_uri(), 60.0, RecordedEvents())

    def test_all_bounds_are_below_what_a_login_may_take(self) -> None:
        deadline_ms = broker_settings().authentication_deadline_ms
        assert deadline_ms > FETCH_SECONDS * 1000


class TestMessages:
    @pytest.mark.parametrize(
        "content",
        [
            b"n,,\x01auth=Bearer a.b.c\x01\x01",
            b"y,,\x01auth=bearer   a.b.c\x01\x01",
            b"n,,\x01traceId=5\x01auth=Bearer a.b.c\x01x=y\x01\x01",
            OAuthBearerClient("a.b.c").first(),
        ],
    )
    def test_that_are_read(self, content: bytes) -> None:
        found = read_bearer(content)
        assert (found.authzid, found.token) == ("", "a.b.c")
        assert "a.b.c" not in repr(found)

    def test_who_it_is_meant_for(self) -> None:
        found = read_bearer(b"n,a=x=2Cy=3Dz,\x01auth=Bearer t\x01\x01")
        assert found.authzid == "x,y=z"

    @pytest.mark.parametrize(
        "content",
        [
            b"",
            b"\x01",
            b"n,,\x01\x01",
            b"n,,\x01auth=Bearer a.b.c\x01",
            b"n,,\x01auth=Basic a.b.c\x01\x01",
            b"n,,\x01auth=Bearer a b\x01\x01",
            b"n,,\x01auth=Bearer \x01\x01",
            b"n,,\x01auth=Bearer a\x01auth=Bearer b\x01\x01",
            b"p=tls,,\x01auth=Bearer a\x01\x01",
            b"n,a=,\x01auth=Bearer a\x01\x01",
            b"n,a==,\x01auth=Bearer a\x01\x01",
            b"n,,auth=Bearer a\x01\x01",
            b"n,,\x01" + b"a=b\x01" * 101 + b"auth=Bearer a\x01\x01",
            b"\xff,,\x01auth=Bearer a\x01\x01",
        ],
    )
    def test_that_are_refused(self, content: bytes) -> None:
        with pytest.raises(SaslAuthenticationFailed, match="no message of OAUTHBEARER"):
            read_bearer(content)

    @given(st.binary(max_size=200))
    def test_any_bytes(self, content: bytes) -> None:
        with contextlib.suppress(SaslAuthenticationFailed):
            read_bearer(content)
