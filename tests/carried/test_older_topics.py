"""A data directory of a version whose topics have no ids."""

import json
import shutil
from pathlib import Path

from horolog import Admin
from horolog.protocol.api.log.describe_log import DescribeLogRequest, DescribeLogTopic
from horolog.storage.names import is_id
from horolog.testing.broker import running_broker
from horolog.testing.clock import ManualClock
from horolog.testing.requests import message_set

from .carrying import TOPIC, Side
from .conftest import Filled

_LOG = DescribeLogRequest(topics=[DescribeLogTopic(name=TOPIC, partitions=[0])])


def as_older_code_wrote(path: Path) -> None:
    """The topics file without ids; no cluster id, which was made for Kafka's port alone."""
    document = json.loads((path / "topics.json").read_text())
    for topic in document["topics"].values():
        del topic["id"]
    (path / "topics.json").write_text(json.dumps(document, indent=1) + "\n")
    (path / "cluster-id").unlink()


async def test_its_topics_get_ids_once_and_nothing_else_changes(
    filled: Filled, tmp_path: Path, clock: ManualClock
) -> None:
    path = tmp_path / "data"
    shutil.copytree(filled.path, path)
    as_older_code_wrote(path)
    before = json.loads((path / "topics.json").read_text())["topics"][TOPIC]
    seen = []
    for number in range(2):
        async with (
            running_broker(path, clock, http_listen="off", retention_ms=-1) as broker,
            Side.connected(broker) as side,
            Admin(broker.addresses.native) as admin,
        ):
            cluster = await admin.describe_cluster()
            described = await admin.describe_log(TOPIC)
            seen.append((cluster.cluster_id, cluster.topics[TOPIC].topic_id))
            (told,) = (await side.client.call(_LOG)).topics
            assert told.topic_id == cluster.topics[TOPIC].topic_id
            assert described.log_end_offset == side.log.log_end_offset > 100
            assert await side.send(message_set(number)) == described.log_end_offset
    assert all(is_id(one) for one in seen[0])
    assert seen[0] == seen[1]
    after = json.loads((path / "topics.json").read_text())["topics"][TOPIC]
    assert after == {"id": seen[0][1], **before}


async def test_the_topics_file_is_of_the_version_that_older_code_reads(source: Side) -> None:
    """It passes over fields that it does not know."""
    written = json.loads((source.broker.settings.data_dir / "topics.json").read_text())
    assert written["version"] == 1
    assert set(written["topics"][TOPIC]) == {"id", "partitions", "overrides"}
