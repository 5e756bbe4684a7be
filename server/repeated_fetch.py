"""Fetch requests that repeat one before them, answered in a fraction of its time.

All there is to do for them is to find the bytes. Whatever is not as usual, from a wait to an error,
is left to the handler, which meets the same.
"""

from typing import Any, Final

from ..protocol.api.encodings import Encoding
from ..protocol.api.fetch import FETCH, READ_COMMITTED, FetchRequest
from ..protocol.api.fetch_forms import FetchForm, has_form
from ..protocol.api.kafka_fetch_forms import KafkaFetchForm
from ..protocol.api.native import Frame, RequestHead
from .handlers.base import Services
from .handlers.fetch import (
    FIRST_VERSION_WITH_MAX_BYTES,
    FIRST_VERSION_WITH_V1,
    budget_bytes,
    newest_format,
    records_of,
)
from .outcomes import NO_ERROR_NAME
from .sending import Answer, AnswerInParts

_FORMS_MAX: Final = 256
"""Consumers and partitions that are known at a time; one more begins anew."""


class RepeatedFetches:
    """The forms of requests that are known, of all connections that speak one encoding."""

    def __init__(self, services: Services, encoding: Encoding) -> None:
        self._services = services
        self._form = FetchForm if encoding.NATIVE else KafkaFetchForm
        self._forms: dict[Any, FetchForm] = {}
        self._learned: set[tuple[object, ...]] = set()

    def learn(self, head: RequestHead, request: FetchRequest) -> None:
        """Know requests like this one from now on."""
        if head.version < FIRST_VERSION_WITH_V1 or not has_form(request):
            return
        (topic,) = request.topics
        (wanted,) = topic.partitions
        key = (
            *(head.version, head.client_id, topic.name, wanted.partition),
            *(wanted.partition_max_bytes, wanted.log_start_offset, wanted.current_leader_epoch),
            *(request.max_wait_ms, request.min_bytes, request.max_bytes),
            *(request.isolation_level, request.session_epoch),
        )
        if key in self._learned:
            return  # It comes in another form, or was not as usual.
        if len(self._learned) >= _FORMS_MAX:
            self._forms.clear()
            self._learned.clear()
        self._learned.add(key)
        form = self._form(head, request)
        self._forms[form.around] = form

    def answer(self, frame: Frame) -> Answer:
        """The answer to a request that is known, if there is enough to be read; else `None`."""
        began = self._services.work.time()
        parts = self._form.split(frame)
        form = None if parts is None else self._forms.get(parts[0])
        if parts is None or form is None:
            return None
        _, correlation_id, offset = parts
        try:
            return self._read(form, correlation_id, offset, began)
        except Exception:
            return None  # The handler tells the client.

    def _read(self, form: FetchForm, correlation_id: int, offset: int, began: float) -> Answer:
        services, request = self._services, form.request
        name, (wanted,) = form.topic.name, form.topic.partitions
        log = services.logs.find(name, wanted.partition)
        committed = request.isolation_level == READ_COMMITTED
        aborted = committed and log.producers.states.aborted
        if aborted or not log.prepared or not log.located(offset):
            return None
        most = budget_bytes(services.settings, request, form.version)
        found = log.read(
            offset,
            max(min(wanted.partition_max_bytes, most), 0),
            whole_first=form.version >= FIRST_VERSION_WITH_MAX_BYTES,
            committed=committed,
        )
        available = min(found.size, wanted.partition_max_bytes)
        if not found.size or available < request.min_bytes:
            return None  # It may have to wait.
        if found.magic > newest_format(form.version):
            return None
        records = records_of(found)
        told = found.high_watermark, log.last_stable_offset, log.log_start_offset
        size = len(records)
        head = form.answer_head(correlation_id, told, size)
        services.figures.topic(name).bytes_out += size
        services.figures.answered(FETCH.name, NO_ERROR_NAME, services.work.time() - began)
        if isinstance(records, (bytes, bytearray)):
            return b"".join((head, records))
        return AnswerInParts((head, records))
