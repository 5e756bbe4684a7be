"""What Kafka's own tools do beside the steps of the table."""

from .apache_tools import ApacheTools
from .client import Client, Message, Sending
from .conftest import Start
from .matrix import JAVA
from .test_groups import polled

pytestmark = JAVA


def test_an_offset_by_time(start: Start, other: Client) -> None:
    tools = start(ApacheTools)
    sent = [Message(b"a", timestamp_ms=1_500_000_000_000 + 1000 * number) for number in range(20)]
    other.produce("times-of-tools", sent, Sending("gzip"))
    assert tools.offsets_for_times("times-of-tools", [1_500_000_006_001]) == [7]


def test_topics_and_groups(start: Start, other: Client) -> None:
    tools = start(ApacheTools)
    assert isinstance(tools, ApacheTools)
    tools.create_topic("tools", 3, {"segment.bytes": "1048576"})
    assert tools.partitions("tools") == 3
    assert other.settings("tools")["segment.bytes"] == "1048576"
    other.produce("tools", [Message(b"a")] * 10)
    with other.member("readers", "tools") as member:
        polled(member, 10)
        member.commit()
    other.produce("tools", [Message(b"a")] * 2)
    assert tools.places("readers")["tools", 0] == (10, 12)
    tools.delete_topic("tools")
    assert other.partitions("tools") == 0


def test_a_topic_of_which_only_the_name_is_given(start: Start, other: Client) -> None:
    tools = start(ApacheTools)
    assert isinstance(tools, ApacheTools)
    tools.create_topic_by_default("by-default")
    assert other.partitions("by-default") == tools.partitions("by-default") == 1
