"""The official `mqadmin` gives the same answers on Eruca as on Java for the same content, field by field.

Both systems get the same topics, groups, messages and offsets from `MqAdmin.java`, which also runs the commands: all in
one process, because a process for each would cost seconds. Every field of an answer must be the same, except for those
that a command lists under `differs` with the reason, and what `mqadmin.VOLATILE` says for all.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from eruca._cli.optionlist import Role, list_options
from tests.interop.brokers import SETTINGS, ErucaCluster, JavaCluster
from tests.interop.javapeer import JavaProgram, Peer
from tests.interop.mqadmin import Ask, Side, find_differences

# As `JavaBroker` has it.
KEEP_FILES = {"fileReservedTime": 999_999, "diskMaxUsedSpaceRatio": 95}

# Why fields differ.
RATE = "a rate: how fast this machine was just now"
CLOCK = "when it happened"
MACHINE = "the machine and the process, not the content"


@pytest.fixture(scope="module")
def sides(peer: Peer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Side, Side]]:
    """Eruca and Java with the same content."""
    home = tmp_path_factory.mktemp("mqadmin")
    with (
        JavaProgram(peer, "eruca.interop.MqAdmin", home / "program") as program,  # comes up beside the others
        JavaCluster(peer, home / "java") as java,
        ErucaCluster(home / "eruca", {**SETTINGS, **KEEP_FILES}) as eruca,
    ):
        yield Side(program, eruca, home / "eruca"), Side(program, java, home / "java")


# --- commands that read -------------------------------------------------------------------------------------------


def list_keys(role: Role) -> frozenset[str]:
    """The keys of all options that a server declares: those that Java lacks, or shows only when they are set, too."""
    return frozenset(facts.key for facts in list_options() if facts.role in (role, Role.SERVER))


# What Eruca tells of itself besides what Java tells.
BROKER_STATUS = {"erucaEpoch", "erucaOnce", "erucaOnceDropped", "erucaRole", "erucaSlaves"}
SMALL = "`eruca up` is for a first try and keeps its files small"
UNSET = "what is not set is shown as not set"
BROKER_VALUES = {
    "bitMapLengthConsumeQueueExt": "Java shows the size its Bloom filter came out with, which has no effect here",
    "brokerIP2": UNSET,
    "storePathCommitLog": UNSET,
    "flushDelayOffsetInterval": "saved more often here: less comes twice after a crash",
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
_METRICS = {"tps": RATE, "totalTps": RATE, "diskRatio": MACHINE}
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
    Ask("brokerStatus -b {broker}", names_only="rates, times, disks and paths", more=BROKER_STATUS),
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
    Ask("getBrokerConfig -b {broker}", differs=BROKER_VALUES, more=list_keys(Role.BROKER), unordered=True),
    Ask("getNamesrvConfig", differs=NAME_SERVER_VALUES, more=list_keys(Role.NAMESERVER), unordered=True),
    Ask("queryMsgById -i {o5}", differs=_VIEW),
    Ask("queryMsgByKey -t MqOrders -k key3", unordered=True),
    Ask("queryMsgByKey -t MqOrders -k nothing"),
    Ask("queryMsgByUniqueKey -t MqOrders -i {m5} -a", differs=_VIEW),
    # The consumer is asked, through the broker, to consume a message once more.
    Ask("queryMsgByUniqueKey -t MqOrders -i {m8} -g MqReaders -d {reader}", differs={"spentTimeMills": RATE}),
    Ask("queryMsgById -i {o8} -g MqReaders -d {reader}", differs={"spentTimeMills": RATE}),
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
    Ask("exportMetrics -c DefaultCluster -f {home}/export", differs=_METRICS, file="export/metrics.json"),
    Ask("exportConfigs -c DefaultCluster -f {home}/export", file="export/configs.json"),
]


@pytest.mark.parametrize("ask", READS_SLICE, ids=lambda ask: ask.line)
def test_answers_are_the_same(sides: tuple[Side, Side], ask: Ask) -> None:
    assert find_differences(sides, ask) == ""


@pytest.mark.whole
@pytest.mark.parametrize("ask", READS, ids=lambda ask: ask.line)
def test_more_answers_are_the_same(sides: tuple[Side, Side], ask: Ask) -> None:
    assert find_differences(sides, ask) == ""


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
        Ask("checkMsgSendRT -t MqEmpty -a 4 -s 10", differs={"RT": RATE, "Avg RT": RATE}),
        Ask("sendMsgStatus -b {name} -c 2", differs=_SENT | {"rt": RATE, "msgId": "made by the client"}),
    ],
    "statistics": [
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
    assert find_differences(sides, *CHANGES[what]) == ""


def test_most_commands_are_compared() -> None:
    asks = [*READS_SLICE, *READS, *(ask for steps in CHANGES.values() for ask in steps)]
    assert len({ask.command for ask in asks}) >= 35
