"""How a broker refuses requests: the codes and remarks that clients know."""

from __future__ import annotations

from typing import NoReturn

from eruca._broker.administering.stats import Stats
from eruca._broker.standing import Standing
from eruca._store.messagestore import MessageStore
from eruca._wire.codes import ResponseCode
from eruca._wire.names import check_topic
from eruca.errors import (
    BatchTooLarge,
    InvalidName,
    MessageIllegal,
    RequestRefused,
    StoreClosed,
    StoreError,
    StoreFull,
    StoreReadOnly,
)

FAQ = "\nSee http://rocketmq.apache.org/docs/faq/ for further details."


def refuse(code: int, remark: str) -> NoReturn:
    """Answer a request with a code other than success."""
    raise RequestRefused(int(code), remark)


def refuse_topic_name(topic: str, longest: int) -> None:
    """Refuse an invalid topic name."""
    if not topic.strip():
        refuse(ResponseCode.SYSTEM_ERROR, "The specified topic is blank.")
    try:
        check_topic(topic, max(longest, len(topic)))
    except InvalidName:
        remark = "The specified topic contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"
        refuse(ResponseCode.SYSTEM_ERROR, remark)
    if len(topic) > longest:
        refuse(ResponseCode.SYSTEM_ERROR, "The specified topic is longer than topic max length.")


def refuse_store_error(error: StoreError, store: MessageStore) -> RequestRefused:
    """Return the error for a sender whose message the store did not accept."""
    if isinstance(error, BatchTooLarge):
        return RequestRefused(ResponseCode.MESSAGE_ILLEGAL, str(error))
    if isinstance(error, MessageIllegal):
        remark = (
            "the message is illegal, maybe msg body or properties length not matched. msg body length limit "
            f"{store.options.message_bytes_max}B, msg properties length limit 32KB."
        )
        return RequestRefused(ResponseCode.MESSAGE_ILLEGAL, remark)
    if isinstance(error, StoreFull) and store.log.waiting_bytes is not None and not store.refusal:
        return RequestRefused(ResponseCode.SYSTEM_BUSY, f"[REJECTREQUEST]system busy, {error}")
    if isinstance(error, StoreFull | StoreClosed | StoreReadOnly):
        return RequestRefused(ResponseCode.SERVICE_NOT_AVAILABLE, f"service not available now, {error}")
    return RequestRefused(ResponseCode.SYSTEM_ERROR, str(error))


def refuse_unstored(error: StoreError, store: MessageStore, stats: Stats) -> RequestRefused:
    """Same as `refuse_store_error`, and count the message as failed."""
    stats.put_failures += 1
    return refuse_store_error(error, store)
