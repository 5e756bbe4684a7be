# Produce requests as rows: the record set of each request for its only partition, and its response.
# Also the index entries for the append times of rows.

cdef enum:
    # Indexes of the fields of a request, a topic and a partition in the `Slots` of `ProduceRows`.
    TRANSACTION = 0
    ACKS = 1
    TOPICS = 2
    NAME = 0
    PARTITIONS = 1
    PARTITION = 0
    RECORDS = 1
    # Those of a row.
    BASE_OFFSET = 0
    LOG_START = 1
    # Sizes of an entry of an append time index.
    RELATIVE_BYTES = 4
    APPEND_ENTRY_BYTES = 12


cdef class ProduceRows:
    cdef object sent, topic_result, response
    cdef Slots of_request, of_topic, of_partition, of_sent
    cdef tuple partition_name, topic_names, response_names

    def __init__(self, sent, topic_result, response):
        """`reference.ProduceRows`."""
        self.sent, self.topic_result, self.response = sent, topic_result, response
        self.of_request = Slots(("transactional_id", "acks", "topics"))
        self.of_topic = Slots(("name", "partitions"))
        self.of_partition = Slots(("partition", "records"))
        self.of_sent = Slots(("base_offset", "log_start_offset"))
        self.partition_name, self.topic_names = ("partition",), ("name", "partitions")
        self.response_names = ("topics",)

    def read(self, requests, acks):
        cdef dict by_partition = {}
        cdef list responses = [], of_target = None
        cdef PyObject *values[3]
        cdef object target = None, name = None, partition = None, sent
        for request in requests:
            topics = self.of_request.get(request, TOPICS)
            if len(topics) != 1 or self.of_request.get(request, TRANSACTION) is not None:
                return None
            asked = self.of_topic.get(topics[0], PARTITIONS)
            if len(asked) != 1 or self.of_request.get(request, ACKS) != acks:
                return None
            asked_name = self.of_topic.get(topics[0], NAME)
            number = self.of_partition.get(asked[0], PARTITION)
            if asked_name is not name or number != partition:
                name, partition = asked_name, number
                target = name, partition
                of_target = by_partition.setdefault(target, [])
            records = self.of_partition.get(asked[0], RECORDS)
            if records is None:
                records = b""
            values[0], values[1] = <PyObject *> target, <PyObject *> records
            values[2] = <PyObject *> partition
            sent = PyObject_Vectorcall(self.sent, values, 2, self.partition_name)
            of_target.append(sent)
            results = [sent]
            values[0], values[1] = <PyObject *> name, <PyObject *> results
            results = [PyObject_Vectorcall(self.topic_result, values, 0, self.topic_names)]
            values[0] = <PyObject *> results
            responses.append(PyObject_Vectorcall(self.response, values, 0, self.response_names))
        return by_partition, responses

    def appended(self, sent, first_offsets, log_start_offset):
        for one, first_offset in zip(sent, first_offsets):
            self.of_sent.put(one, BASE_OFFSET, first_offset)
            self.of_sent.put(one, LOG_START, log_start_offset)


def append_entries(first_offsets, long long base_offset, long long append_time_ms):
    cdef Py_ssize_t at = 0, count = len(first_offsets)
    cdef bytes entries = PyBytes_FromStringAndSize(NULL, count * APPEND_ENTRY_BYTES)
    cdef unsigned char *data = <unsigned char *> PyBytes_AS_STRING(entries)
    cdef long long offset, relative
    for number in first_offsets:
        if at >= count * APPEND_ENTRY_BYTES:
            raise ValueError("there are more offsets than before")
        offset = number
        relative = <long long> (<unsigned long long> offset - <unsigned long long> base_offset)
        if offset < base_offset or not 0 <= relative <= LARGEST_INT32:
            raise OverflowError(f"no offset of a segment that begins with {base_offset}: {offset}")
        put_int32(data, at, relative)
        put_int64(data, at + RELATIVE_BYTES, append_time_ms)
        at += APPEND_ENTRY_BYTES
    if at < count * APPEND_ENTRY_BYTES:
        raise ValueError("there are fewer offsets than before")
    return entries
