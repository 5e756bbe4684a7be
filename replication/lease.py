"""A broker's lease in etcd, as far as the broker may rely on it."""


class Lease:
    """Counts from before it was asked for, on the boot-time clock, less a margin.

    Once over it is over for ever, even if a renewal succeeds later: another broker may lead then.
    """

    __slots__ = ("_margin", "_until_s", "lease_id", "lost")

    def __init__(self, lease_id: int, asked_s: float, ttl_s: float, margin: float) -> None:
        self.lease_id = lease_id
        self.lost = False
        self._margin = margin
        self._until_s = asked_s + ttl_s * (1 - margin)

    def holds(self, now_s: float) -> bool:
        """Whether it can be relied on; never again once this was false."""
        if now_s >= self._until_s:
            self.lost = True
        return not self.lost

    def renewed(self, now_s: float, asked_s: float, ttl_s: float) -> None:
        """etcd renewed it after `asked_s`."""
        if self.holds(now_s):
            self._until_s = max(self._until_s, asked_s + ttl_s * (1 - self._margin))
