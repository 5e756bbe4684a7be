"""delete-topics: delete topics and their data."""

from typing import Final

from ...limits import MAX_TOPICS
from ..rights import each
from ..schema import Api, Text, array, error_text, int16, int32, message, string
from ..security.acl_terms import Operation, ResourceType


@message
class DeleteTopicsRequest:
    topic_names: list[str] = array(Text(), max_items=MAX_TOPICS, doc="Topics to delete.")
    timeout_ms: int = int32(default=30_000, doc="How long to wait.")


@message
class DeletableTopicResult:
    name: str = string(doc="Topic.")
    error_code: int = int16(default=0, doc="0 if the topic was deleted.")
    error_message: str | None = error_text(native=True, default=None)


@message
class DeleteTopicsResponse:
    throttle_time_ms: int = int32(
        since=1, default=0, doc="How long the client is throttled, in ms."
    )
    responses: list[DeletableTopicResult] = array(DeletableTopicResult, max_items=MAX_TOPICS)


DELETE_TOPICS: Final = Api(
    key=20,
    name="delete-topics",
    min_version=0,
    max_version=3,
    request=DeleteTopicsRequest,
    response=DeleteTopicsResponse,
    doc="Delete topics; each succeeds or fails by itself.",
    rights=(each(Operation.DELETE, ResourceType.TOPIC),),
    repeatable=False,
)
