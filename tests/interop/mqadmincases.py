"""What is asked of each of mqadmin's commands, and which fields of the answers may differ, with the reason.

Java's mqadmin and `eruca admin` run each line on Eruca and on Java. Names in braces are those of `mqadmin.Side`;
`{by}` is another name for each of the two tools, so that what one creates is not what the other changes.
"""

from __future__ import annotations

import re
from typing import Any

from tests.interop.mqadmin import Ask

# Why fields differ.
RATE = "a rate: how fast this machine was just now"
CLOCK = "when it happened"
MACHINE = "the machine and the process, not the content"

# --- what may differ ------------------------------------------------------------------------------------------------

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
# A Java broker shows a message to consumers a moment after it was sent.
_ONE_THERE = {"MAX_OFFSET": "1"}
_PLACE = dict.fromkeys(("commitLogOffset", "msgId", "storeSize"), "what each tool stores is at another place")
_METRICS = {"tps": RATE, "totalTps": RATE, "diskRatio": MACHINE}
# Their sums are compared below, with a message that is new.
_COUNTED = {name: RATE for name in ("InTPS", "OutTPS", "InMsg24Hour", "OutMsg24Hour")}
_RATES = {"InTPS": RATE, "OutTPS": RATE}
_WAITING = {"Accumulation": "Java needs the retry topic of a group to know it, and has 0 without"}
_VIEW = {"Born Timestamp": CLOCK, "Store Timestamp": CLOCK}
_LOAD = {"InTPS(LOAD)": RATE, "OutTPS(LOAD)": RATE, "PCWait(ms)": RATE, "Hour": CLOCK, "SPACE": MACHINE}

_BOTH_WAYS = {"InMsg24Hour": "1", "OutMsg24Hour": "1"}
# Unique ids that the client makes when it sends.
_NO_BROKER = "there is no such broker, which Java's name servers do not mind"
_SENT = {name: "made by the client" for name in ("MsgId", "UNIQ_KEY", "MSGID")}


def _count_shares(items: list[Any]) -> list[Any]:
    """How many queues each member gets, and all of them: Java deals them out in the order of a hash table.

    Its consumers sort them first, and so does `eruca admin`.
    """
    (answer,) = items
    shares: dict[str, list[Any]] = answer["result"]
    queues = sorted((queue for share in shares.values() for queue in share), key=str)
    return [{member: len(share) for member, share in shares.items()}, queues]


def _list_without_rates(items: list[Any]) -> list[Any]:
    """The words of a report, without decimals, in any order."""
    words = [re.sub(r"\d+\.\d\d", "RATE", str(item)) for item in items]
    return sorted(words)


def _list_parts(items: list[Any]) -> list[Any]:
    """The parts of a line for a log, without time and rate."""
    return [str(item).split("|")[1:4] for item in items]


def _hide_rates(items: list[Any]) -> list[Any]:
    """The rows; those of topics without groups have fewer cells: the third is the rate, the fourth a counter.

    A broker counts the last minute at first, and the last hour later, so a counter may be 0 in between.
    """
    short = ("NO_CONSUMER",)
    hidden = ["RATE", "COUNT"]
    return [[*item[:2], *hidden, *item[4:]] if tuple(item[-1:]) == short else item for item in map(_as_list, items)]


def _as_list(item: Any) -> Any:
    return item if isinstance(item, list) else [item]


def _leave_out_version(items: list[Any]) -> list[Any]:
    """The tables without how often they were changed, which `eruca admin` does not write."""
    return [{name: table for name, table in item.items() if name != "dataVersion"} for item in items]


def _leave_out_object(items: list[Any]) -> list[Any]:
    """The lines without the last: Java prints the address of an object in memory, `eruca admin` the access key."""
    return items[:-1]


def _leave_out_monitor(items: list[Any]) -> list[Any]:
    """The lines about all groups but the one with which Java's monitor reads notes about deleted messages.

    It reads them at some time during the round.
    """
    return [item for item in items if "__MONITOR_CONSUMER" not in str(item) and "DeleteMsgsEvent" not in str(item)]


def _list_sent(items: list[Any]) -> list[Any]:
    """The outcome of sends, without how long they took, where they are stored, and the ids that the client made."""
    wanted = ("sendStatus", "topic", "brokerName")
    return [{name: item[name] for name in wanted} for item in items if isinstance(item, dict)]


# --- the cases ------------------------------------------------------------------------------------------------------

CASES: dict[str, list[Ask]] = {
    # -- topics
    "updateTopic": [
        Ask("updateTopic -b {broker} -t MqNew{by} -r 3 -w 2 -p 6"),
        Ask("topicRoute -t MqNew{by}"),
        Ask("topicStatus -t MqNew{by}"),
        Ask("updateTopic -c DefaultCluster -t MqNew{by} -r 5 -w 5 -p 4 -u true -s true"),
        Ask("topicRoute -t MqNew{by}"),
        Ask("updateTopic --brokerAddr={broker} -topic MqNew{by} -r4 --writeQueueNums 4"),
        Ask("topicRoute -t MqNew{by}"),
        Ask("updateTopic -b {broker} -t MqOrdered{by} -r 2 -w 2 -o true", unordered=True, complains=True),
        Ask("topicRoute -t MqOrdered{by}"),
        Ask("updateOrderConf -m get -t MqOrdered{by}"),
        Ask("updateTopic -b {broker} -t Mq%New"),
        Ask("updateTopic -b {broker} -t TBW102 -r 2 -w 2"),
    ],
    "deleteTopic": [
        Ask("updateTopic -b {broker} -t MqShort{by} -r 1 -w 1"),
        Ask("deleteTopic -c DefaultCluster -t MqShort{by}"),
        Ask("topicRoute -t MqShort{by}"),
        Ask("deleteTopic -c DefaultCluster -t MqShort{by}"),
    ],
    "updateTopicPerm": [
        Ask("updateTopic -b {broker} -t MqPerm{by} -r 3 -w 2"),
        Ask("updateTopicPerm -b {broker} -t MqPerm{by} -p 2"),
        Ask("topicRoute -t MqPerm{by}"),
        Ask("updateTopicPerm -c DefaultCluster -t MqPerm{by} -p 4"),
        Ask("topicRoute -t MqPerm{by}"),
        Ask("updateTopicPerm -b {broker} -t MqPerm{by} -p 4"),
        Ask("updateTopicPerm -b {broker} -t MqNowhere -p 4"),
    ],
    "topicRoute": [
        Ask("topicRoute -t MqOrders"),
        Ask("topicRoute -t MqOrders -l"),
        Ask("topicRoute -t MqNowhere"),
    ],
    "topicStatus": [
        Ask("topicStatus -t MqOrders"),
        Ask("topicStatus -t MqEmpty"),
        Ask("topicStatus -t MqNowhere"),
    ],
    "topicList": [Ask("topicList", unordered=True), Ask("topicList -c", unordered=True)],
    "topicClusterList": [Ask("topicClusterList -t MqOrders"), Ask("topicClusterList -t MqNowhere")],
    "allocateMQ": [Ask("allocateMQ -t MqOrders -i 10.0.0.1,10.0.0.2,10.0.0.3", digest=_count_shares)],
    "statsAll": [
        Ask("sendMessage -t MqCounted{by} -p hello -b {name} -i 0", differs=_SENT),
        Ask("consumeMessage -t MqCounted{by} -g MqCounters{by}", differs=_MESSAGE | _SENT | _PLACE, awaited=_ONE_THERE),
        Ask("statsAll -t MqCounted{by}", differs=_RATES | _WAITING, awaited=_BOTH_WAYS),
        Ask("statsAll -t MqOrders", differs=_COUNTED, unordered=True),
        Ask("statsAll", differs=_COUNTED | _WAITING, digest=_hide_rates, unordered=True),
        Ask("statsAll -a -t MqEmpty", differs=_COUNTED),
    ],
    "updateOrderConf": [
        Ask("updateOrderConf -m put -t MqKept{by} -v {name}:7"),
        Ask("updateOrderConf -m get -t MqKept{by}"),
        Ask("updateOrderConf -m delete -t MqKept{by}"),
        Ask("updateOrderConf -m get -t MqKept{by}"),
    ],
    # -- groups
    "updateSubGroup": [
        Ask("updateSubGroup -b {broker} -g MqFresh{by} -s true -m false -d true -q 2 -r 5 -i 0 -w 1 -a false"),
        Ask("getConsumerConfig -g MqFresh{by}"),
        Ask("updateSubGroup -c DefaultCluster -g MqFresh{by} -s false"),
        Ask("getConsumerConfig -g MqFresh{by}"),
    ],
    "deleteSubGroup": [
        Ask("updateSubGroup -b {broker} -g MqLeaving{by}"),
        Ask("deleteSubGroup -c DefaultCluster -g MqLeaving{by} -r true"),
        Ask("getConsumerConfig -g MqLeaving{by}", silent=True),
        Ask("updateSubGroup -b {broker} -g MqLeaving{by}"),
        Ask("deleteSubGroup -b {broker} -g MqLeaving{by}"),
        Ask("deleteSubGroup -b {broker} -g MqNobody"),
    ],
    "getConsumerConfig": [
        Ask("getConsumerConfig -g MqConfigured"),
        Ask("getConsumerConfig -g MqReaders"),
        Ask("getConsumerConfig -g MqNobody", silent=True),
    ],
    "consumerConnection": [
        Ask("consumerConnection -g MqReaders", unordered=True),
        Ask("consumerConnection -g MqReaders -b {broker}", unordered=True),
        Ask("consumerConnection -g MqGone"),
    ],
    "consumerProgress": [
        Ask("consumerProgress -g MqGone", differs={"Consume TPS": RATE}),
        Ask("consumerProgress -g MqReaders -s true", differs={"Consume TPS": RATE}),
        Ask("consumerProgress", differs={"TPS": RATE}, unordered=True),
        Ask("consumerProgress -g MqNobody"),
    ],
    "consumerStatus": [
        Ask("consumerStatus -g MqReaders", unordered=True),
        Ask("consumerStatus -g MqReaders -i {reader}", digest=_list_without_rates),
        Ask("consumerStatus -g MqNobody"),
    ],
    "producerConnection": [
        Ask("producerConnection -g MqSenders -t MqOrders"),
        Ask("producerConnection -g MqNobody -t MqOrders"),
        Ask("producerConnection -g MqSenders -t MqNowhere"),
    ],
    "producer": [Ask("producer -b {broker}", unordered=True)],
    # -- messages
    "queryMsgById": [
        Ask("queryMsgById -i {o5}", differs=_VIEW, unordered=True),
        # The consumer is asked, through the broker, to consume a message once more.
        Ask("queryMsgById -i {o8} -g MqReaders -d {reader}", differs={"spentTimeMills": RATE}),
        Ask("queryMsgById -i {o8} -g MqReaders -d nobody"),
    ],
    "queryMsgByKey": [
        Ask("queryMsgByKey -t MqOrders -k key3", unordered=True),
        Ask("queryMsgByKey -t MqOrders -k nothing"),
    ],
    "queryMsgByUniqueKey": [
        Ask("queryMsgByUniqueKey -t MqOrders -i {m5}", differs=_VIEW, unordered=True),
        Ask("queryMsgByUniqueKey -t MqOrders -i {m5} -a", differs=_VIEW, unordered=True),
        Ask("queryMsgByUniqueKey -t MqOrders -i {m8} -g MqReaders -d {reader}", differs={"spentTimeMills": RATE}),
    ],
    "queryMsgByOffset": [
        Ask("queryMsgByOffset -t MqOrders -b {name} -i 1 -o 1", differs=_VIEW, unordered=True),
        Ask("queryMsgByOffset -t MqOrders -b {name} -i 1 -o 99", silent=True),
    ],
    "printMsg": [
        Ask("printMsg -t MqOrders -d true", differs=_MESSAGE, unordered=True),
        Ask("printMsg -t MqOrders -s TagA", differs=_MESSAGE, unordered=True),
        Ask("printMsg -t MqOrders -d false -b 1000000000000 -e 1000000000001", differs=_MESSAGE, unordered=True),
        Ask("printMsg -t MqNowhere"),
    ],
    "printMsgByQueue": [
        Ask("printMsgByQueue -t MqOrders -a {name} -i 1 -p true -d true -f true", differs=_MESSAGE, unordered=True),
        Ask("printMsgByQueue -t MqOrders -a {name} -i 2 -s TagB -f true"),
    ],
    "queryCq": [
        Ask("queryCq -t MqOrders -q 1 -i 0 -c 3"),
        Ask("queryCq -t MqOrders -q 1 -i 0 -c 3 -g MqReaders"),
        Ask("queryCq -t MqOrders -q 9 -i 0"),
    ],
    "sendMessage": [
        Ask("updateTopic -b {broker} -t MqSent{by} -r 2 -w 2"),
        Ask("sendMessage -t MqSent{by} -p hello -k one -c TagA -b {name} -i 1", differs=_SENT),
        Ask("consumeMessage -t MqSent{by} -b {name} -i 1", differs=_MESSAGE | _SENT | _PLACE, awaited=_ONE_THERE),
        Ask("topicStatus -t MqSent{by}", awaited={"Max Offset": "1"}),
        Ask("sendMessage -t MqMade{by} -p hello -b {name} -i 1", differs=_SENT),
        Ask("topicStatus -t MqMade{by}", awaited={"Max Offset": "1"}),
        Ask("sendMessage -t MqSent{by} -p hello -i 1", refused="Java says what is wrong and succeeds"),
    ],
    "consumeMessage": [
        Ask("consumeMessage -t MqOrders -c 3 -b {name} -i 0", differs=_MESSAGE),
        Ask("consumeMessage -t MqOrders -b {name} -i 0 -o 2 -c 1", differs=_MESSAGE),
        Ask("consumeMessage -t MqOrders -b {name} -i 0 -o 99"),
        Ask("consumeMessage -t MqOrders", differs=_MESSAGE, unordered=True),
    ],
    "sendMsgStatus": [
        Ask("sendMsgStatus -b {name} -c 2", digest=_list_sent),
    ],
    "checkMsgSendRT": [
        Ask("updateTopic -b {broker} -t MqChecked{by} -r 2 -w 2"),
        Ask("checkMsgSendRT -t MqChecked{by} -a 4 -s 10", differs={"RT": RATE, "Avg RT": RATE}),
        Ask("topicStatus -t MqChecked{by}", awaited={"QID": "1", "Max Offset": "2"}),
    ],
    "clusterRT": [
        Ask("clusterRT -a 3 -i 1", ours="--rounds 1", stop_at=r"^DefaultCluster.*\n", differs={"RT": RATE}),
        Ask("clusterRT -a 3 -i 1 -p true -m here", ours="--rounds 1", stop_at=r"here.*\n", digest=_list_parts),
    ],
    # -- brokers
    "updateBrokerConfig": [
        Ask("updateBrokerConfig -b {broker} -k fileReservedTime -v 47"),
        Ask("exportConfigs -c DefaultCluster -f {home}/export", file="export/configs.json"),
        Ask("updateBrokerConfig -c DefaultCluster -k fileReservedTime -v 999999"),
        Ask("exportConfigs -c DefaultCluster -f {home}/export", file="export/configs.json"),
    ],
    "getBrokerConfig": [
        Ask("getBrokerConfig -b {broker}", differs=BROKER_VALUES, more=True, unordered=True),
        Ask("getBrokerConfig -c DefaultCluster", differs=BROKER_VALUES, more=True, unordered=True),
    ],
    "brokerStatus": [
        Ask("brokerStatus -b {broker}", names_only="rates, times, disks and paths", more=True),
        Ask("brokerStatus -c DefaultCluster", names_only="rates, times, disks and paths", more=True),
    ],
    "brokerConsumeStats": [
        Ask("brokerConsumeStats -b {broker}", unordered=True),
        Ask("brokerConsumeStats -b {broker} -l 1 -o false -t 10000", unordered=True),
        Ask("brokerConsumeStats -b {broker} -o true", unordered=True),
    ],
    "clusterList": [
        Ask("clusterList", differs=_LOAD),
        Ask("clusterList -m", differs={"OutTotalToday": "also what consumers fetch by themselves"}),
    ],
    "cleanExpiredCQ": [Ask("cleanExpiredCQ -b {broker}"), Ask("cleanExpiredCQ -c DefaultCluster")],
    "cleanUnusedTopic": [
        Ask("cleanUnusedTopic -b {broker}"),
        Ask("cleanUnusedTopic -c DefaultCluster"),
        Ask("cleanUnusedTopic"),
    ],
    "deleteExpiredCommitLog": [
        Ask("deleteExpiredCommitLog -b {broker}"),
        Ask("deleteExpiredCommitLog -c DefaultCluster"),
        Ask("topicStatus -t MqOrders"),
    ],
    "exportMetadata": [
        Ask("exportMetadata -c DefaultCluster -f {home}/export", file="export/metadata.json"),
        Ask(
            "exportMetadata -c DefaultCluster -t -s -f {home}/export",
            digest=_leave_out_version,
            file="export/topic.json",
        ),
        Ask("exportMetadata -b {broker} -t -f {home}/export", digest=_leave_out_version, file="export/topic.json"),
        Ask(
            "exportMetadata -b {broker} -g -f {home}/export",
            digest=_leave_out_version,
            file="export/subscriptionGroup.json",
        ),
    ],
    "exportConfigs": [Ask("exportConfigs -c DefaultCluster -f {home}/export", file="export/configs.json")],
    "exportMetrics": [
        Ask("exportMetrics -c DefaultCluster -f {home}/export", differs=_METRICS, file="export/metrics.json")
    ],
    # -- name servers
    "getNamesrvConfig": [
        Ask("getNamesrvConfig", differs=NAME_SERVER_VALUES, more=True, unordered=True),
    ],
    "updateNamesrvConfig": [
        Ask("updateNamesrvConfig -k orderMessageEnable -v true"),
        Ask("getNamesrvConfig", differs=NAME_SERVER_VALUES, more=True, unordered=True),
        Ask("updateNamesrvConfig -k orderMessageEnable -v false"),
    ],
    "wipeWritePerm": [
        Ask("wipeWritePerm -b {name}"),
        Ask("topicRoute -t MqOrders"),
        Ask("addWritePerm -b {name}"),
        Ask("wipeWritePerm -b MqNoBroker", refused=_NO_BROKER),
    ],
    "addWritePerm": [
        Ask("wipeWritePerm -b {name}"),
        Ask("addWritePerm -b {name}"),
        Ask("topicRoute -t MqOrders"),
        Ask("addWritePerm -b MqNoBroker", refused=_NO_BROKER),
    ],
    "updateKvConfig": [
        Ask("updateKvConfig -s ORDER_TOPIC_CONFIG -k MqValue{by} -v red"),
        Ask("updateOrderConf -m get -t MqValue{by}"),
        Ask("updateKvConfig -s MqSpace -k color -v red"),
    ],
    "deleteKvConfig": [
        Ask("updateKvConfig -s ORDER_TOPIC_CONFIG -k MqGoing{by} -v red"),
        Ask("deleteKvConfig -s ORDER_TOPIC_CONFIG -k MqGoing{by}"),
        Ask("updateOrderConf -m get -t MqGoing{by}"),
        Ask("deleteKvConfig -s ORDER_TOPIC_CONFIG -k MqGoing{by}"),
    ],
}

# The last of all. Java's monitor leaves a group behind. A trace is longer or shorter, and so moves what is stored after
# it. Java's tool does not know groups without retry topic. Java's consumers do nothing for ten seconds after a reset.
LAST_CASES: dict[str, list[Ask]] = {
    "startMonitoring": [Ask("startMonitoring", ours="--rounds 1", digest=_leave_out_monitor, unordered=True)],
    "queryMsgTraceById": [
        Ask("queryMsgTraceById -i {traced}", differs={"CostTimes": RATE}),
        Ask("QueryMsgTraceById -i {m5}"),
        Ask("sendMessage -t MqEmpty -p traced -b {name} -i 0 -m true", differs=_SENT),
    ],
    "cloneGroupOffset": [
        # Only groups with settings are listed below.
        Ask("updateSubGroup -b {broker} -g MqCloned{by}"),
        Ask("cloneGroupOffset -s MqGone -d MqCloned{by} -t MqOrders"),
        # Java copies the offsets of all topics, whichever one is named; `eruca admin` those of this topic.
        Ask("brokerConsumeStats -b {broker}", unordered=True, only={"Group": "MqCloned", "Topic": "MqOrders"}),
        Ask("cloneGroupOffset -s MqNobody -d MqCloned{by} -t MqOrders"),
    ],
    "resetOffsetByTime": [
        Ask("skipAccumulatedMessage -g MqGone -t MqOrders", setup=True),
        Ask("resetOffsetByTime -g MqGone -t MqOrders -s 1000000000000", unordered=True),
        Ask("consumerProgress -g MqGone", differs={"Consume TPS": RATE}),
        Ask("resetOffsetByTime -g MqGone -t MqOrders -s now -f false", unordered=True),
        Ask("consumerProgress -g MqGone", differs={"Consume TPS": RATE}),
        Ask("resetOffsetByTime -g MqGone -t MqOrders -s 2001-09-09#01:46:40:000", unordered=True),
        Ask("resetOffsetByTime -g MqReaders -t MqOrders -s now", unordered=True),
        Ask("resetOffsetByTime -g MqNobody -t MqOrders -s now"),
    ],
    "skipAccumulatedMessage": [
        Ask("resetOffsetByTime -g MqGone -t MqOrders -s 1000000000000", setup=True),
        Ask("skipAccumulatedMessage -g MqGone -t MqOrders", unordered=True),
        Ask("consumerProgress -g MqGone", differs={"Consume TPS": RATE}),
        Ask("skipAccumulatedMessage -g MqReaders -t MqOrders", unordered=True),
        Ask("skipAccumulatedMessage -g MqNobody -t MqNowhere"),
    ],
}

# Commands about accounts: both brokers have the same file of accounts, and both tools sign as an admin.
_NEW = "-a account{by} -s secret-of-{by}"
ACCOUNT_CASES: dict[str, list[Ask]] = {
    "updateAclConfig": [
        Ask(
            f"updateAclConfig -b {{broker}} {_NEW} -i DENY -u SUB -t orders=PUB,other=PUB|SUB -g billing=SUB",
            digest=_leave_out_object,
        ),
        Ask(f"updateAclConfig -c DefaultCluster {_NEW} -m true -w 10.1.1.1", digest=_leave_out_object),
        Ask("updateAclConfig -b {broker} -a short -s hidden-secret", own_words="Java's text has the secret"),
    ],
    "clusterAclConfigVersion": [
        Ask("clusterAclConfigVersion -b {broker}"),
        Ask("clusterAclConfigVersion -c DefaultCluster"),
    ],
    "updateGlobalWhiteAddr": [
        Ask("updateGlobalWhiteAddr -b {broker} -g 10.1.1.1,10.1.2.*"),
        Ask("updateGlobalWhiteAddr -c DefaultCluster -g 10.1.1.2"),
    ],
    "deleteAclConfig": [
        Ask(f"updateAclConfig -b {{broker}} {_NEW}", digest=_leave_out_object),
        Ask("deleteAclConfig -b {broker} -a account{by}"),
        Ask(f"updateAclConfig -b {{broker}} {_NEW}", digest=_leave_out_object),
        Ask("deleteAccessConfig -c DefaultCluster -a account{by}"),
        Ask("deleteAclConfig -b {broker} -a nobody-has-this"),
    ],
    "getAclConfig": [
        Ask("getAclConfig -b {broker}", refused="it has the secrets of all accounts", eruca_refuses=True),
        Ask("getAclConfig -c DefaultCluster", refused="it has the secrets of all accounts", eruca_refuses=True),
    ],
}

# Those of `make test`; the rest is in `make test-interop`.
SLICE = {"topicList", "topicRoute", "topicStatus", "consumerProgress", "queryMsgByOffset", "updateTopic", "sendMessage"}
