"""sendMessage, sendMsgStatus, checkMsgSendRT, clusterRT."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from itertools import cycle, islice
from time import perf_counter

from eruca._admin.settings import read_permission
from eruca._cli.mqadmin.call import Call
from eruca._cli.mqadmin.javatext import show_bool, show_receipt
from eruca._wire.names import WRITE
from eruca.errors import ConfigError, ErucaError, NoRoute

# What Java's tool repeats up to the size of a message, and the size of its first message.
_WORDS = b"hello jodie"
_FIRST_SIZE = 16
# Java's clusterRT writes its log with the time in China.
_CHINA = timezone(timedelta(hours=8))


async def send_message(call: Call) -> None:
    """Send a message."""
    line = call.line
    if line.has("i") and not line.has("b"):
        raise ConfigError("Broker name must be set if the queue is chosen!")
    queue = line.number("i", -1)
    receipt = await call.admin.messages.send(
        line.text("t"),
        line.text("p").encode(),
        tags=line.find("c"),
        keys=line.text("k").split(),
        # Like Java: a broker without a queue is not chosen.
        broker=line.find("b") if queue >= 0 else None,
        queue=queue if queue >= 0 else None,
        auto_create=True,
        trace=line.is_true("m"),
    )
    assert receipt is not None
    show = call.out.table("%-32s  %-4s  %-20s    %s", "Broker Name", "QID", "Send Result", "MsgId")
    show(receipt.queue.broker_name, receipt.queue.queue_id, receipt.status.value, receipt.message_id)


async def send_status(call: Call) -> None:
    """Send messages to the topic that has the name of a broker, and show how long each took."""
    broker, size = call.line.text("b"), call.line.number("s", 128)
    await call.admin.messages.send(broker, _make_body(_FIRST_SIZE), auto_create=True)
    for _ in range(call.line.number("c", 50)):
        begin = perf_counter()
        receipt = await call.admin.messages.send(broker, _make_body(size), auto_create=True)
        assert receipt is not None
        call.out.say("rt=%dms, SendResult=%s", _spent_ms(begin), show_receipt(receipt))


def _make_body(size: int) -> bytes:
    return _WORDS * -(-size // len(_WORDS))


def _spent_ms(begin: float) -> float:
    return (perf_counter() - begin) * 1000


async def check_send(call: Call) -> None:
    """Send messages to the queues of a topic in turn, and show how long each took."""
    topic, body = call.line.text("t"), b"a" * call.line.number("s", 128)
    route = await call.admin.routes.show(topic)
    queues = [
        (row.broker, queue)
        for row in sorted(route.brokers, key=lambda row: row.broker)
        if read_permission(row.permission) & WRITE
        for queue in range(row.write_queues)
    ]
    if not queues:
        raise NoRoute(f"topic {topic} has no queue that accepts messages", hint="topicRoute shows its permission")
    show = call.out.table("%-32s  %-4s  %-20s    %s", "Broker Name", "QID", "Send Result", "RT")
    times = []
    for broker, queue in islice(cycle(queues), call.line.number("a", 100)):
        begin = perf_counter()
        sent = await _try_send(call, topic, body, broker, queue)
        times.append(_spent_ms(begin))
        show(broker, queue, show_bool(sent), round(times[-1]))
        call.out.failed = call.out.failed or not sent
    call.out.say("Avg RT: %.2f", _mean(times))


async def _try_send(call: Call, topic: str, body: bytes, broker: str | None = None, queue: int | None = None) -> bool:
    try:
        await call.admin.messages.send(topic, body, broker=broker, queue=queue)
    except ErucaError:
        return False
    return True


def _mean(times: list[float]) -> float:
    """Return the mean without the first, which includes making the connection."""
    rest = times[1:]
    return sum(rest) / len(rest) if rest else 0.0


async def cluster_rt(call: Call) -> None:
    """Send messages to the brokers of clusters repeatedly, and show how long they take."""
    line = call.line
    body, amount = b"a" * line.number("s", 128), line.number("a", 100)
    clusters = {row.cluster: row.brokers for row in call.take(await call.admin.cluster.list())}
    wanted = [line.text("c")] if line.has("c") else sorted(clusters)
    form = "%-24s  %-24s  %-8s  %-16s  %-16s"
    if not line.is_true("p"):
        heads = ("#Cluster Name", "#Broker Name", "#RT", "#successCount", "#failCount")
        call.out.say("%-24s  %-24s  %-4s  %-8s  %-8s", *heads)
    async for _ in call.rounds(line.number("i", 10)):
        for cluster in wanted:
            if cluster not in clusters:
                raise NoRoute(f"cluster [{cluster}] not exist", hint="clusterList shows the clusters")
            for broker in clusters[cluster]:
                times, failed = [], 0
                for _ in range(amount):
                    begin = perf_counter()
                    failed += not await _try_send(call, broker, body)
                    times.append(_spent_ms(begin))
                if line.is_true("p"):
                    now = f"{datetime.now(UTC).astimezone(_CHINA):%Y-%m-%d %H:%M:%S}"
                    call.out.say("%s|%s|%s|%s|%.0f", now, line.text("m", "noname"), cluster, broker, _mean(times))
                else:
                    call.out.say(form, cluster, broker, f"{_mean(times):.2f}", amount - failed, failed)
                call.out.failed = call.out.failed or failed > 0
