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
        "Whether the broker may listen without TLS or without a login at addresses that are not "
        "loopback, and accept passwords (PLAIN) on unencrypted connections. At a port without "
        "login and authorization, every client can read and write everything; without TLS, others "
        "can read the traffic. The log warns once a day.",
    ),
    setting(
        "tls.cert",
        Kind.PATH,
        "",
        "File with the certificate in PEM, followed by the intermediate certificates. It is read "
        "again when it changes, and on SIGHUP; new connections use the new certificate.",
        choices=("",),
    ),
    setting(
        "tls.key",
        Kind.PATH,
        "",
        "File with the private key of the certificate in PEM. Empty: the key is in the file of "
        "tls.cert.",
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
        "File with the root certificates, in PEM, that sign clients' certificates.",
        choices=("",),
    ),
    setting(
        "tls.client.auth",
        Kind.CHOICE,
        "none",
        "Whether clients present a certificate signed by tls.client.ca. Such a client is the user "
        "User: followed by its subject (tls.principal.mapping.rules), and needs no other login, "
        "unless the address has SASL_SSL://.",
        choices=("none", "requested", "required"),
    ),
    setting(
        "tls.min.version",
        Kind.CHOICE,
        "1.2",
        "The oldest TLS version accepted.",
        choices=("1.2", "1.3"),
    ),
    setting(
        "authentication",
        Kind.CHOICE,
        "none",
        "Whether clients at bare and tls:// addresses have to log in, as a user of `horolog "
        "user`, with a token, or with a client certificate.",
        choices=("none", "required"),
    ),
    setting(
        "sasl.enabled.mechanisms",
        Kind.CHOICES,
        "SCRAM-SHA-256,SCRAM-SHA-512",
        "The enabled login mechanisms. PLAIN sends the password itself, and OAUTHBEARER a token, "
        "so they are offered only on encrypted connections, unless allow.plaintext is set. "
        "OAUTHBEARER needs sasl.oauthbearer.jwks.endpoint.url.",
        choices=("SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN", "OAUTHBEARER"),
    ),
    setting(
        "authorization",
        Kind.CHOICE,
        "off",
        "Whether clients may only do what a rule of `horolog acl` allows. Off: every client may "
        "do everything. On: without a rule, only super.users may do anything.",
        choices=("off", "on"),
    ),
    setting(
        "super.users",
        Kind.PRINCIPALS,
        "",
        "Users who may do everything, whatever the rules say: User:alice;User:CN=admin,O=Example. "
        "User:ANONYMOUS stands for all clients without a login.",
    ),
    integer(
        "authentication.deadline.ms",
        10_000,
        "ms",
        "Maximum time from the start of a connection to the end of the TLS handshake, and from "
        "there to the end of the login, if there are any.",
        minimum=100,
        maximum=600_000,
    ),
    integer(
        "connections.unauthenticated.max",
        250,
        "",
        "Maximum number of connections at the same time that are in a TLS handshake or have not "
        "completed a required login. For a connection above the limit, the oldest one of the "
        "address with the most such connections is closed. If the new connection comes from that "
        "address itself, it is closed at once. Both are counted.",
        maximum=1_000_000,
    ),
    integer(
        "connections.max.reauth.ms",
        0,
        "ms",
        "How long a login is valid. Then the client has to log in again on the same connection, "
        "or it is closed. A removed user may continue for this long. 0: as long as the "
        "connection. A login with a token ends with the token; one with a client certificate does "
        "not end.",
        minimum=0,
    ),
    integer(
        "quota.window.num",
        11,
        "",
        "Number of windows over which client usage is measured for quotas. A client that used "
        "nothing for that time may use the quota of all windows but one at once.",
        minimum=2,
        maximum=1000,
    ),
    integer(
        "quota.window.size.seconds",
        1,
        "s",
        "Length of one quota window, and the longest time for which request_percentage delays a "
        "client at once.",
        maximum=3600,
    ),
    setting(
        "http.open.paths",
        Kind.CHOICES,
        "/metrics,/healthz,/readyz,/leader",
        "Paths of the HTTP port that are answered without a login if one is required.",
        choices=("/metrics", "/healthz", "/readyz", "/leader"),
    ),
)


def _check_keys_url(text: str) -> None:
    """Raise `ValueError` unless the text is empty or a URL from which keys can be read."""
    if not text:
        return
    from urllib.parse import urlsplit  # Most brokers start without it.

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
    """Raise `ValueError` for invalid mapping rules."""
    if text != DEFAULT_RULES:
        from .principal_rules import PrincipalRules

        PrincipalRules(text)


def _check_text(text: str) -> None:
    """Accept any text."""


ACCESS: Final = (
    setting(
        "sasl.oauthbearer.jwks.endpoint.url",
        Kind.TEXT,
        "",
        "Location of the keys (JWKS) that sign the tokens of OAUTHBEARER and of the HTTP port: "
        "https://... or file:///PATH. A file is read again when it changes. http:// is accepted "
        "only for this machine, unless allow.plaintext is set.",
        reads=_check_keys_url,
        form="a URL with https://, http:// or file:///, or empty",
    ),
    integer(
        "sasl.oauthbearer.jwks.endpoint.refresh.ms",
        3_600_000,
        "ms",
        "Time between two reads of the keys from a URL. A token with an unknown key causes a read "
        "at once, at most every ten seconds.",
        minimum=10_000,
        maximum=7 * 86_400_000,
    ),
    setting(
        "sasl.oauthbearer.expected.issuer",
        Kind.TEXT,
        "",
        "The `iss` that a token must have. Empty: any issuer that signs with one of the keys.",
        reads=_check_text,
        form="a text",
    ),
    setting(
        "sasl.oauthbearer.expected.audience",
        Kind.TEXT,
        "",
        "The `aud` that a token must have, or several separated by commas, of which it must have "
        "one. Empty: only tokens without `aud` are accepted.",
        reads=_check_text,
        form="texts separated by commas",
    ),
    integer(
        "sasl.oauthbearer.clock.skew.seconds",
        30,
        "s",
        "Allowed difference between the clocks of the broker and of the token issuer.",
        minimum=0,
        maximum=3600,
    ),
    setting(
        "sasl.oauthbearer.sub.claim.name",
        Kind.TEXT,
        "sub",
        "The claim of a token that contains the name of its user.",
        reads=_check_text,
        form="the name of a claim",
    ),
    setting(
        "tls.principal.mapping.rules",
        Kind.TEXT,
        DEFAULT_RULES,
        "How the subject of a client's certificate becomes a user name: "
        "RULE:PATTERN/REPLACEMENT/, optionally followed by L (lower case) or U (upper case), or "
        "DEFAULT, which keeps the subject. Several rules are separated by commas; the first that "
        "matches is used. A client whose certificate matches no rule is refused.",
        reads=_check_rules,
        form="RULE:PATTERN/REPLACEMENT/, with L or U behind it or not, or DEFAULT, by commas",
        aliases=("ssl.principal.mapping.rules",),
    ),
    setting(
        "max.connections.per.ip.overrides",
        Kind.TEXT,
        "",
        "Addresses or host names with their own limit in place of max.connections.per.ip: "
        "10.0.0.7:200,build-7:20. Names are resolved at the start.",
        reads=counts,
        form=COUNTS_FORM,
    ),
    integer(
        "max.connections.per.user",
        0,
        "",
        "Maximum number of connections of one user, or of one certificate name, at the same time. "
        "A login above the limit is refused. 0: no limit. Requests of the HTTP port are not "
        "counted.",
        minimum=0,
        maximum=1_000_000,
    ),
    setting(
        "max.connections.per.user.overrides",
        Kind.TEXT,
        "",
        "Users with their own limit in place of max.connections.per.user: alice:200,ci:20.",
        reads=counts,
        form=COUNTS_FORM,
    ),
)
