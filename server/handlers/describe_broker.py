"""describe-broker: the state of the broker and of its machine.

describe-broker (key 1001): native 0

Kafka has no such request.
"""

import resource
import shutil

from ... import __version__
from ...config.broker_table import AS_REACHED
from ...protocol.api.broker.describe_broker import (
    DESCRIBE_BROKER,
    DescribeBrokerRequest,
    DescribeBrokerResponse,
)
from ...protocol.records.kernel import FORM
from ..network.listener import files_wanted
from ..requests import Call, PendingAnswer
from .base import Services
from .registration import handles
from .settings import unmet_topics


@handles(DESCRIBE_BROKER)
def handle(services: Services, request: DescribeBrokerRequest, call: Call) -> PendingAnswer:
    """Describe the broker. The file system, which may be slow, is asked in a thread."""
    data_dir = services.settings.data_dir.absolute()
    ready = services.work.in_storage_thread(lambda: shutil.disk_usage(data_dir))

    def make() -> DescribeBrokerResponse:
        settings = services.settings
        topics = list(services.figures.topics.values())
        most, unmet = (
            services.replication.most_in_sync(),
            [name for name, _ in unmet_topics(services)],
        )
        response = DescribeBrokerResponse(
            broker_version=__version__,
            kernel=FORM,
            now_ms=services.clock.now_ms(),
            clock_caution=services.trusted_time.caution() or "",
            data_dir=str(data_dir),
            files_limit=min(resource.getrlimit(resource.RLIMIT_NOFILE)[0], 2**31 - 1),
            files_wanted=files_wanted(settings.max_connections, settings.max_open_files),
            damaged_segments=sum(topic.damaged_segments for topic in topics),
            failed_partitions=sum(topic.failures for topic in topics),
            kafka_listen=services.kafka_address or _unless(settings.kafka_listen, "off"),
            kafka_open=services.kafka_address is not None,
            kafka_advertised=_unless(settings.advertised_listeners, AS_REACHED),
            in_sync_most=-1 if most is None else most,
            min_insync_replicas=settings.min_insync_replicas,
            unmet_topics=len(unmet),
            unmet_topic=unmet[0] if unmet else "",
        )
        if ready.exception() is None:
            usage = ready.result()
            response.disk_bytes, response.disk_free_bytes = usage.total, usage.free
        return response

    return PendingAnswer(ready, make)


def _unless(text: str, nothing: str) -> str:
    return "" if text == nothing else text
