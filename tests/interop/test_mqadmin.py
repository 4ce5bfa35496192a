"""The official `mqadmin` gives the same answers on Eruca as on Java for the same content, field by field.

Both systems get the same topics, groups, messages and offsets from `MqAdmin.java`, which also runs the commands: all in
one process, because a process for each would cost seconds. What a command prints is cut into fields (cells of tables
under their headings, `key : value` pairs, JSON, the fields of a message, otherwise words) and every field must be the
same, except for those that a command lists under `differs` with the reason, and what `VOLATILE` says for all.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Container, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.interop.brokers import BROKER_NAME, SETTINGS, Cluster, ErucaCluster, JavaCluster
from tests.interop.javapeer import JavaProgram, Peer

# The first test starts two systems and fills them.
pytestmark = pytest.mark.timeout(300)

# As `JavaBroker` has it.
KEEP_FILES = {"fileReservedTime": 999_999, "diskMaxUsedSpaceRatio": 95}
# A broker samples its counters every 10 s.
SAMPLE_SECONDS_MAX = 30

# What differs between any two runs, of the same system too, by its look.
VOLATILE = (
    # An offset id is address, port and position: only the port is another.
    (re.compile(r"\b7F000001[0-9A-F]{8}(?=[0-9A-F]{16}\b)"), "BROKER-"),
    (re.compile(r"\b\d{4}-\d\d-\d\d[ #]\d\d:\d\d:\d\d(?:[,:]\d{3})?"), "TIME"),
    # Milliseconds; a number, so that JSON stays JSON.
    (re.compile(r"\b1[6-9]\d{11}\b"), "1600000000000"),
    # Where a client connected from.
    (re.compile(r"/?\b127\.0\.0\.1:\d+"), "PEER"),
)

RATE = "a rate: how fast this machine was just now"
CLOCK = "when it happened"
MACHINE = "the machine and the process, not the content"


@dataclass(frozen=True)
class Ask:
    """A command line of mqadmin, and the fields of its answer that may differ, each with the reason."""

    line: str
    differs: Mapping[str, str] = field(default_factory=dict)
    # The command prints a Java hash table or set as it comes.
    unordered: bool = False
    # Only the names of the fields are compared, for the reason given.
    names_only: str = ""
    # Names of fields that only Eruca has.
    more: Container[str] = ()
    # Neither has anything to say.
    silent: bool = False
    # Both are asked again until their answer has this; for what a broker samples from time to time.
    until: Mapping[str, str] = field(default_factory=dict)
    # The answer is in this file below {home}, as JSON.
    file: str = ""

    @property
    def command(self) -> str:
        """The name of the command."""
        return self.line.split()[0]


# --- from text to fields ----------------------------------------------------------------------------------------


def parse_fields(text: str) -> list[Any]:
    """Cut what a command printed into tables, pairs, JSON, messages and words."""
    if text.lstrip().startswith("{"):
        # Java writes numbers as keys without quotes.
        return [json.loads(re.sub(r"([{,]\s*)(-?\d+):", r'\1"\2":', text))]
    items: list[Any] = []
    columns: list[str] = []
    for line in text.splitlines():
        if line.startswith("#"):
            columns = [name.strip() for name in line.split("#")[1:]]
            items.append(columns)
        elif not line.strip():
            columns = []
        elif "MessageExt [" in line:
            items.append(_parse_message(line))
        else:
            cells = line.split()
            pair = re.fullmatch(r"\s*([\w.@/#-]+(?: [\w.]+)?)\s*[:=]\s+(.*?)\s*", line)
            if columns:
                items.append(dict(zip(columns, cells, strict=True)) if len(cells) == len(columns) else cells)
            else:
                items.append({pair[1]: pair[2]} if pair else cells)
    return items


def _parse_message(line: str) -> dict[str, Any]:
    """The fields and the properties of a message as `MessageExt.toString` writes them."""
    before, _, after = line.partition("MessageExt [")
    fields = dict(re.findall(r"(\w+)=([^,\[\]{}]+)", after))
    return {"MSGID": before.split(), **fields, "body": after.partition("body=")[2]}


def hide_fields(item: Any, hidden: Mapping[str, str]) -> Any:
    """A copy with a mark in place of the values of some fields, at any depth."""
    if isinstance(item, dict):
        return {key: "*" if key in hidden else hide_fields(value, hidden) for key, value in item.items()}
    if isinstance(item, list):
        return [hide_fields(value, hidden) for value in item]
    return item


def list_names(items: list[Any]) -> list[str]:
    """The sorted names of the fields, without what they say."""
    names = (name for item in items for name in (item if isinstance(item, dict) else [" ".join(map(str, item))]))
    # One name ends with a path of the store.
    return sorted(re.sub(r"HOME\S*", "PATH", name) for name in names)


# --- two systems with the same content ----------------------------------------------------------------------------


class Side:
    """One of the two systems, as commands see it."""

    def __init__(self, program: JavaProgram, cluster: Cluster, home: Path) -> None:
        self._program = program
        self._cluster = cluster
        self._words = {"broker": cluster.broker, "names": cluster.name_server, "name": BROKER_NAME, "home": str(home)}
        request = {"do": "build", "kind": cluster.kind, "nameServer": cluster.name_server}
        (ids,) = program.ask(request | {"address": cluster.broker, "broker": BROKER_NAME}, seconds=120)
        self._words |= {label.removesuffix(f"-senders-{cluster.kind}"): name for label, name in ids.items()}

    def wait_for_answer(self, ask: Ask) -> dict[str, Any]:
        """The answer; when something is awaited, the first that has it, or the last that came in time."""
        deadline = time.monotonic() + SAMPLE_SECONDS_MAX
        while True:
            answer = self.answer(ask)
            rows = [item for item in answer["fields"] if isinstance(item, dict)]
            if not ask.until or any(ask.until.items() <= row.items() for row in rows) or time.monotonic() > deadline:
                return answer

    def answer(self, ask: Ask) -> dict[str, Any]:
        """Run a command and give the fields of its answer, without what always differs."""
        arguments = [word.format_map(self._words) for word in ask.line.split()]
        (row,) = self._program.ask({"do": "run", "nameServer": self._cluster.name_server, "arguments": arguments})
        text = Path(self._words["home"], ask.file).read_text("utf-8") if ask.file else row["out"]
        items = parse_fields(self._hide(text))
        if ask.names_only:
            items = list_names(items)
        else:
            more = ask.more if self._cluster.kind == "eruca" else ()
            items = [item for item in items if not _is_idle_retry(item) and not any(name in more for name in item)]
            items = [hide_fields(item, ask.differs) for item in items]
            if ask.unordered:
                items.sort(key=lambda item: json.dumps(item, sort_keys=True))
        errors = self._hide(row["err"]).splitlines()
        return {
            "fields": items,
            "error": [self._hide(row["error"])] if row.get("error") else [],
            "complaint": errors[:1],
        }

    def _hide(self, text: str) -> str:
        text = text.replace(self._cluster.broker, "BROKER").replace(self._cluster.name_server, "NAMESERVER")
        text = text.replace(self._words["home"], "HOME").replace(f"-{self._cluster.kind}", "-KIND")
        for pattern, mark in VOLATILE:
            text = pattern.sub(mark, text)
        return text


def _is_idle_retry(item: Any) -> bool:
    """A group's retry queue without messages is listed once the consumer's first long pull of it came back."""
    return isinstance(item, dict) and item.get("Topic", "").startswith("%RETRY%") and item.get("Broker Offset") == "0"


@pytest.fixture(scope="module")
def sides(peer: Peer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Side, Side]]:
    """Eruca and Java with the same content."""
    home = tmp_path_factory.mktemp("mqadmin")
    with ExitStack() as stack, ThreadPoolExecutor() as threads:
        starting = threads.submit(JavaCluster, peer, home / "java")
        eruca = stack.enter_context(ErucaCluster(home / "eruca", {**SETTINGS, **KEEP_FILES}))
        java = stack.enter_context(starting.result())
        program = stack.enter_context(JavaProgram(peer, "eruca.interop.MqAdmin", home / "program"))
        yield Side(program, eruca, home / "eruca"), Side(program, java, home / "java")


def compare(sides: tuple[Side, Side], *asks: Ask) -> None:
    """Ask both one thing after the other and find no difference, and an answer to each."""
    differences = []
    for ask in asks:
        eruca, java = (side.wait_for_answer(ask) for side in sides)
        assert any(java.values()) != ask.silent, f"{ask.line} says {java}"
        if eruca != java:
            differences.append((ask.line, list_differences(eruca, java)))
    assert not differences, "\n".join(f"{line}\n    " + "\n    ".join(found) for line, found in differences)


def list_differences(eruca: dict[str, Any], java: dict[str, Any]) -> list[str]:
    """What one answer has that the other has not."""
    texts = [[json.dumps(item) for items in side.values() for item in items] for side in (eruca, java)]
    found = [f"only Eruca: {text}" for text in texts[0] if text not in texts[1]]
    found += [f"only Java: {text}" for text in texts[1] if text not in texts[0]]
    return found or ["the same fields in another order"]


# --- commands that read -------------------------------------------------------------------------------------------

# Settings that Eruca has and Java does not, and some of Java's that its brokers leave out as long as they are not set.
BROKER_SETTINGS = {
    "bindAddress",
    "channelExpiredTimeout",
    "configBlackList",
    "deleteFilesBatchMax",
    "diskSpaceCleanForciblyRatio",
    "diskSpaceWarningLevelRatio",
    "enableBatchPush",
    "logLevel",
    "propertiesLengthMax",
    "pullRequestHoldScanInterval",
    "rebalanceLockMaxLiveTime",
    "rmqAddressServerDomain",
    "scanNotActiveClientInterval",
    "scheduleMessageInterval",
    "topicNameLengthMax",
} | {
    "brokerConfigPath",
    "dLegerGroup",
    "dLegerPeers",
    "dLegerSelfId",
    "haMasterAddress",
    "preferredLeaderId",
    "readOnlyCommitLogStorePaths",
    "storePathDLedgerCommitLog",
}
NAME_SERVER_SETTINGS = {
    "bindAddress",
    "brokerChannelExpiredTime",
    "configBlackList",
    "printKVConfigInterval",
    "scanNotActiveBrokerInterval",
}
SMALL = "`eruca up` is for a first try and keeps its files small"
UNSET = "what is not set is shown as not set"
BROKER_VALUES = {
    "bitMapLengthConsumeQueueExt": "Java shows the size its Bloom filter came out with, which has no effect here",
    "brokerIP2": UNSET,
    "storePathCommitLog": UNSET,
    "rocketmqHome": MACHINE,
    "storePathRootDir": MACHINE,
    "listenPort": MACHINE,
    "haListenPort": MACHINE,
    "mappedFileSizeCommitLog": SMALL,
    "mappedFileSizeConsumeQueue": SMALL,
    "maxHashSlotNum": SMALL,
    "maxIndexNum": SMALL,
}
NAME_SERVER_VALUES = dict.fromkeys(("configStorePath", "kvConfigPath", "listenPort", "rocketmqHome"), MACHINE)

_MESSAGE = {"bornTimestamp": CLOCK, "storeTimestamp": CLOCK}
# Their sums are compared below, with a message that is new.
_COUNTED = {name: RATE for name in ("InTPS", "OutTPS", "InMsg24Hour", "OutMsg24Hour")}
_VIEW = {"Born Timestamp": CLOCK, "Store Timestamp": CLOCK}

_BOTH_WAYS = {"InMsg24Hour": "1", "OutMsg24Hour": "1"}
# Unique ids that the client makes when it sends.
_SENT = {name: "made by the client" for name in ("MsgId", "UNIQ_KEY", "MSGID")}

READS_SLICE = [
    Ask("topicList", unordered=True),
    Ask("topicRoute -t MqOrders"),
    Ask("topicStatus -t MqOrders"),
    Ask("consumerProgress -g MqGone", differs={"Consume TPS": RATE}),
    Ask("consumerConnection -g MqReaders"),
    Ask("queryMsgByUniqueKey -t MqOrders -i {m5}", differs=_VIEW),
    Ask("queryMsgByOffset -t MqOrders -b {name} -i 1 -o 1", differs=_VIEW),
    Ask("getConsumerConfig -g MqConfigured"),
]

READS = [
    Ask("topicList -c", unordered=True),
    Ask("topicRoute -t MqOrders -l"),
    Ask("topicRoute -t MqNowhere"),
    Ask("topicStatus -t MqEmpty"),
    Ask("topicStatus -t MqNowhere"),
    Ask("topicClusterList -t MqOrders"),
    Ask(
        "clusterList",
        differs={"InTPS(LOAD)": RATE, "OutTPS(LOAD)": RATE, "PCWait(ms)": RATE, "Hour": CLOCK, "SPACE": MACHINE},
    ),
    Ask("clusterList -m"),
    Ask("brokerStatus -b {broker}", names_only="rates, times, disks and paths"),
    Ask("brokerConsumeStats -b {broker}", unordered=True),
    Ask("brokerConsumeStats -b {broker} -l 1", unordered=True),
    Ask("consumerProgress", differs={"TPS": RATE}, unordered=True),
    Ask("consumerProgress -g MqReaders", differs={"Consume TPS": RATE}),
    Ask("consumerProgress -g MqReaders -s true", differs={"Consume TPS": RATE}),
    Ask("consumerProgress -g MqNobody"),
    Ask("consumerConnection -g MqGone"),
    Ask("consumerConnection -g MqReaders -b {broker}"),
    Ask("producerConnection -g MqSenders -t MqOrders"),
    Ask("producerConnection -g MqNobody -t MqOrders"),
    Ask("producer -b {broker}", unordered=True),
    Ask("consumerStatus -g MqReaders"),
    Ask("getConsumerConfig -g MqReaders"),
    Ask("getConsumerConfig -g MqNobody", silent=True),
    Ask("getBrokerConfig -b {broker}", differs=BROKER_VALUES, more=BROKER_SETTINGS, unordered=True),
    Ask("getNamesrvConfig", differs=NAME_SERVER_VALUES, more=NAME_SERVER_SETTINGS, unordered=True),
    Ask("queryMsgById -i {o5}", differs=_VIEW),
    Ask("queryMsgByKey -t MqOrders -k key3", unordered=True),
    Ask("queryMsgByKey -t MqOrders -k nothing"),
    Ask("queryMsgByUniqueKey -t MqOrders -i {m5} -a", differs=_VIEW),
    Ask("queryMsgByOffset -t MqOrders -b {name} -i 1 -o 99", silent=True),
    # Each broker left a note about that.
    Ask("printMsg -t OFFSET_MOVED_EVENT -d true", differs=_MESSAGE),
    Ask("queryMsgTraceById -i {m5}"),
    Ask("queryCq -t MqOrders -q 1 -i 0 -c 3"),
    Ask("queryCq -t MqOrders -q 1 -i 0 -c 3 -g MqReaders"),
    Ask("queryCq -t MqOrders -q 9 -i 0"),
    Ask("printMsg -t MqOrders -d true", differs=_MESSAGE, unordered=True),
    Ask("printMsg -t MqOrders -s TagA", differs=_MESSAGE, unordered=True),
    Ask("printMsgByQueue -t MqOrders -a {name} -i 1 -p true -d true -f true", differs=_MESSAGE),
    Ask("printMsgByQueue -t MqOrders -a {name} -i 2 -s TagB -f true"),
    Ask("consumeMessage -t MqOrders -c 3 -b {name} -i 0", differs=_MESSAGE),
    Ask("consumeMessage -t MqOrders -b {name} -i 0 -o 2 -c 1", differs=_MESSAGE),
    Ask("statsAll -t MqOrders", differs=_COUNTED, unordered=True),
    Ask("statsAll", differs=_COUNTED, unordered=True),
    Ask("allocateMQ -t MqOrders -i 10.0.0.1,10.0.0.2,10.0.0.3"),
    Ask("exportMetadata -c DefaultCluster -f {home}/export", file="export/metadata.json"),
    Ask("exportMetadata -b {broker} -t -f {home}/export", file="export/topic.json"),
    Ask("exportMetadata -b {broker} -g -f {home}/export", file="export/subscriptionGroup.json"),
    Ask("exportConfigs -c DefaultCluster -f {home}/export", file="export/configs.json"),
]


@pytest.mark.parametrize("ask", READS_SLICE, ids=lambda ask: ask.line)
def test_answers_are_the_same(sides: tuple[Side, Side], ask: Ask) -> None:
    compare(sides, ask)


@pytest.mark.whole
@pytest.mark.parametrize("ask", READS, ids=lambda ask: ask.line)
def test_more_answers_are_the_same(sides: tuple[Side, Side], ask: Ask) -> None:
    compare(sides, ask)


# --- commands that change something: each with those that show what changed -----------------------------------------

CHANGES: dict[str, list[Ask]] = {
    "topic": [
        Ask("updateTopic -b {broker} -t MqNew -r 3 -w 2 -p 6"),
        Ask("topicRoute -t MqNew"),
        Ask("topicStatus -t MqNew"),
        Ask("updateTopic -c DefaultCluster -t MqNew -r 5 -w 5 -p 4 -u true -s true"),
        Ask("topicRoute -t MqNew"),
        Ask("updateTopicPerm -b {broker} -t MqNew -p 2"),
        Ask("topicRoute -t MqNew"),
        Ask("updateTopicPerm -c DefaultCluster -t MqNew -p 6"),
        Ask("updateTopicPerm -b {broker} -t MqNew -p 6"),
        Ask("topicRoute -t MqNew"),
        Ask("deleteTopic -c DefaultCluster -t MqNew"),
        Ask("topicRoute -t MqNew"),
        Ask("topicList", unordered=True),
        Ask("updateTopic -b {broker} -t Mq%New"),
        Ask("updateTopic -b {broker} -t TBW102 -r 2 -w 2"),
    ],
    "ordered-topic": [
        Ask("updateTopic -b {broker} -t MqOrdered -r 2 -w 2 -o true"),
        Ask("topicRoute -t MqOrdered"),
        Ask("updateOrderConf -m get -t MqOrdered"),
        Ask("updateOrderConf -m put -t MqOrdered -v {name}:7"),
        Ask("updateOrderConf -m get -t MqOrdered"),
        Ask("topicRoute -t MqOrdered"),
        Ask("updateOrderConf -m delete -t MqOrdered"),
        Ask("updateOrderConf -m get -t MqOrdered"),
    ],
    "group": [
        Ask("updateSubGroup -b {broker} -g MqFresh -s true -m false -d true -q 2 -r 5 -i 0 -w 1 -a false"),
        Ask("getConsumerConfig -g MqFresh"),
        Ask("updateSubGroup -c DefaultCluster -g MqFresh -s false"),
        Ask("getConsumerConfig -g MqFresh"),
        Ask("deleteSubGroup -c DefaultCluster -g MqFresh -r true"),
        Ask("getConsumerConfig -g MqFresh", silent=True),
        Ask("deleteSubGroup -b {broker} -g MqNobody"),
    ],
    "kv": [
        Ask("updateKvConfig -s MqSpace -k color -v red"),
        Ask("deleteKvConfig -s MqSpace -k color"),
        Ask("deleteKvConfig -s MqSpace -k color"),
    ],
    "write-permission": [
        Ask("wipeWritePerm -b {name}"),
        Ask("topicRoute -t MqOrders"),
        Ask("addWritePerm -b {name}"),
        Ask("topicRoute -t MqOrders"),
        Ask("wipeWritePerm -b MqNoBroker"),
        Ask("addWritePerm -b MqNoBroker"),
    ],
    "offsets": [
        Ask("cloneGroupOffset -s MqGone -d MqCloned -t MqOrders"),
        Ask("brokerConsumeStats -b {broker}", unordered=True),
        Ask("resetOffsetByTime -g MqGone -t MqOrders -s 1000000000000"),
        Ask("consumerProgress -g MqGone", differs={"Consume TPS": RATE}),
        Ask("resetOffsetByTime -g MqGone -t MqOrders -s now -f false"),
        Ask("consumerProgress -g MqGone", differs={"Consume TPS": RATE}),
        Ask("skipAccumulatedMessage -g MqGone -t MqOrders"),
        Ask("consumerProgress -g MqGone", differs={"Consume TPS": RATE}),
        Ask("resetOffsetByTime -g MqReaders -t MqOrders -s now", unordered=True),
        Ask("skipAccumulatedMessage -g MqReaders -t MqOrders", unordered=True),
        Ask("resetOffsetByTime -g MqNobody -t MqOrders -s now"),
        Ask("skipAccumulatedMessage -g MqNobody -t MqNowhere"),
    ],
    "messages": [
        Ask("sendMessage -t MqEmpty -p hello -k one -c TagA -b {name} -i 1", differs=_SENT),
        Ask("topicStatus -t MqEmpty"),
        Ask("consumeMessage -t MqEmpty -b {name} -i 1", differs=_MESSAGE | _SENT),
        Ask("sendMessage -t MqNowhere -p hello -b {name} -i 1", differs=_SENT),
    ],
    "statistics": [
        Ask("updateTopic -b {broker} -t MqCounted -r 1 -w 1"),
        Ask("resetOffsetByTime -g MqCounters -t MqCounted -s 1000000000000"),
        Ask("sendMessage -t MqCounted -p hello -b {name} -i 0", differs=_SENT),
        Ask("consumeMessage -t MqCounted -g MqCounters", differs=_MESSAGE | _SENT),
        Ask("statsAll -t MqCounted", differs={"InTPS": RATE, "OutTPS": RATE}, until=_BOTH_WAYS),
        Ask("clusterList -m"),
    ],
    "cleaning": [
        Ask("cleanExpiredCQ -b {broker}"),
        Ask("cleanExpiredCQ -c DefaultCluster"),
        Ask("cleanUnusedTopic -b {broker}"),
        Ask("cleanUnusedTopic -c DefaultCluster"),
        Ask("deleteExpiredCommitLog -b {broker}"),
        Ask("deleteExpiredCommitLog -c DefaultCluster"),
        Ask("topicStatus -t MqOrders"),
    ],
}


@pytest.mark.whole
@pytest.mark.parametrize("what", CHANGES)
def test_changes_are_the_same(sides: tuple[Side, Side], what: str) -> None:
    compare(sides, *CHANGES[what])


def test_most_commands_are_compared() -> None:
    asks = [*READS_SLICE, *READS, *(ask for steps in CHANGES.values() for ask in steps)]
    assert len({ask.command for ask in asks}) >= 35
