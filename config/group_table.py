"""The broker's settings about consumer groups, and how long their positions are kept."""

from typing import Final

from .declaring import integer
from .setting import INT32_MAX

GROUPS: Final = (
    integer(
        "group.min.session.timeout.ms",
        6000,
        "ms",
        "Shortest session timeout that a member of a group may ask for: shorter ones find out "
        "sooner that a member is lost, and cost more heartbeats.",
        maximum=INT32_MAX,
    ),
    integer(
        "group.max.session.timeout.ms",
        1_800_000,
        "ms",
        "Longest session timeout that a member of a group may ask for.",
        maximum=INT32_MAX,
    ),
    integer(
        "group.initial.rebalance.delay.ms",
        0,
        "ms",
        "How long the first members of a group wait for others before they share out the work, "
        "and again as long as others come, up to their rebalance timeout.",
        minimum=0,
        maximum=INT32_MAX,
    ),
    integer(
        "group.max.size",
        1000,
        "",
        "Members that a group may have.",
        maximum=10_000,
    ),
    integer(
        "group.max.bytes",
        8 * 2**20,
        "bytes",
        "Memory for the members of one group: their metadata and assignments, and about 1 KB for "
        "each. The leader gets all metadata in one answer.",
        minimum=1024,
        maximum=INT32_MAX,
    ),
    integer(
        "max.groups",
        10_000,
        "",
        "Groups that have members. Positions under other names do not count. A user who logged in "
        "may begin at most four times as many as stay free, an address eight times.",
        maximum=1_000_000,
    ),
    integer(
        "max.groups.bytes",
        128 * 2**20,
        "bytes",
        "Memory for the members of all groups together. Those of a user who logged in may take at "
        "most four times what stays free, those of an address eight times.",
        minimum=1024,
    ),
    integer(
        "offsets.retention.minutes",
        10_080,
        "minutes",
        "How long the positions of a group are kept after its last commit and its last member, "
        "unless the commit says how long. Positions that were committed with the native protocol "
        "are kept for ever.",
        maximum=INT32_MAX,
    ),
    integer(
        "offsets.retention.check.interval.ms",
        600_000,
        "ms",
        "Time between two looks for positions that have expired.",
    ),
)
