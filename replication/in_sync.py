"""The in-sync replicas, as their leader has to count them."""

from .cluster_state import ClusterState
from .settings import Member


class InSyncReplicas:
    """The ISR of one epoch.

    A change is sent as a transaction on the revision at which the state was read. Until the state
    is read at a later revision it is not known whether it happened, or will yet: the request may
    be on its way. Until then both the old and the new members count. Reading the old state again
    proves nothing.
    """

    __slots__ = ("change", "changed_s", "counted", "members", "revision", "state")

    def __init__(self, state: ClusterState, revision: int) -> None:
        self.change: ClusterState | None = None
        self.changed_s = 0.0
        """When the change was sent last."""
        self.read(state, revision)

    def read(self, state: ClusterState, revision: int) -> None:
        """The state as read back, at a later revision than that of any change sent before."""
        self.state = state
        self.revision = revision
        self.members: frozenset[Member] = state.isr
        self.counted: frozenset[Member] = state.isr
        self.change = None

    def propose(self, members: frozenset[Member], now_s: float) -> ClusterState:
        """The state with these members; from now on all of both count.

        Who goes is kept, and let go by a later change only: this one may come late, when this
        leader has lost what they have.
        """
        state = self.state._replace(isr=self.members | members, kept=frozenset())
        self.change = state.without(self.members - members, self.revision)
        self.changed_s = now_s
        self.counted = self.members | members
        return self.change
