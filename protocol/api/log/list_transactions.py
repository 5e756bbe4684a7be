"""list-transactions: list transactions, of which Horolog has none."""

from typing import Final

from ...limits import MAX_LISTED, MAX_TRANSACTION_FILTERS
from ..rights import NO_RIGHTS
from ..schema import (
    INT64,
    Api,
    ServedBy,
    Text,
    array,
    flexible,
    int16,
    int32,
    int64,
    message,
    string,
)

STATES: Final = frozenset(
    {
        "Empty",
        "Ongoing",
        "PrepareCommit",
        "PrepareAbort",
        "CompleteCommit",
        "CompleteAbort",
        "PrepareEpochFence",
        "Dead",
    }
)
"""Kafka's states of a transaction."""


@flexible
@message
class ListTransactionsRequest:
    state_filters: list[str] = array(
        Text(),
        max_items=MAX_TRANSACTION_FILTERS,
        default=(),
        doc="Only transactions in these states; empty for all.",
    )
    producer_id_filters: list[int] = array(
        INT64,
        max_items=MAX_TRANSACTION_FILTERS,
        default=(),
        doc="Only transactions of these producers; empty for all.",
    )


@message
class ListedTransaction:
    transactional_id: str = string(doc="Transactional id.")
    producer_id: int = int64(doc="Producer that began the transaction.")
    transaction_state: str = string(doc="State of the transaction.")


@flexible
@message
class ListTransactionsResponse:
    throttle_time_ms: int = int32(default=0, doc="How long the client is throttled, in ms.")
    error_code: int = int16(default=0, doc="0.")
    unknown_state_filters: list[str] = array(
        Text(),
        max_items=MAX_TRANSACTION_FILTERS,
        default=(),
        doc="States in the request that Kafka does not have.",
    )
    transaction_states: list[ListedTransaction] = array(
        ListedTransaction, max_items=MAX_LISTED, default=(), doc="Always empty."
    )


LIST_TRANSACTIONS: Final = Api(
    key=66,
    name="list-transactions",
    min_version=0,
    max_version=0,
    native_max_version=-1,
    request=ListTransactionsRequest,
    response=ListTransactionsResponse,
    doc="List transactions: there are none.",
    rights=NO_RIGHTS,
    served_by=ServedBy.ANY_BROKER,
)
