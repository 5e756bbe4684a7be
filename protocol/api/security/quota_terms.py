"""Kafka's quotas, by their names on the wire."""

from enum import StrEnum


class Quota(StrEnum):
    """What a quota limits."""

    PRODUCER_BYTE_RATE = "producer_byte_rate"
    CONSUMER_BYTE_RATE = "consumer_byte_rate"
    REQUEST_PERCENTAGE = "request_percentage"
    CONTROLLER_MUTATION_RATE = "controller_mutation_rate"
