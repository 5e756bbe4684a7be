"""Names of client certificates: the subject as Java writes it, and rules for it (KIP-371)."""

import asyncio
import contextlib
import ssl
import sys
from datetime import UTC, datetime

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.name import _ASN1Type as Asn1
from hypothesis import given
from hypothesis import strategies as st

from horolog.config.broker import broker_settings
from horolog.config.principal_rules import MAX_RULES, MAX_SUBJECT_CHARS, NoRule, PrincipalRules
from horolog.protocol.api.topics.metadata import MetadataRequest
from horolog.protocol.errors import InvalidConfig
from horolog.server.security.names import subject_name
from horolog.testing.waiting import until
from horolog.testing.wire import wire

from .conftest import Authority, Guarded

SERVICE = "CN=serviceuser,OU=ServiceUsers,O=Unknown,L=Unknown,ST=Unknown,C=Unknown"
ADMIN = "CN=adminUser,OU=Admin,O=Unknown,L=Unknown,ST=Unknown,C=Unknown"
KIP = (
    r"RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/, "
    r"RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L, "
    r"RULE:^cn=(.*?),ou=(.*?),dc=(.*?),dc=(.*?)$/$1@$2/U, "
    r"RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/U, DEFAULT"
)


@pytest.mark.parametrize(
    ("rules", "subject", "name"),
    [
        (KIP, SERVICE, "serviceuser"),
        (KIP, ADMIN, "adminuser@admin"),
        (KIP, "cn=testuser,ou=people,dc=example,dc=com", "TESTUSER@PEOPLE"),
        (KIP, "OU=People,CN=some.one,O=Ex", "SOME.ONE"),
        (KIP, "O=Example", "O=Example"),
        ("", ADMIN, ADMIN),
        ("DEFAULT", ADMIN, ADMIN),
        (r"RULE:^CN=((\\, *|\w)+)(,.*|$)/$1/", "CN=Doe\\, Joe,OU=a", "Doe\\, Joe"),
        (r"RULE:CN=a\/b,O=(.*)/$1\/x/", "CN=a/b,O=c", "c/x"),
        (r"RULE:CN=(.*?),O=(.*)/$2$1$3$12/", "CN=a,O=b", "ba$3a2"),
        (r"RULE:CN=(.*)/\$1 $0 $/", "CN=a", "$1 CN=a $"),
        (r"RULE:(?i)cn=(?<user>\w+)/$1/", "CN=alice", "alice"),
        (r"RULE:CN=(x)?(.*)/<$1>$2/", "CN=alice", "<>alice"),
        (r"RULE:CN=a{2,3}(?:,O=b)?/x/", "CN=aaa", "x"),
    ],
)
def test_rules(rules: str, subject: str, name: str) -> None:
    assert PrincipalRules(rules).name(subject) == name


def test_the_whole_subject_must_fit() -> None:
    rules = PrincipalRules("RULE:CN=(a)/$1/")
    for subject in ("CN=ab", "xCN=a", "CN=a,O=b", ""):
        with pytest.raises(NoRule):
            rules.name(subject)
    with pytest.raises(NoRule, match="empty name"):
        PrincipalRules("RULE:CN=(.*)/$1/").name("CN=")
    with pytest.raises(NoRule, match="1024"):
        PrincipalRules("RULE:.*/x/").name("x" * (MAX_SUBJECT_CHARS + 1))


@pytest.mark.parametrize(
    "rules",
    [
        # Those of Kafka's own tests.
        "default",
        "DEFAULT/L",
        "DEFAULT/U",
        "RULE:CN=(.*?),OU=ServiceUsers.*/$1",
        "rule:^CN=(.*?),OU=ServiceUsers.*$/$1/",
        "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L/U",
        "RULE:^CN=(.*?),OU=ServiceUsers.*$/L",
        "RULE:^CN=(.*?),OU=ServiceUsers.*$/U",
        "RULE:^CN=(.*?),OU=ServiceUsers.*$/LU",
        # Ours.
        "RULE:(/x/",
        "RULE:a)/x/",
        "RULE:[a/x/",
        "RULE:*/x/",
        "RULE:a**/x/",
        r"RULE:(a)\1/x/",
        "RULE:(?=a)b/x/",
        "RULE:(?<!a)b/x/",
        "RULE:a{3,2}/x/",
        "RULE:a{1001}/x/",
        "RULE:(a{1000}){1000}/x/",
        "RULE:[a&&b]/x/",
        r"RULE:\\[a[b]]/x/",
        "RULE:a*+/x/",
        "RULE:a/x/ DEFAULT",
        "DEFAULT,,DEFAULT",
        f"RULE:{'a' * 501}/x/",
        ",".join(["DEFAULT"] * (MAX_RULES + 1)),
        ",".join(["RULE:a{900}/x/"] * 12),
    ],
)
def test_rules_that_are_refused_at_the_start(rules: str) -> None:
    with pytest.raises(InvalidConfig, match=r"tls\.principal\.mapping\.rules = .* is refused") as e:
        broker_settings({"tls.principal.mapping.rules": rules})
    assert " Here " in e.value.message


def test_kafkas_name_of_the_setting() -> None:
    settings = broker_settings({"ssl.principal.mapping.rules": KIP})
    assert settings.tls_principal_mapping_rules == KIP


@pytest.mark.parametrize(
    ("pattern", "subject"),
    [
        ("(a*)*b", "a" * 1000),
        ("(a|a)*b", "a" * 1000),
        ("(.*)(.*)(.*)(.*)(.*)(.*)(.*)(.*)x", "a" * 1000),
        ("(x+x+)+y", "x" * 1000),
        (
            "CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$",
            "".join(f",{each}=" * 50 for each in ("OU", "O", "L", "ST")),
        ),
        ("(a?){300}a{300}b", "a" * 1000),
    ],
)
@pytest.mark.timeout(60)
def test_no_rule_takes_long(pattern: str, subject: str) -> None:
    """Some milliseconds, not years."""
    with pytest.raises(NoRule):
        PrincipalRules(f"RULE:{pattern}/x/").name(subject)


def test_without_the_library_the_broker_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "re2", None)
    assert PrincipalRules("DEFAULT").name(ADMIN) == ADMIN
    with pytest.raises(InvalidConfig, match=r"install horolog\[certificates\]"):
        broker_settings({"tls.principal.mapping.rules": KIP})


KEY = ec.generate_private_key(ec.SECP256R1())
OID = x509.NameOID


def certificate(*relative: list[x509.NameAttribute[str]]) -> bytes:
    subject = x509.Name([x509.RelativeDistinguishedName(each) for each in relative])
    now = datetime.now(UTC)
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(subject)
    builder = builder.public_key(KEY.public_key()).serial_number(5)
    builder = builder.not_valid_before(now).not_valid_after(now)
    return builder.sign(KEY, hashes.SHA256()).public_bytes(Encoding.DER)


def one(
    oid: x509.ObjectIdentifier, value: str, kind: Asn1 = Asn1.UTF8String
) -> x509.NameAttribute[str]:
    return x509.NameAttribute(oid, value, kind)


class TestSubjects:
    """The texts are what `X500Principal.getName()` of Java 17 gives for the same certificates."""

    @pytest.mark.parametrize(
        ("relative", "name"),
        [
            (
                [[one(OID.ORGANIZATION_NAME, "Example")], [one(OID.COMMON_NAME, "a")]],
                "CN=a,O=Example",
            ),
            ([[one(OID.COMMON_NAME, "a,b=c+d")]], r"CN=a\,b\=c\+d"),
            ([[one(OID.COMMON_NAME, 'x<y>#;"\\z')]], r"CN=x\<y\>\#\;\"\\z"),
            ([[one(OID.COMMON_NAME, "  a ")]], r"CN=\ \ a\ "),
            ([[one(OID.COMMON_NAME, "日€")]], "CN=日€"),
            ([[one(OID.EMAIL_ADDRESS, ".' :   .")]], "1.2.840.113549.1.9.1=#0c082e27203a2020202e"),
            ([[one(OID.TITLE, "x", Asn1.PrintableString)]], "2.5.4.12=#130178"),
            ([[one(OID.SERIAL_NUMBER, ":?)+", Asn1.PrintableString)]], "2.5.4.5=#13043a3f292b"),
            (
                [
                    [one(OID.COMMON_NAME, "a"), one(OID.USER_ID, "u")],
                    [one(OID.DOMAIN_COMPONENT, "x")],
                ],
                "DC=x,CN=a+UID=u",
            ),
            (
                [[one(x509.ObjectIdentifier("1.3.6.1.4.1.99999.300.1"), "x")]],
                "1.3.6.1.4.1.99999.300.1=#0c0178",
            ),
            ([[one(OID.COUNTRY_NAME, "DE", Asn1.PrintableString)]], "C=DE"),
            (
                [[one(OID.STATE_OR_PROVINCE_NAME, "s"), one(OID.LOCALITY_NAME, "l")]],
                ("ST=s+L=l", "L=l+ST=s"),
            ),
            (
                [[one(OID.STREET_ADDRESS, "1 A")], [one(OID.ORGANIZATIONAL_UNIT_NAME, "o")]],
                "OU=o,STREET=1 A",
            ),
        ],
    )
    def test_as_java_writes_them(
        self, relative: list[list[x509.NameAttribute[str]]], name: str
    ) -> None:
        found = subject_name(certificate(*relative))
        assert found == name or found in name

    @given(st.binary(max_size=60))
    def test_any_bytes(self, content: bytes) -> None:
        for changed in (content, WHOLE[: len(content)] + content + WHOLE[2 * len(content) :]):
            with contextlib.suppress(ValueError):
                subject_name(changed)


WHOLE = certificate([one(OID.COMMON_NAME, "alice")], [one(OID.ORGANIZATION_NAME, "o")])


async def test_rules_at_a_broker(guarded: Guarded, authority: Authority) -> None:
    """Whose certificate no rule is for is closed, told and counted; it gets no name."""
    mine = authority.issue("mapped", "/O=Example/OU=readers/CN=Alice")
    other = authority.issue("unmapped", "/O=Example/OU=writers/CN=Bob")
    async with guarded(
        tls_client_auth="requested",
        tls_client_ca=authority.cert,
        tls_principal_mapping_rules="RULE:CN=(.*?),OU=readers,.*/$1/L",
    ) as broker:
        async with wire(broker.addresses.native, tls=authority.trusting(mine)) as client:
            await client.call(MetadataRequest())
            (open_,) = broker._connections._open
            assert open_._caller.principal == "User:alice"
        with pytest.raises((ssl.SSLError, ConnectionError, asyncio.IncompleteReadError)):
            async with wire(broker.addresses.native, tls=authority.trusting(other)) as client:
                await client.call(MetadataRequest())
        await until(lambda: broker.connections() == 0)
        assert broker.figures.tls_failures == {"name": 1}
        assert broker.unauthenticated() == 0
