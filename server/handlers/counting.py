"""count-by-time: how many messages of a partition fall into each interval of a window."""

from ...protocol.api.log.count_by_time import CountByTimeRequest, CountByTimeResponse
from .base import Call, Services


def handle(services: Services, request: CountByTimeRequest, call: Call) -> CountByTimeResponse:
    services.logs.find(request.topic, request.partition)
    return CountByTimeResponse()
