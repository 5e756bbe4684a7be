"""Produce requests that repeat one before them, answered in a fraction of its time.

What is asked for is the same every time, so that all there is to do is to take the record sets and
to make the answers. Requests that name one partition and ask for `acks` 1 are learned; whatever
else comes is left to the handler.
"""

from collections import deque
from collections.abc import Sequence
from typing import Any, Final

from ..protocol.api import native
from ..protocol.api.produce import PRODUCE, ProduceRequest, ProduceResponse
from ..protocol.api.produce_forms import ProduceForm, split
from .handlers.base import Services
from .handlers.produce import IN_THE_LOG, append_alone
from .outcomes import NO_ERROR_NAME, error_name, first_error
from .parking import Partition
from .sending import Answer

_FORMS_MAX: Final = 256
"""Producers and partitions that are known at a time; one more begins anew."""

_Found = tuple[ProduceForm, int, memoryview]


class RepeatedProduces:
    """The forms of requests that are known, of all connections."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._forms: dict[Any, ProduceForm] = {}
        self._learned: set[tuple[object, ...]] = set()

    def learn(self, head: native.RequestHead, request: ProduceRequest) -> None:
        """Know requests like this one from now on."""
        if request.acks != IN_THE_LOG or len(request.topics) != 1:
            return
        (topic,) = request.topics
        if len(topic.partitions) != 1:
            return
        named = topic.name, topic.partitions[0].partition
        key = *named, head.version, head.client_id, request.timeout_ms
        if key in self._learned:
            return  # it comes in another form
        if len(self._learned) >= _FORMS_MAX:
            self._forms.clear()
            self._learned.clear()
        self._learned.add(key)
        form = ProduceForm(head, request)
        self._forms[form.around] = form

    def answer(self, frames: deque[bytes | bytearray], most: int, most_bytes: int) -> list[Answer]:
        """Take the requests that are known off the front of `frames` and answer them.

        At most so many, and none once they have `most_bytes`.
        """
        began = self._services.work.time()
        found: list[_Found] = []
        by_partition: dict[Partition, list[int]] = {}
        size = 0
        for frame in frames:
            parts = split(frame)
            form = None if parts is None else self._forms.get(parts[0])
            if parts is None or form is None or len(found) >= most or size >= most_bytes:
                break
            by_partition.setdefault((form.topic, form.partition), []).append(len(found))
            found.append((form, parts[1], parts[2]))
            size += len(frame)
        for _ in found:
            frames.popleft()
        answers: list[Answer] = [None] * len(found)
        for partition, places in by_partition.items():
            of_partition = [found[place] for place in places]
            made = self._answers(partition, of_partition, began)
            for place, answer in zip(places, made, strict=True):
                answers[place] = answer
        return answers

    def _answers(self, partition: Partition, found: Sequence[_Found], began: float) -> list[bytes]:
        """The answers to what was sent to one partition, whatever happens."""
        services = self._services
        try:
            return self._append(partition, found, began)
        except Exception as error:
            code, message = services.outcomes.of(error, api=PRODUCE.name)
            self._count(error_name(code), began, len(found))
            return [native.encode_error(number, code, message) for _, number, _ in found]

    def _append(self, partition: Partition, found: Sequence[_Found], began: float) -> list[bytes]:
        services = self._services
        appended = append_alone(services, partition, [records for _, _, records in found])
        if isinstance(appended, list):
            return [
                self._answer(form, correlation_id, response, began)
                for (form, correlation_id, _), response in zip(found, appended, strict=True)
            ]
        form = found[0][0]
        make = form.answers(appended.append_time_ms)
        answers = []
        for (of, correlation_id, _), first_offset in zip(
            found, appended.first_offsets, strict=True
        ):
            if of is not form:
                form, make = of, of.answers(appended.append_time_ms)
            answers.append(make(correlation_id, first_offset))
        self._count(NO_ERROR_NAME, began, len(found))
        return answers

    def _answer(
        self, form: ProduceForm, correlation_id: int, response: ProduceResponse, began: float
    ) -> bytes:
        self._count(error_name(first_error(response)), began, 1)
        return native.encode_response(correlation_id, PRODUCE, form.version, response)

    def _count(self, result: str, began: float, requests: int) -> None:
        services = self._services
        seconds = services.work.time() - began
        services.figures.answered(PRODUCE.name, result, seconds, requests)
