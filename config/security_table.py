"""The broker's settings about who may come in, and how."""

from typing import Final

from .declaring import integer, setting
from .setting import Kind

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
