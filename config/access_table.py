"""The broker's settings about tokens, the names in certificates, and connections of one client."""

from typing import Final

from . import counts
from .declaring import integer, setting
from .setting import Kind

DEFAULT_RULES: Final = "DEFAULT"


def _check_keys_url(text: str) -> None:
    """Raises `ValueError` for what is no place of keys."""
    if not text:
        return
    from urllib.parse import urlsplit  # most brokers start without

    found = urlsplit(text)
    _ = found.port
    if found.scheme == "file" and (found.netloc or not found.path.startswith("/")):
        raise ValueError("a file is written file:///PATH")
    if found.scheme in ("http", "https") and not found.hostname:
        raise ValueError("there is no host in it")
    if found.username is not None or found.password is not None:
        raise ValueError("it has a user or a password in it, which logs would show")
    if found.scheme not in ("file", "http", "https"):
        raise ValueError("it begins with none of https://, http://, file:///")


def _check_rules(text: str) -> None:
    """Raises `ValueError` for what are no rules."""
    if text != DEFAULT_RULES:
        from .principal_rules import PrincipalRules  # most brokers start without

        PrincipalRules(text)


def _check_text(text: str) -> None:
    """Anything may be."""


ACCESS: Final = (
    setting(
        "sasl.oauthbearer.jwks.endpoint.url",
        Kind.TEXT,
        "",
        "Where the keys (JWKS) are that sign the tokens of OAUTHBEARER and of the HTTP port: "
        "https://... or file:///PATH. A file is read again when it changes. http:// is taken of "
        "this machine only, unless allow.plaintext.",
        reads=_check_keys_url,
        form="a URL with https://, http:// or file:///, or empty",
    ),
    integer(
        "sasl.oauthbearer.jwks.endpoint.refresh.ms",
        3_600_000,
        "ms",
        "Time between two reads of the keys of a URL. A token with a key that is not known has "
        "them read at once, at most every ten seconds.",
        minimum=10_000,
        maximum=7 * 86_400_000,
    ),
    setting(
        "sasl.oauthbearer.expected.issuer",
        Kind.TEXT,
        "",
        "The `iss` that a token must have. Empty: any that signs with one of the keys.",
        reads=_check_text,
        form="a text",
    ),
    setting(
        "sasl.oauthbearer.expected.audience",
        Kind.TEXT,
        "",
        "The `aud` that a token must have, or several of them, separated by commas, of which it "
        "must have one. Empty: only tokens without `aud` are taken.",
        reads=_check_text,
        form="texts separated by commas",
    ),
    integer(
        "sasl.oauthbearer.clock.skew.seconds",
        30,
        "s",
        "By so much the clocks of the broker and of who makes tokens may differ.",
        minimum=0,
        maximum=3600,
    ),
    setting(
        "sasl.oauthbearer.sub.claim.name",
        Kind.TEXT,
        "sub",
        "The claim of a token that has the name of who it is for.",
        reads=_check_text,
        form="the name of a claim",
    ),
    setting(
        "tls.principal.mapping.rules",
        Kind.TEXT,
        DEFAULT_RULES,
        "How the subject of a client's certificate becomes a name: RULE:PATTERN/REPLACEMENT/, "
        "perhaps with L (lower case) or U (upper case) behind it, or DEFAULT, the subject as it "
        "is; several are separated by commas, and the first that fits counts. Whose certificate "
        "none fits is not let in.",
        reads=_check_rules,
        form="RULE:PATTERN/REPLACEMENT/, with L or U behind it or not, or DEFAULT, by commas",
        aliases=("ssl.principal.mapping.rules",),
    ),
    setting(
        "max.connections.per.ip.overrides",
        Kind.TEXT,
        "",
        "Addresses, or names of hosts, that max.connections.per.ip does not hold for, each with a "
        "number of its own: 10.0.0.7:200,build-7:20. Names are looked up at the start.",
        reads=counts.counts,
        form=counts.FORM,
    ),
    integer(
        "max.connections.per.user",
        0,
        "",
        "Connections at one time of one user, or of one certificate's name; a login above it is "
        "refused. 0: no limit. Requests of the HTTP port are not counted.",
        minimum=0,
        maximum=1_000_000,
    ),
    setting(
        "max.connections.per.user.overrides",
        Kind.TEXT,
        "",
        "Users that max.connections.per.user does not hold for, each with a number of its own: "
        "alice:200,ci:20.",
        reads=counts.counts,
        form=counts.FORM,
    ),
)
