"""The figures of logins and of TLS."""

from collections.abc import Iterator

from .exposition import Family, Sample
from .figures import Figures


def security_families(
    figures: Figures, unauthenticated: int, certificate_days: float | None
) -> Iterator[Family]:
    """`certificate_days` is `None` without TLS."""
    yield Family(
        "horolog_unauthenticated_connections",
        "gauge",
        "Connections in a TLS handshake, or in a login that is required.",
        (),
        [Sample((), unauthenticated)],
    )
    yield Family(
        "horolog_logins_total",
        "counter",
        "Logins, by their result: done or failed.",
        ("mechanism", "result"),
        [
            Sample((("mechanism", mechanism), ("result", result)), number)
            for (mechanism, result), number in figures.logins.items()
        ],
    )
    yield Family(
        "horolog_tls_failures_total",
        "counter",
        "TLS handshakes that failed, or were none.",
        ("reason",),
        [Sample((("reason", reason),), count) for reason, count in figures.tls_failures.items()],
    )
    yield Family(
        "horolog_quota_throttled_total",
        "counter",
        "Answers after which the client was not listened to for a while, by the quota.",
        ("quota",),
        [Sample((("quota", quota),), number) for quota, number in figures.throttled.items()],
    )
    yield Family(
        "horolog_quota_throttled_seconds_total",
        "counter",
        "How long that was, all together.",
        ("quota",),
        [Sample((("quota", quota),), sec) for quota, sec in figures.throttled_seconds.items()],
    )
    yield Family(
        "horolog_tls_certificate_days",
        "gauge",
        "Days until the broker's certificate expires; negative when it has. Without TLS there is "
        "none.",
        (),
        [] if certificate_days is None else [Sample((), certificate_days)],
    )
