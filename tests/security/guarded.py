"""Servers with accounts, and one account for each thing that an account can lack."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eruca._access.options import AccessOptions
from eruca._broker.app import Broker
from eruca._broker.options import BrokerOptions
from eruca._filterserver.app import FilterServer
from eruca._filterserver.options import FilterServerOptions
from eruca._ground.config import StoreOptions
from eruca._nameserver.app import NameServer
from eruca._nameserver.options import NameServerOptions
from eruca._net.caller import Caller
from eruca._net.link import Handler, Link
from eruca._wire import headers as h
from eruca._wire.bodies import (
    ConsumeDirectlyResult,
    ConsumeResult,
    ConsumerRunningInfo,
    ConsumerStatusBody,
    encode_json,
)
from eruca._wire.catalog import RequestSpec, Right
from eruca._wire.codes import RequestCode, ResponseCode
from eruca._wire.command import Command, make_request
from eruca._wire.frame import encode_command
from eruca._wire.ids import decode_offset_id
from eruca._wire.names import HALF_TOPIC
from eruca._wire.signature import ACCESS_KEY, SIGNATURE, Credentials
from tests.accounts import ADMIN, describe, enable_accounts, signed
from tests.integration.broker.peer import find_port
from tests.patience import PATIENCE_S
from tests.security.samples import (
    GROUP,
    PRODUCERS,
    REPLIES,
    TOPIC,
    Facts,
    Sample,
    Samples,
    beat,
    sample_broker,
    sample_filterserver,
    sample_nameserver,
    short,
)

TIMEOUT_MS = PATIENCE_S * 1000
REFUSED = "org.apache.rocketmq.acl.common.AclException: "
SMALL = StoreOptions(
    commitlog_segment_bytes=1 << 20, consumequeue_segment_bytes=2000, index_slots=500, index_entries=2000
)


def account(name: str) -> Credentials:
    """An account with a secret of its own."""
    return Credentials(f"account-{name}", f"hidden-{name}-secret")


SHOP, WRITER, READER, STRANGER = account("shop"), account("writer"), account("reader"), account("stranger")
OTHER_GROUP, SERVER, UPLOADER = account("other-group"), account("server"), account("uploader")
# It has the group, and may upload filters, but for another topic.
OTHER_TOPIC = account("other-topic")
ACCOUNTS = (
    describe(SHOP, topicPerms=[f"{TOPIC}=PUB|SUB", f"{REPLIES}=PUB"], groupPerms=[f"{GROUP}=SUB"]),
    describe(WRITER, topicPerms=[f"{TOPIC}=PUB"], groupPerms=[f"{GROUP}=PUB"]),
    describe(READER, topicPerms=[f"{TOPIC}=SUB", f"{REPLIES}=SUB"], groupPerms=[f"{GROUP}=SUB"]),
    describe(OTHER_GROUP, topicPerms=[f"{TOPIC}=SUB"], groupPerms=["another=SUB"]),
    describe(OTHER_TOPIC, upload=True, topicPerms=["another=SUB"], groupPerms=[f"{GROUP}=SUB"]),
    describe(STRANGER),
    describe(SERVER, broker=True),
    describe(UPLOADER, upload=True, topicPerms=[f"{TOPIC}=SUB"], groupPerms=[f"{GROUP}=SUB"]),
)
SECRETS = [ADMIN.secret_key, *(one["secretKey"] for one in ACCOUNTS)]


def list_holders(spec: RequestSpec) -> list[Credentials]:
    """The accounts that may send a request, the weakest first."""
    match spec.right:
        case Right.ACCOUNT | Right.INSPECT:
            return [STRANGER, SHOP, SERVER, ADMIN] if not needs_names(spec) else [SHOP, READER, ADMIN]
        case Right.PUBLISH:
            return [SHOP, ADMIN]
        case Right.SUBSCRIBE:
            return [READER, SHOP, ADMIN]
        case Right.ADMIN:
            return [ADMIN]
        case Right.UPLOAD:
            return [UPLOADER]
        case Right.BROKER:
            return [SERVER]
        case Right.MEMBER:
            return [SERVER, ADMIN]
    raise AssertionError(f"nobody may send {spec.meaning}")


def list_lacking(spec: RequestSpec) -> list[Credentials]:
    """The accounts that lack the right. Of those that any account has, nobody does."""
    lacks_topic = [OTHER_TOPIC] if names_topic(spec) else []
    match spec.right:
        case Right.ACCOUNT | Right.INSPECT:
            return [STRANGER, WRITER, OTHER_GROUP, *lacks_topic] if needs_names(spec) else []
        case Right.PUBLISH:
            return [STRANGER, READER, SERVER]
        case Right.SUBSCRIBE:
            lacks_group = bool(spec.concerns.groups or spec.concerns.in_body)
            return [STRANGER, WRITER, *([OTHER_GROUP] if lacks_group else []), *lacks_topic]
        case Right.ADMIN:
            return [STRANGER, SHOP, SERVER, UPLOADER]
        case Right.UPLOAD:
            return [STRANGER, READER, ADMIN, SERVER, *lacks_topic]
        case Right.BROKER:
            return [STRANGER, SHOP, ADMIN, UPLOADER]
        case Right.MEMBER:
            # The answer has the CRC of any part of the log, even of one byte.
            return [STRANGER, SHOP, READER, UPLOADER]
    raise AssertionError(f"nobody may send {spec.meaning}")


def needs_names(spec: RequestSpec) -> bool:
    """Whether a request that any account may send names groups."""
    return bool(spec.concerns.groups or spec.concerns.in_body)


def names_topic(spec: RequestSpec) -> bool:
    """Whether a request names topics, also in its body or as the position of a message."""
    concerns = spec.concerns
    return bool(concerns.topics or concerns.position or concerns.in_body)


def forge(command: Command, how: str) -> Command:
    """Make a request that nobody may send: without an account, or with a signature that is wrong."""
    if how == "unsigned":
        return command
    if how == "unknown":
        return signed(command, account("unknown"))
    if how == "without signature":
        command.ext = {**command.ext_dict(), ACCESS_KEY: ADMIN.access_key}
        return command
    command = signed(command, ADMIN if how != "wrong secret" else Credentials(ADMIN.access_key, "a-guessed-secret"))
    if how == "changed body":
        command.body += b" "
    if how == "changed header":
        command.ext = {**command.ext_dict(), "another": "field"}
    if how == "signature of another":
        ext = command.ext_dict()
        command.ext = {**ext, ACCESS_KEY: SHOP.access_key, SIGNATURE: ext[SIGNATURE]}
    return command


FORGERIES = (
    "unsigned",
    "unknown",
    "without signature",
    "wrong secret",
    "changed body",
    "changed header",
    "signature of another",
)


@dataclass
class Guarded:
    """A running server with accounts: its codes, samples of its requests, and all that a request could change."""

    addresses: list[str]
    codes: set[int]
    samples: Samples
    digest: Callable[[], Any]
    caller: Caller

    def list_requests(self) -> Iterator[tuple[RequestCode, Sample]]:
        """Every code with its sample."""
        yield from self.samples.items()

    async def ask(self, command: Command, address: str | None = None) -> Command:
        """Send a request."""
        return await self.caller.call(address or self.addresses[0], command, TIMEOUT_MS)


@asynccontextmanager
async def run_broker(directory: Path, access: AccessOptions, **options: Any) -> AsyncIterator[Guarded]:
    """A broker with a topic, a group, messages, and a client."""
    # There are more codes than requests of which a stranger may be refused within a second.
    chosen = {"port": find_port(), "filter_servers_max": 1, "refusals_per_second_max": 1_000, **options}
    broker = Broker(BrokerOptions(**chosen), SMALL, directory / "store", access=access)
    await broker.start()
    address = broker.standing.address
    fast = f"127.0.0.1:{broker.standing.port - 2}"
    caller = Caller(_CLIENT)
    try:
        facts = await _fill(caller, address, broker)

        def digest() -> Any:
            standing, group = broker.standing, broker.clients.consumer(GROUP)
            return (
                encode_json(broker.topics.snapshot()),
                encode_json(broker.groups.snapshot()),
                encode_json(broker.offsets.snapshot()),
                broker.store.log.tail,
                broker.live.now,
                broker.store.options,
                broker.access.book,
                len(broker.locks),
                broker.filter_servers.list_addresses(),
                [] if group is None else sorted(group.client_ids()),
                (standing.state, standing.epoch, standing.role, standing.writable),
            )

        codes = set(broker.ports.handlers)
        yield Guarded([address, fast], codes, sample_broker(facts), digest, caller)
    finally:
        await caller.close()
        await broker.stop()


async def _fill(caller: Caller, address: str, broker: Broker) -> Facts:
    async def expect(code: RequestCode, sample: Sample, who: Credentials) -> Command:
        answer = await caller.call(address, signed(sample.build(code), who), TIMEOUT_MS)
        assert answer.code == ResponseCode.SUCCESS, f"{code.name}: {answer.remark}"
        return answer

    topic = h.CreateTopicHeader(topic=TOPIC, default_topic="TBW102", read_queue_nums=1, write_queue_nums=1, perm=6)
    await expect(RequestCode.UPDATE_AND_CREATE_TOPIC, Sample(topic), ADMIN)
    await expect(RequestCode.HEART_BEAT, Sample(None, beat()), SHOP)
    sent = await expect(RequestCode.SEND_MESSAGE_V2, Sample(short(KEYS="key"), b"first"), SHOP)
    await expect(RequestCode.SEND_MESSAGE_V2, Sample(short(), b"second"), SHOP)
    half = Sample(short(TRAN_MSG="true", PGROUP=PRODUCERS), b"half")
    prepared = await expect(RequestCode.SEND_MESSAGE_V2, half, SHOP)
    offset = Sample(h.UpdateConsumerOffsetHeader(GROUP, TOPIC, 0, 1))
    await expect(RequestCode.UPDATE_CONSUMER_OFFSET, offset, SHOP)
    queue = broker.store.queues.get(HALF_TOPIC, 0)
    assert queue is not None and queue.max_offset == 1
    message_id = sent.decode_header(h.SendMessageAnswerHeader).message_id
    half_id = prepared.decode_header(h.SendMessageAnswerHeader).message_id
    return Facts(decode_offset_id(message_id).position, message_id, decode_offset_id(half_id).position, 0, half_id)


def _answer(link: Link, command: Command) -> bytes:
    """Answer what a broker asks its client."""
    bodies: dict[int, Any] = {
        RequestCode.GET_CONSUMER_RUNNING_INFO: ConsumerRunningInfo(),
        RequestCode.CONSUME_MESSAGE_DIRECTLY: ConsumeDirectlyResult(consume_result=ConsumeResult.CR_SUCCESS),
        RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT: ConsumerStatusBody(),
    }
    body = bodies.get(command.code)
    return encode_command(command.answer(0, body=b"" if body is None else encode_json(body)))


_CLIENT: dict[int, Handler] = dict.fromkeys(
    (
        RequestCode.GET_CONSUMER_RUNNING_INFO,
        RequestCode.CONSUME_MESSAGE_DIRECTLY,
        RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT,
        RequestCode.RESET_CONSUMER_CLIENT_OFFSET,
        RequestCode.NOTIFY_CONSUMER_IDS_CHANGED,
        RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT,
        RequestCode.CHECK_TRANSACTION_STATE,
    ),
    _answer,
)


@asynccontextmanager
async def run_nameserver(directory: Path, access: AccessOptions) -> AsyncIterator[Guarded]:
    """A name server that knows nobody."""
    options = NameServerOptions(
        listen_port=0,
        kv_config_path=str(directory / "kv.json"),
        config_store_path=str(directory / "namesrv.conf"),
    )
    server = NameServer(options, access=access)
    await server.start()
    caller = Caller()
    try:

        def digest() -> Any:
            return (
                encode_json(server.routes.describe_clusters()),
                list(server.routes.list_topics()),
                server.routes.find_route(TOPIC),
                server.kv.list("space"),
                server.running.current,
            )

        yield Guarded([server.address], set(server.server.handlers), sample_nameserver(), digest, caller)
    finally:
        await caller.close()
        await server.stop()


@asynccontextmanager
async def run_filterserver(directory: Path, access: AccessOptions) -> AsyncIterator[Guarded]:
    """A filter server, for a broker without accounts."""
    broker = Broker(BrokerOptions(port=find_port(), filter_servers_max=1), SMALL, directory / "store")
    await broker.start()
    caller = Caller()
    server = FilterServer(FilterServerOptions(broker=broker.standing.address, time_ms=60_000), access=access)
    try:
        await server.start()
        send = make_request(RequestCode.SEND_MESSAGE_V2, short(), b"first")
        assert (await caller.call(broker.standing.address, send, TIMEOUT_MS)).code == ResponseCode.SUCCESS
        listening, classes = server._server, server._classes
        assert listening is not None and classes is not None

        def digest() -> Any:
            return encode_json(broker.offsets.snapshot()), dict(groups)

        groups = classes._groups
        yield Guarded([server.address], set(listening.handlers), sample_filterserver(), digest, caller)
    finally:
        await caller.close()
        await server.stop()
        await broker.stop()


RUN = {"broker": run_broker, "nameserver": run_nameserver, "filterserver": run_filterserver}


def make_access(directory: Path, **fields: Any) -> AccessOptions:
    """Write the accounts of these tests."""
    return enable_accounts(directory / "conf", *ACCOUNTS, **fields)
