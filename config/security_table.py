"""The broker's settings about who may come in, and how: logins, tokens, the names in certificates,
and connections of one client."""

from typing import Final

from .setting import COUNTS_FORM, Kind, counts, integer, setting

DEFAULT_RULES: Final = "DEFAULT"

SECURITY: Final = (
    setting(
        "allow.plaintext",
        Kind.BOOLEAN,
        False,
        "Whether the broker may listen at addresses that are not loopback without TLS or without a "
        "login, and take passwords (PLAIN) where nothing is encrypted. Every client that reaches "
        "a port without a login and without rights reads and writes everything; without TLS others "
        "read what is sent. The log says so once a day.",
    ),
    setting(
        "tls.cert",
        Kind.PATH,
        "",
        "File with the certificate in PEM, and those between it and the root behind it. It is read "
        "again when it changes, and on SIGHUP: new connections get the new one.",
        choices=("",),
    ),
    setting(
        "tls.key",
        Kind.PATH,
        "",
        "File with the certificate's key in PEM. Empty: it is in the file of tls.cert.",
        choices=("",),
    ),
    setting(
        "tls.key.password.file",
        Kind.PATH,
        "",
        "File whose first line is the password of an encrypted key.",
        choices=("",),
    ),
    setting(
        "tls.client.ca",
        Kind.PATH,
        "",
        "File with the roots, in PEM, of clients' certificates.",
        choices=("",),
    ),
    setting(
        "tls.client.auth",
        Kind.CHOICE,
        "none",
        "Whether clients show a certificate of tls.client.ca. Who does is User: and its subject "
        "(tls.principal.mapping.rules), and needs no other login, unless the address has SASL_SSL://.",
        choices=("none", "requested", "required"),
    ),
    setting(
        "tls.min.version",
        Kind.CHOICE,
        "1.2",
        "The oldest version of TLS that is spoken.",
        choices=("1.2", "1.3"),
    ),
    setting(
        "authentication",
        Kind.CHOICE,
        "none",
        "Whether clients of bare addresses and of tls:// have to log in, as a user of "
        "`horolog user`, with a token or with a client certificate.",
        choices=("none", "required"),
    ),
    setting(
        "sasl.enabled.mechanisms",
        Kind.CHOICES,
        "SCRAM-SHA-256,SCRAM-SHA-512",
        "The ways to log in. PLAIN sends the password itself and OAUTHBEARER a token, so they are "
        "offered only where the connection is encrypted, unless allow.plaintext. OAUTHBEARER needs "
        "sasl.oauthbearer.jwks.endpoint.url.",
        choices=("SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN", "OAUTHBEARER"),
    ),
    setting(
        "authorization",
        Kind.CHOICE,
        "off",
        "Whether only those may do something whom a rule of `horolog acl` allows it. Off: who "
        "comes in may do everything. On, and without a rule, no one may but super.users.",
        choices=("off", "on"),
    ),
    setting(
        "super.users",
        Kind.PRINCIPALS,
        "",
        "Who may do everything whatever the rules say: User:alice;User:CN=admin,O=Example. "
        "User:ANONYMOUS are all who come in without a login.",
    ),
    integer(
        "authentication.deadline.ms",
        10_000,
        "ms",
        "Time from the start of a connection to the end of the TLS handshake, and from there to "
        "the end of the login, where there are such.",
        minimum=100,
        maximum=600_000,
    ),
    integer(
        "connections.unauthenticated.max",
        250,
        "",
        "Connections at one time that have not logged in where they have to, or are in a TLS "
        "handshake. For one above it the oldest of the address that has most of them is closed; "
        "one of that address itself is closed at once. Both are counted.",
        maximum=1_000_000,
    ),
    integer(
        "connections.max.reauth.ms",
        0,
        "ms",
        "How long a login holds; then the client logs in again on the same connection, or it is "
        "closed. So long a user who was removed may go on. 0: as long as the connection. "
        "A login with a token ends with the token; one by a client certificate holds always.",
        minimum=0,
    ),
    integer(
        "quota.window.num",
        11,
        "",
        "Windows over which is measured what clients take (quotas): so many times the window may "
        "be taken at once by a client that took nothing for as long.",
        minimum=2,
        maximum=1000,
    ),
    integer(
        "quota.window.size.seconds",
        1,
        "s",
        "How long one of these windows is, and the most that request_percentage has a client wait "
        "at once.",
        maximum=3600,
    ),
    setting(
        "http.open.paths",
        Kind.CHOICES,
        "/metrics,/healthz,/readyz,/leader",
        "Paths of the HTTP port that are answered without a login where one is required.",
        choices=("/metrics", "/healthz", "/readyz", "/leader"),
    ),
)


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
        from .principal_rules import PrincipalRules

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
        reads=counts,
        form=COUNTS_FORM,
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
        reads=counts,
        form=COUNTS_FORM,
    ),
)
