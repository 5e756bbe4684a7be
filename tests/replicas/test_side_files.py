"""Side files that cannot be read at a start cost no message (replication.md, 3 and 8.2)."""

from collections.abc import Callable
from pathlib import Path

import pytest

from horolog.protocol.errors import HorologError, PolicyViolation
from horolog.testing.requests import create_topic

from .members import Member, Members, eventually, members

TOPIC = "t"
COUNT = 40
SEGMENT_BYTES = 600
GARBAGE = b"\x00garbage\xff\n"

SPOILED: dict[str, Callable[[bytes], bytes]] = {
    "garbage": lambda content: GARBAGE,
    "empty": lambda content: b"",
    "garbage behind a half": lambda content: content[: len(content) // 2] + GARBAGE,
}


def side_files(member: Member) -> list[str]:
    """All files of a broker that stopped, without those that hold messages; of segments those of
    the first one."""
    found = sorted(path for path in member.data_dir.rglob("*") if path.is_file())
    names = [str(path.relative_to(member.data_dir)) for path in found]
    of_first = f"{0:020}."
    return [
        name
        for name in names
        if not name.endswith((".log", ".lock", ".deleted"))
        and (of_first in name or "/" not in name or not name.rpartition("/")[2][0].isdigit())
    ]


async def has_all(all_: Members, leader: Member, expected: list[str]) -> None:
    """Both have everything, as a reader at either finds when that one leads."""
    await all_.in_sync(leader)
    assert await leader.values(TOPIC, len(expected)) == expected
    (other,) = (one for one in all_.all.values() if one is not leader)
    await hand_over(all_, leader, other)
    assert await other.values(TOPIC, len(expected)) == expected
    await eventually(lambda: leader.cluster.fetcher.leader_id == other.broker_id)
    await hand_over(all_, other, leader)
    await all_.in_sync(leader)


async def hand_over(all_: Members, leader: Member, other: Member) -> None:
    """Where the machine has no time for a follower, it is not in sync for a while."""
    for last in (False, False, True):
        await all_.in_sync(leader)
        try:
            await leader.promote(other.broker_id)
        except PolicyViolation:
            if last:
                raise
        else:
            break
    await eventually(lambda: other.cluster.leads)


async def start_spoiled(member: Member, name: str, how: str, **follow: Member) -> None:
    """Start with a file that is spoiled. One that refuses to start says which file it is about, and
    starts when that is put back."""
    path = member.data_dir / name
    content = path.read_bytes()
    path.write_bytes(SPOILED[how](content))
    try:
        await member.start(**follow)
    except HorologError as error:
        refusal = str(error)
    else:
        assert (await member.status()).broker_id == member.broker_id
        return
    assert path.name in refusal
    await member.stop()
    path.write_bytes(content)
    await member.start(**follow)


@pytest.mark.parametrize(
    "how",
    [
        "garbage",
        *(pytest.param(one, marks=pytest.mark.soak) for one in SPOILED if one != "garbage"),
    ],
)
@pytest.mark.parametrize("role", ["leader", "follower"])
async def test_no_side_file_costs_a_message(place: Path, role: str, how: str) -> None:
    async with members(place, segment_bytes=SEGMENT_BYTES) as all_:
        await all_.start()
        leader, follower = all_[1], all_[2]
        await leader.call(create_topic(TOPIC))
        expected = [f"{number:030}" for number in range(COUNT)]
        await leader.produce(TOPIC, *expected)
        await all_.in_sync(leader)
        assert len(leader.log(TOPIC).segments) > 3
        await follower.stop()
        await leader.stop()
        names = side_files(leader if role == "leader" else follower)
        assert {"topics.json", f"{TOPIC}-0/leader-epoch-checkpoint"} <= set(names)
        for name in names:
            if role == "leader":
                await start_spoiled(leader, name, how)
                if not leader.cluster.leads:
                    await leader.promote(accept_loss=True)
                await follower.start(follow=leader)
            else:
                await leader.start()
                await start_spoiled(follower, name, how, follow=leader)
            await eventually(lambda: leader.cluster.leads)
            expected.append(f"{len(expected):030}")
            await leader.produce(TOPIC, expected[-1])
            await has_all(all_, leader, expected)
            await follower.stop()
            await leader.stop()
