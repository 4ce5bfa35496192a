"""A program for tests: takes one JSON object a line, does it with the official Python client, and answers with a line
that has the same id, and rows or an error. Lines are answered as they get done, not in order.

It runs in an environment of its own: its protobuf classes would collide with others in one process.
"""

from __future__ import annotations

import itertools
import json
import os
import sys
import threading
import time
from typing import Any

from rocketmq import (  # type: ignore[import-not-found]
    ClientConfiguration,
    ConsumeResult,
    Credentials,
    FilterExpression,
    Message,
    MessageListener,
    Producer,
    PushConsumer,
    SimpleConsumer,
    TransactionChecker,
    TransactionResolution,
)
from rocketmq.grpc_protocol import FilterType  # type: ignore[import-not-found]

Row = dict[str, Any]

TIMEOUT_S = 10
TLS = "tls" in sys.argv
OUT = os.fdopen(os.dup(1), "w", encoding="utf-8")

started: dict[str, Any] = {}
inboxes: dict[str, list[Row]] = {}
received: dict[str, Any] = {}
numbers = itertools.count(1)
writing = threading.Lock()


def configure(request: Row) -> Any:
    credentials = Credentials(request.get("accessKey", ""), request.get("secretKey", ""))
    return ClientConfiguration(request["endpoints"], credentials, request_timeout=TIMEOUT_S)


def read_subscriptions(request: Row) -> dict[str, Any]:
    return {
        topic: FilterExpression(told["expression"], FilterType.SQL if told["type"] == "SQL" else FilterType.TAG)
        for topic, told in request["subscriptions"].items()
    }


def describe(message: Any) -> Row:
    return {
        "topic": message.topic,
        "body": message.body.decode(),
        "tag": message.tag or None,
        "keys": sorted(message.keys),
        "properties": dict(message.properties),
        "messageId": message.message_id,
        "group": message.message_group or None,
        "attempt": message.delivery_attempt,
        "deliverAt": message.delivery_timestamp * 1000 if message.delivery_timestamp else None,
        "at": int(time.time() * 1000),
    }


# --- producing


class Checker(TransactionChecker):  # type: ignore[misc]
    def __init__(self, name: str, check: str) -> None:
        self._inbox = inboxes.setdefault(name, [])
        self._check = check

    def check(self, message: Any) -> Any:
        self._inbox.append(describe(message))
        resolutions = {"commit": TransactionResolution.COMMIT, "rollback": TransactionResolution.ROLLBACK}
        return resolutions.get(self._check, TransactionResolution.TRANSACTION_RESOLUTION_UNSPECIFIED)


def start_producer(name: str, request: Row) -> list[Row]:
    checker = Checker(name, request.get("check", "none"))
    producer = Producer(configure(request), request["topics"], checker=checker, tls_enable=TLS)
    producer.startup()
    started[name] = producer
    return []


def build(told: Row) -> Any:
    message = Message()
    message.topic = told["topic"]
    message.body = told["body"].encode()
    if "tag" in told:
        message.tag = told["tag"]
    for key in told.get("keys", []):
        message.keys = key
    if "group" in told:
        message.message_group = told["group"]
    if "deliverAt" in told:
        message.delivery_timestamp = told["deliverAt"] // 1000
    for key, value in told.get("properties", {}).items():
        message.add_property(key, value)
    return message


def send(name: str, request: Row) -> list[Row]:
    producer, rows = started[name], []
    for told in request["messages"]:
        if "transaction" in request:
            transaction = producer.begin_transaction()
            receipt = producer.send(build(told), transaction)
            if request["transaction"] == "commit":
                transaction.commit()
            elif request["transaction"] == "rollback":
                transaction.rollback()
        else:
            receipt = producer.send(build(told))
        rows.append({"messageId": receipt.message_id, "recallHandle": receipt.recall_handle})
    return rows


def recall(name: str, request: Row) -> list[Any]:
    return [started[name].recall_message(request["topic"], request["handle"])]


# --- consuming


class Listener(MessageListener):  # type: ignore[misc]
    def __init__(self, name: str, request: Row) -> None:
        self._inbox = inboxes.setdefault(name, [])
        self._failures = dict(request.get("fail", {}))
        self._busy_s = request.get("busyMs", 0) / 1000
        self._lock = threading.Lock()

    def consume(self, message: Any) -> Any:
        row = describe(message)
        with self._lock:
            self._inbox.append(row)
            left = self._failures.get(row["body"], 0)
            self._failures[row["body"]] = left - 1
        threading.Event().wait(self._busy_s)
        return ConsumeResult.FAILURE if left > 0 else ConsumeResult.SUCCESS


def start_push(name: str, request: Row) -> list[Row]:
    listener = Listener(name, request)
    consumer = PushConsumer(configure(request), request["group"], listener, read_subscriptions(request), tls_enable=TLS)
    consumer.startup()
    started[name] = consumer
    return []


def start_simple(name: str, request: Row) -> list[Row]:
    consumer = SimpleConsumer(
        configure(request),
        request["group"],
        read_subscriptions(request),
        await_duration=request["awaitMs"] // 1000,
        tls_enable=TLS,
    )
    consumer.startup()
    started[name] = consumer
    return []


def receive(name: str, request: Row) -> list[Row]:
    rows = []
    for message in started[name].receive(request["max"], request["invisibleMs"] // 1000) or []:
        key = f"m{next(numbers)}"
        received[key] = message
        rows.append({**describe(message), "key": key})
    return rows


def ack(name: str, request: Row) -> list[Row]:
    started[name].ack(received[request["key"]])
    return []


def change(name: str, request: Row) -> list[Row]:
    started[name].change_invisible_duration(received[request["key"]], request["invisibleMs"] // 1000)
    return []


def list_inbox(name: str, request: Row) -> list[Row]:
    return list(inboxes[name])


def stop(name: str, request: Row) -> list[Row]:
    started.pop(name).shutdown()
    return []


ACTIONS = {
    "producer": start_producer,
    "send": send,
    "recall": recall,
    "push": start_push,
    "simple": start_simple,
    "receive": receive,
    "ack": ack,
    "change": change,
    "list": list_inbox,
    "stop": stop,
}


def answer(request: Row) -> None:
    said: Row = {"id": request["id"]}
    try:
        said["rows"] = ACTIONS[request["do"]](request["name"], request)
    except BaseException as error:
        said["error"] = f"{type(error).__name__}: {error}"
    with writing:
        print(json.dumps(said), file=OUT, flush=True)


def main() -> None:
    """Answer until the input ends."""
    # What the library prints goes where errors go.
    os.dup2(2, 1)
    for line in sys.stdin:
        threading.Thread(target=answer, args=[json.loads(line)], daemon=True).start()
    os._exit(0)


if __name__ == "__main__":
    main()
