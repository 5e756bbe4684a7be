"""A broker's lease in etcd, for as long as the broker may rely on it."""


class Lease:
    """A lease whose time counts from before the broker asked etcd for it, on the boot-time clock,
    less a margin.

    A lease that has run out stays lost, even if a later renewal succeeds: another broker may lead
    by then.
    """

    __slots__ = ("_margin", "_until_s", "lease_id", "lost")

    def __init__(self, lease_id: int, asked_s: float, ttl_s: float, margin: float) -> None:
        self.lease_id = lease_id
        self.lost = False
        self._margin = margin
        self._until_s = asked_s + ttl_s * (1 - margin)

    def holds(self, now_s: float) -> bool:
        """Whether the broker may rely on the lease. Once false, it stays false."""
        if now_s >= self._until_s:
            self.lost = True
        return not self.lost

    def renewed(self, now_s: float, asked_s: float, ttl_s: float) -> None:
        """Extend a lease that etcd renewed; the broker asked for the renewal at `asked_s`."""
        if self.holds(now_s):
            self._until_s = max(self._until_s, asked_s + ttl_s * (1 - self._margin))
