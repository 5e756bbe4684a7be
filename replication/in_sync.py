"""The in-sync replicas, as their leader has to count them."""

from .cluster_state import ClusterState
from .settings import Member


class InSyncReplicas:
    """The ISR of one epoch.

    A change is sent to etcd as a transaction on the revision at which the state was read. Until the
    state is read at a later revision, the leader does not know whether the change happened or will
    happen: the request may still be on its way. Until then the old and the new members all count.
    Reading the old state again proves nothing.
    """

    __slots__ = ("change", "changed_s", "counted", "members", "revision", "state")

    def __init__(self, state: ClusterState, revision: int) -> None:
        self.change: ClusterState | None = None
        self.changed_s = 0.0
        """When the change was last sent."""
        self.read(state, revision)

    def read(self, state: ClusterState, revision: int) -> None:
        """Adopt the state, read at a later revision than any change was sent on."""
        self.state = state
        self.revision = revision
        self.members: frozenset[Member] = state.isr
        self.counted: frozenset[Member] = state.isr
        self.change = None

    def propose(self, members: frozenset[Member], now_s: float) -> ClusterState:
        """Propose `members` as the ISR; from now on both the old and the proposed members count.

        Members that leave are recorded as kept, and only a later change releases them: this change
        may take effect late, when this leader has lost messages that they have.
        """
        state = self.state._replace(isr=self.members | members, kept=frozenset())
        self.change = state.without(self.members - members, self.revision)
        self.changed_s = now_s
        self.counted = self.members | members
        return self.change
