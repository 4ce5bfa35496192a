"""Every case with the official Java client, and what it must find on any broker.

A case is a method of a class under `java/src` (`sync_send` is `SendCases.syncSend`) that gives facts. What is expected
here was found on the official broker, and read. `SLICE` names the cases that `make test` runs too.
"""

from __future__ import annotations

from tests.interop.behaviour import Facts

TOO_LARGE = {
    "code": 13,
    "remark": "the message is illegal, maybe msg body or properties length not matched. "
    "msg body length limit 4194304B, msg properties length limit 32KB.",
}

# One message at a time.
SENDS: dict[str, Facts] = {
    "sync_send": {"statuses": ["SEND_OK", "SEND_OK", "SEND_OK"], "offsets": [0, 1, 2], "stored": ["m0", "m1", "m2"]},
    "sync_send_takes_queues_in_turn": {"queues": [0, 1, 2, 3], "offsets": [0]},
    "async_send": {"statuses": ["SEND_OK"], "different offsets": 50, "stored": 50},
    "async_send_to_given_queue": {"queue": 2, "stored": ["m"]},
    "oneway_send": {"stored": 20},
    "oneway_send_to_given_queue": {"stored": ["m"]},
    "selector_by_hash": {"queues": {"a": 1, "b": 2, "c": 3}},
    "selector_with_fixed_queue": {"queues": [2], "stored": ["m0", "m1", "m2"]},
    "send_to_given_queue": {"queue": 3, "stored": ["m"]},
    "unknown_topic_is_made": {"status": "SEND_OK", "queues to write": 4, "queues to read": 4, "permission": 6},
    "unknown_topic_is_made_with_no_more_queues_than_the_template": {
        "status": "SEND_OK",
        "queues to write": 8,
        "queues to read": 8,
        "permission": 6,
    },
    "keys_tags_properties_and_flag_are_kept": {
        "body": "body ä消",
        "tags": "TagA",
        "keys": "k1 k2",
        "flag": 4711,
        "unique id is the result's": True,
        "id is the result's": True,
        "properties": {
            "BUYER_ID": "buyer",
            "CLUSTER": "DefaultCluster",
            "KEYS": "k1 k2",
            "MAX_OFFSET": "1",
            "MIN_OFFSET": "0",
            "TAGS": "TagA",
            "long": "1000",
            "plain": "value",
            "uni消": "息 ß",
        },
        "born host is ours": True,
        "store host is the broker's": True,
        "reconsume times": 0,
        "born before stored": True,
    },
    "body_of_one_byte": {"body": 0},
    "body_of_almost_four_mebibytes": {"status": "SEND_OK", "same": True},
    "properties_of_almost_thirty_two_kibibytes": {"length": 32000},
    "zlib_body": {"same": True, "stored smaller": True, "flags": 769, "same when pushed": True},
    "lz4_body": {"same": True, "stored smaller": True, "flags": 257, "same when pushed": True},
    "zstd_body": {"same": True, "stored smaller": True, "flags": 513, "same when pushed": True},
    "vip_channel": {"status": "SEND_OK", "batch": "SEND_OK", "stored": ["one", "two"]},
    "does_not_wait_for_store": {"status": "SEND_OK", "WAIT": None},
    "delayed_message_comes_not_early": {
        "status": "SEND_OK",
        "waited a second": True,
        "waited less than six": True,
        "topic": "topic",
        "queue": 0,
        "offset": 0,
        "id is the result's": True,
        "properties": {
            "CLUSTER": "DefaultCluster",
            "DELAY": "1",
            "KEYS": "k",
            "REAL_QID": "0",
            "REAL_TOPIC": "topic",
            "TAGS": "TagA",
            "WAIT": "true",
        },
    },
    "message_ids": {
        "unique id is hexadecimal": True,
        "length of the offset id": 32,
        "host in the offset id": "BROKER",
        "position in the offset id is the record's": True,
    },
    "result_tells_region_and_trace": {
        "region": "DefaultRegion",
        "trace": True,
        "transaction": None,
        "broker": "broker-a",
    },
    "trace_is_sent": {
        "kind": "Pub",
        "region": "DefaultRegion",
        "topic": "topic",
        "has the id": True,
        "is keyed by the id": True,
    },
    "namespaces": {"sent to": "topic", "stored as": "space%topic", "instance": "space"},
    "binary_headers": {
        "type": "ROCKETMQ",
        "status": "SEND_OK",
        "came": ["one", "three", "two"],
        "property": "消",
        "queue bounds": [0, 3],
        "refusal": 1,
        "by key": ["one"],
    },
}

# Many messages in one request.
BATCHES: dict[str, Facts] = {
    "batch_send": {
        "status": "SEND_OK",
        "offset": 1,
        "unique ids": 5,
        "offset ids": 5,
        "stored": ["before", "m0", "m1", "m2", "m3", "m4"],
        "offsets": [0, 1, 2, 3, 4, 5],
        "ids are the result's": True,
        "seen by id": "m3",
    },
    "batch_send_to_given_queue": {"stored": ["m0", "m1", "m2"]},
    "batch_send_async": {"status": "SEND_OK", "stored": ["m0", "m1", "m2", "m3"]},
    "batch_with_tags_and_keys": {"odd": ["m1", "m3", "m5"], "property": "5", "next": 6, "by key": ["m3"]},
    "batch_is_split": {"requests": 4, "stored": 2000, "last": "m1999"},
    "batch_of_almost_four_mebibytes": {"status": "SEND_OK", "stored": 40},
    "batch_too_large": {"refusal": TOO_LARGE, "stored": 0},
}

# What a broker does not take, and what it says then.
REFUSALS: dict[str, Facts] = {
    "body_too_large": {"refusal": TOO_LARGE, "goes on": 0},
    "properties_too_large": {"refusal": TOO_LARGE, "goes on": 0},
    "empty_body_is_refused_by_the_client": {"refusal": {"code": 13, "remark": "the message body length is zero"}},
    "topic_with_illegal_name": {
        "a blank in it": {
            "code": 1,
            "remark": "The specified topic contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$",
        },
        "too long": {"code": 1, "remark": "The specified topic is longer than topic max length."},
        "empty": {"code": 1, "remark": "The specified topic is blank."},
        "client": {
            "code": -1,
            "remark": "The specified topic[bad topic] contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$",
        },
    },
    "system_topic": {
        "TBW102": 0,
        "SCHEDULE_TOPIC_XXXX": 16,
        "RMQ_SYS_TRANS_HALF_TOPIC": 16,
        "RMQ_SYS_TRANS_OP_HALF_TOPIC": 16,
        "TRANS_CHECK_MAX_TIME_TOPIC": 16,
        "SELF_TEST_TOPIC": 16,
        "OFFSET_MOVED_EVENT": 16,
        "BenchmarkTest": 0,
        "refusal": {"code": 16, "remark": "Sending message to topic[SCHEDULE_TOPIC_XXXX] is forbidden."},
    },
    "queue_that_is_not_there": {"code": 1, "remark": "request queueId[9] is illegal"},
    "negative_queue_is_any_queue": {"answer": {"code": 0, "remark": None}},
    "topic_that_may_only_be_read": {
        "client": {"code": 10005, "remark": "No route info of this topic: topic"},
        "broker": {"code": 0, "remark": None},
    },
    "topic_that_may_only_be_written": {
        "refusal": {"code": 16, "remark": "the topic[topic] pulling message is forbidden"}
    },
    "unknown_topic_without_template": {
        "client": 10005,
        "broker": {"code": 17, "remark": "topic[unknown] not exist, apply first please!"},
        "made": False,
    },
    "refused_send_is_tried_with_other_queues": {"first": 0, "second": 0, "tries of the second": 4},
    "unknown_request_code": {"code": 3, "remark": " request type 9999 not supported"},
    "pull_from_unknown_topic": {
        "unknown queue": {
            "code": 1,
            "remark": "queueId[7] is illegal, topic:[topic] topicConfig.readQueueNums:[1] consumer:[/CLIENT]",
        },
        "unknown topic": {"code": 17, "remark": "topic[unknown] not exist, apply first please! "},
    },
}

# Push consumers that do not care for order.
PUSHES: dict[str, Facts] = {
    "push_in_a_cluster": {
        "came": [
            "early0",
            "early1",
            "early2",
            "early3",
            "early4",
            "early5",
            "early6",
            "early7",
            "late0",
            "late1",
            "late2",
            "late3",
            "late4",
            "late5",
            "late6",
            "late7",
        ],
        "queues": [0, 1, 2, 3],
    },
    "push_brings_messages_at_once": {"at once": True},
    "two_consumers_share_queues": {"came": 20, "to each": [10, 10]},
    "group_is_told_of_a_new_member": {"told of": "readers"},
    "consumer_that_leaves_is_replaced": {"came": ["m0", "m1", "m2", "m3", "m4", "m5", "m6", "m7"]},
    "broadcast_to_two": {
        "came to 0": ["m0", "m1", "m2", "m3", "m4", "m5"],
        "came to 1": ["m0", "m1", "m2", "m3", "m4", "m5"],
        "offset at the broker": True,
    },
    "subscribe_to_one_tag": {"came": ["a", "a", "last A"]},
    "subscribe_to_two_tags": {"came": ["a", "b", "a", "last B", "last A"]},
    "subscribe_to_all": {"came": ["a", "b", "c", "ab", "a", "none", "last C", "last B", "last A"]},
    "tags_with_the_same_hash": {"came": ["is Aa", "is Aa"]},
    "subscription_changes": {"came": ["a1", "b2"]},
    "begin_at_the_first": {"came": ["new", "old0", "old1"]},
    "begin_at_the_last": {"came": ["new", "old0", "old1"]},
    "begin_at_a_time": {"came": ["new", "old0", "old1"]},
    "restart_goes_on_where_it_stopped": {"offset at shutdown": 3, "came after": ["m3", "m4"]},
    "suspend_and_resume": {"came": ["m0", "m1", "m2"]},
    "order_inside_a_queue": {"count": 200, "in order": True},
    "listener_takes_many": {"count": 64, "most at once": 16},
    "two_topics_one_group": {"came": ["one", "two"]},
    "two_groups_get_everything": {
        "one": ["m0", "m1", "m2", "m3", "m4", "m5"],
        "two": ["m0", "m1", "m2", "m3", "m4", "m5"],
    },
    "topic_grows_while_consumed": {"came": ["m0", "m1", "m2"]},
}

# Messages that a listener did not manage.
RETRIES: dict[str, Facts] = {
    "reconsume_later": {
        "reconsume times": [0, 1, 2],
        "topics": ["topic"],
        "bodies": ["again", "again", "again"],
        "keeps its id": True,
        "origin is the first record": True,
        "properties": {
            "CLUSTER": "DefaultCluster",
            "DELAY": "1",
            "KEYS": "k",
            "MAX_OFFSET": "2",
            "MIN_OFFSET": "0",
            "REAL_QID": "0",
            "REAL_TOPIC": "%RETRY%readers",
            "RETRY_TOPIC": "topic",
            "TAGS": "TagA",
            "WAIT": "false",
            "mine": "kept",
        },
        "flag": 3,
        "born as before": True,
        "retry topic": {"queues": 1, "permission": 6},
    },
    "retries_end_as_dead_letter": {
        "topic": {"name": "%DLQ%readers", "queues": 1, "permission": 6},
        "body": "hopeless",
        "reconsume times": 2,
        "keeps its id": True,
        "origin is the first record": True,
        "properties": {
            "CLUSTER": "DefaultCluster",
            "DELAY": "0",
            "REAL_QID": "0",
            "REAL_TOPIC": "%RETRY%readers",
            "RETRY_TOPIC": "topic",
            "WAIT": "false",
        },
        "tries": 2,
    },
    "dead_letter_at_once": {
        "topic": {"name": "%DLQ%readers", "queues": 1, "permission": 6},
        "body": "hopeless",
        "reconsume times": 1,
        "keeps its id": True,
        "origin is the first record": True,
        "properties": {"CLUSTER": "DefaultCluster", "DELAY": "0", "RETRY_TOPIC": "topic", "WAIT": "false"},
        "tries": 1,
    },
    "part_of_a_batch_is_retried": {"again": ["m2", "m3"]},
    "send_back_by_a_pull_consumer": {"reconsume times": 1, "from": "topic"},
    "group_sets_retries": {"queues of the retry topic": 3, "tries": 2},
}

# Push consumers that keep the order.
ORDERLY: dict[str, Facts] = {
    "orderly_one_queue": {
        "came": [
            "m0",
            "m1",
            "m2",
            "m3",
            "m4",
            "m5",
            "m6",
            "m7",
            "m8",
            "m9",
            "m10",
            "m11",
            "m12",
            "m13",
            "m14",
            "m15",
            "m16",
            "m17",
            "m18",
            "m19",
        ]
    },
    "orderly_each_queue": {
        "offsets": {
            "0": [0, 1, 2, 3, 4, 5, 6, 7, 8, 9],
            "1": [0, 1, 2, 3, 4, 5, 6, 7, 8, 9],
            "2": [0, 1, 2, 3, 4, 5, 6, 7, 8, 9],
            "3": [0, 1, 2, 3, 4, 5, 6, 7, 8, 9],
        },
        "two at a time in a queue": 0,
    },
    "orderly_tries_again_before_the_next": {"came": ["m0", "m1", "m1", "m1", "m2"]},
    "orderly_gives_up": {"came": ["bad", "good"]},
    "orderly_takes_over_from_one_that_leaves": {
        "early": ["early0", "early1", "early2", "early3"],
        "late": ["late0", "late1", "late2", "late3"],
    },
    "locks": {
        "one locks the first": [0],
        "two locks what is left": [1],
        "the first stays locked": [1],
        "until its owner lets go": [0, 1],
        "another group": [0, 1],
    },
}

# The consumer that is told what to pull.
PULLS: dict[str, Facts] = {
    "pull": {
        "from the first": {"status": "FOUND", "next": 3, "min": 0, "max": 3, "bodies": ["m0", "m1", "m2"]},
        "from the second, one": {"status": "FOUND", "next": 2, "min": 0, "max": 3, "bodies": ["m1"]},
    },
    "pull_async": {"answer": {"status": "FOUND", "next": 2, "min": 0, "max": 2, "bodies": ["m0", "m1"]}},
    "pull_from_an_empty_queue": {
        "at 0": {"status": "NO_NEW_MSG", "next": 0, "min": 0, "max": 0, "bodies": None},
        "at 5": {"status": "OFFSET_ILLEGAL", "next": 0, "min": 0, "max": 0, "bodies": None},
    },
    "pull_at_the_end_and_beyond": {
        "at the end": {"status": "NO_NEW_MSG", "next": 3, "min": 0, "max": 3, "bodies": None},
        "one beyond": {"status": "OFFSET_ILLEGAL", "next": 3, "min": 0, "max": 3, "bodies": None},
        "far beyond": {"status": "OFFSET_ILLEGAL", "next": 3, "min": 0, "max": 3, "bodies": None},
    },
    "pull_brings_no_more_than_allowed": {"messages": 32, "next": 32},
    "pull_with_tags": {
        "A": {"status": "FOUND", "next": 4, "min": 0, "max": 4, "bodies": ["a", "a"]},
        "A || C": {"status": "FOUND", "next": 4, "min": 0, "max": 4, "bodies": ["a", "a", "c"]},
        "none": {"status": "NO_MATCHED_MSG", "next": 4, "min": 0, "max": 4, "bodies": None},
    },
    "held_pull_wakes_on_arrival": {
        "held": True,
        "at once": True,
        "answer": {"status": "FOUND", "next": 2, "min": 0, "max": 2, "bodies": ["m"]},
    },
    "held_pull_wakes_only_for_its_tag": {"status": "FOUND", "came": ["a"], "went on by": 2},
    "held_pull_ends_in_time": {
        "answer": {"status": "NO_NEW_MSG", "next": 1, "min": 0, "max": 1, "bodies": None},
        "not before its time": True,
        "soon after": True,
    },
    "client_stops_waiting_for_a_held_pull": {
        "timed out": True,
        "goes on": {"status": "FOUND", "next": 2, "min": 0, "max": 2, "bodies": ["m"]},
    },
    "queues_of_a_topic": {
        "to read": [0, 1, 2],
        "to write": [0, 1, 2],
        "unknown": {"code": -1, "remark": "Can not find Message Queue for this topic, unknown"},
    },
    "bounds_of_a_queue": {
        "empty": [0, 0],
        "earliest when empty": -1,
        "filled": [0, 3],
        "earliest is the first's": True,
    },
    "offset_by_time": {"empty": 0, "before all": 0, "at each": [0, 1, 2], "between": 1, "after all": 2},
    "pull_consumer_keeps_offsets": {"new group": 0, "kept": 2},
    "pull_consumers_share_queues": {"both together": [0, 1, 2, 3]},
}

# The consumer that is polled.
LITE_PULLS: dict[str, Facts] = {
    "lite_pull_subscribes": {"came": ["m0", "m1", "m2", "m3", "m4", "m5"]},
    "lite_pull_subscribes_to_tags": {"came": ["A", "B", "A"]},
    "lite_pull_commits": {"committed": 3, "next": ["m3"]},
    "lite_pull_seeks": {"from 0": ["m0", "m1", "m2", "m3"], "from 2": ["m2", "m3"], "from 1": ["m1", "m2", "m3"]},
    "lite_pull_seeks_to_begin_and_end": {"from the begin": ["m0", "m1"], "from the end": ["m2"]},
    "lite_pull_seeks_only_inside": {"refusal": "max offset = 2"},
    "lite_pull_pauses_and_resumes": {"came while paused": False, "came": ["paused", "perhaps", "two"]},
    "lite_pull_finds_offset_by_time": {"of the second": 1, "came": ["m1"]},
    "lite_pull_assigns_with_tags": {"came": ["A", "A"]},
    "lite_pullers_share_queues": {"both together": [0, 1, 2, 3], "queues": 4},
}

# Messages that count only when their sender says so.
TRANSACTIONS: dict[str, Facts] = {
    "transaction_commits": {
        "state": "COMMIT_MESSAGE",
        "status": "SEND_OK",
        "body": "half",
        "keeps its id": True,
        "transaction": "null",
        "flags": 8,
        "points to its half": True,
        "properties": {
            "CLUSTER": "DefaultCluster",
            "KEYS": "k",
            "PGROUP": "deciders",
            "REAL_QID": "0",
            "REAL_TOPIC": "topic",
            "TAGS": "TagA",
            "TRAN_MSG": "true",
            "WAIT": "true",
            "mine": "kept",
        },
        "came": ["half"],
    },
    "transaction_rolls_back": {"status": "SEND_OK", "state": "ROLLBACK_MESSAGE", "stored": ["other"]},
    "undecided_is_hidden": {"stored": 0},
    "broker_asks_and_it_commits": {
        "state": "UNKNOW",
        "status": "SEND_OK",
        "body": "half",
        "keeps its id": True,
        "transaction": "null",
        "flags": 8,
        "points to its half": True,
        "properties": {
            "CLUSTER": "DefaultCluster",
            "KEYS": "k",
            "PGROUP": "deciders",
            "REAL_QID": "0",
            "REAL_TOPIC": "topic",
            "TAGS": "TagA",
            "TRANSACTION_CHECK_TIMES": "some",
            "TRAN_MSG": "true",
            "WAIT": "true",
            "mine": "kept",
        },
        "asked about": {"topic": "topic", "body": "half", "mine": "kept", "transaction is its id": True},
    },
    "administrator_lets_the_broker_ask_again": {"taken": True},
    "broker_asks_twice": {"asked at least twice": True, "transactions": 1},
    "broker_asks_and_it_rolls_back": {"stored": ["other"]},
    "another_producer_of_the_group_is_asked": {"stored": ["hello", "half"], "asked the other": True},
}

# Requests and their replies.
REPLIES: dict[str, Facts] = {
    "request_and_reply": {
        "reply": "reply to question",
        "type": "reply",
        "topic": "DefaultCluster_REPLY_TOPIC",
        "next reply": "reply to again",
    },
    "request_and_reply_async": {"reply": "reply to question"},
    "request_without_reply": {
        "timed out": True,
        "names the sender": True,
        "has a correlation": True,
        "time to live": "500",
    },
}

# Messages found by what they are called.
QUERIES: dict[str, Facts] = {
    "view_by_offset_id": {"body": "m1", "topic": "topic", "offset": 1, "by admin": "m1"},
    "view_by_unique_id": {"body": "m0", "offset id is the result's": True},
    "view_what_is_not_there": {"refusal": 1, "inside a record": 1},
    "query_by_key": {"a": ["is a", "is a b"], "b": ["is a b", "is b"], "z": [], "other topic": []},
    "query_by_key_and_time": {"until the first": ["m0"], "from the second": ["m1"], "later": []},
    "query_by_unique_key": {"body": "m1"},
    "query_brings_no_more_than_asked": {"of six": ["m3", "m4", "m5"]},
}

# Subscriptions that say what properties a message must have.
FILTERS: dict[str, Facts] = {
    "sql_push": {"came": ["m5", "m7", "m9"], "late": "late"},
    "sql_expressions": {
        "n > 6": ["m7", "m8", "m9"],
        "n BETWEEN 2 AND 4": ["m2", "m3", "m4"],
        "n NOT BETWEEN 1 AND 8": ["m0", "m9"],
        "TAGS IN ('even', 'x') AND n < 5": ["m0", "m2", "m4"],
        "third IS NULL": ["m1", "m2", "m4", "m5", "m7", "m8"],
        "third IS NOT NULL": ["m0", "m3", "m6", "m9"],
        "third = 'yes' OR n = 1": ["m0", "m1", "m3", "m6", "m9"],
        "NOT (n < 8)": ["m8", "m9"],
        "n <> 3 AND n <= 4": ["m0", "m1", "m2", "m4"],
        "TRUE": ["m0", "m1", "m2", "m3", "m4", "m5", "m6", "m7", "m8", "m9"],
        "missing = 1": "NO_MATCHED_MSG",
    },
    "sql_lite_pull": {"came": ["m0", "m3", "m6", "m8", "m9"]},
    "sql_that_is_none": {"push": 23},
}

# What an administrator does with topics.
TOPICS: dict[str, Facts] = {
    "create_topic": {
        "at the broker": {"read": 3, "write": 2, "permission": 6, "filter": "SINGLE_TAG", "flag": 0, "order": False},
        "at the name server": {"broker": "broker-a", "read": 3, "write": 2, "permission": 6, "flag": 0},
    },
    "create_topic_through_a_producer": {
        "at the broker": {"read": 5, "write": 5, "permission": 6, "filter": "SINGLE_TAG", "flag": 0, "order": False}
    },
    "update_topic": {
        "at the broker": {"read": 4, "write": 6, "permission": 6, "filter": "SINGLE_TAG", "flag": 0, "order": False},
        "kept": ["kept"],
    },
    "create_topic_with_illegal_name": {
        "bad topic": {
            "code": 1,
            "remark": "The specified topic contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$",
        },
        "SCHEDULE_TOPIC_XXXX": {"code": 1, "remark": "The topic[SCHEDULE_TOPIC_XXXX] is conflict with system topic."},
        "too long": {"code": 1, "remark": "The specified topic is longer than topic max length."},
    },
    "delete_topic": {
        "at the broker": False,
        "route": {"code": 17, "remark": "No topic route info in name server for the topic: topic"},
    },
    "deleted_topic_begins_anew": {"status": "SEND_OK"},
    "topic_stats": {
        "bounds": {"0": [0, 0], "1": [0, 3]},
        "last update is the last message's": True,
        "never updated": 0,
        "unknown": 17,
    },
    "topic_route": {
        "brokers": [{"name": "broker-a", "cluster": "DefaultCluster", "addresses": {"0": "BROKER"}}],
        "queues": 1,
        "filter servers": {},
        "clusters of the topic": ["DefaultCluster"],
    },
    "topic_lists": {
        "all": True,
        "of the cluster": True,
        "of the broker": True,
        "of users": True,
        "of the system": [
            "BenchmarkTest",
            "DefaultCluster",
            "DefaultCluster_REPLY_TOPIC",
            "OFFSET_MOVED_EVENT",
            "RMQ_SYS_TRANS_HALF_TOPIC",
            "SCHEDULE_TOPIC_XXXX",
            "SELF_TEST_TOPIC",
            "TBW102",
            "broker-a",
        ],
    },
    "consume_queue_entries": {
        "bounds": [0, 2],
        "subscription": "A",
        "entries": [
            {"tag": 65, "fits": False, "size is a record's": True},
            {"tag": 66, "fits": False, "size is a record's": True},
        ],
    },
    "ordered_topic_configuration": {"kept": "broker-a:4", "changed": "broker-a:8"},
    "broker_stats": {
        "has minute, hour and day": True,
        "unknown": {"code": 1, "remark": "The stats <TOPIC_PUT_NUMS> <unknown> not exist"},
        "unknown kind": {"code": 1, "remark": "The stats <NO_SUCH_NUMS> <topic> not exist"},
    },
    "wipe_and_add_write_permission": {"wiped some": True, "wiped": 4, "added some": True, "added": 6},
    "broker_configuration": {
        "some": {
            "autoCreateTopicEnable": "true",
            "brokerClusterName": "DefaultCluster",
            "brokerId": "0",
            "brokerName": "broker-a",
            "brokerPermission": "6",
            "brokerRole": "ASYNC_MASTER",
            "defaultTopicQueueNums": "8",
            "enablePropertyFilter": "true",
            "flushDiskType": "ASYNC_FLUSH",
            "longPollingEnable": "true",
            "maxMessageSize": "4194304",
        },
        "changed": "5",
        "in force": True,
    },
}

# What an administrator does with groups and their members.
GROUPS: dict[str, Facts] = {
    "create_group": {
        "made": {
            "enabled": True,
            "from min": True,
            "broadcast": False,
            "retry queues": 2,
            "retries": 3,
            "broker": 0,
            "broker when slow": 1,
            "tells of changes": True,
        },
        "changed": {
            "enabled": True,
            "from min": True,
            "broadcast": False,
            "retry queues": 2,
            "retries": 5,
            "broker": 0,
            "broker when slow": 1,
            "tells of changes": True,
        },
    },
    "group_is_made_by_its_first_consumer": {
        "made": {
            "enabled": True,
            "from min": True,
            "broadcast": True,
            "retry queues": 1,
            "retries": 16,
            "broker": 0,
            "broker when slow": 1,
            "tells of changes": True,
        }
    },
    "delete_group": {"there": False},
    "delete_group_and_its_offsets": {"offset": 0},
    "disabled_group_gets_nothing": {
        "refusal": {"code": 16, "remark": "subscription group no permission, pullers"},
        "enabled": ["m"],
    },
    "consumer_connection": {
        "members": [{"is the consumer": True, "language": "JAVA", "version": 407, "host": "127.0.0.1"}],
        "type": "CONSUME_PASSIVELY",
        "model": "CLUSTERING",
        "from": "CONSUME_FROM_FIRST_OFFSET",
        "subscriptions": {
            "%RETRY%readers": {"expression": "*", "tags": [], "codes": [], "type": "TAG"},
            "topic": {"expression": "A || B", "tags": ["A", "B"], "codes": [65, 66], "type": "TAG"},
        },
        "gone": 206,
    },
    "producer_connection": {
        "members": [{"language": "JAVA", "version": 407, "host": "127.0.0.1"}],
        "unknown": 1,
        "of all": 1,
    },
    "consumer_tells_what_it_does": {
        "subscriptions": ["%RETRY%readers", "topic"],
        "queues": 1,
        "type": "CONSUME_PASSIVELY",
        "ordered": "false",
        "threads": True,
        "unknown": {"code": 1, "remark": "The Consumer <readers> <no-such-client> not online"},
    },
    "message_is_consumed_directly": {"result": "CR_SUCCESS", "ordered": False, "came": ["m", "m"]},
    "who_has_consumed_a_message": {"tracks": [{"group": "readers", "track": "CONSUMED"}]},
    "group_lists": {
        "all": True,
        "of users": True,
        "of the system": [
            "CID_ONS-HTTP-PROXY",
            "CID_ONSAPI_OWNER",
            "CID_ONSAPI_PERMISSION",
            "CID_ONSAPI_PULL",
            "FILTERSRV_CONSUMER",
            "SELF_TEST_C_GROUP",
            "TOOLS_CONSUMER",
        ],
    },
    "who_consumes_a_topic": {"groups": ["one", "two"]},
    "members_of_a_group": {
        "are the two": True,
        "unknown group": {"code": 1, "remark": "no consumer for this group, unknown"},
    },
    "listener_that_never_says_yes": {"result": "CR_THROW_EXCEPTION", "says why": True},
}

# How far groups are, and how an administrator changes that.
OFFSETS: dict[str, Facts] = {
    "consume_stats": {
        "of the group": {"0": {"broker": 5, "consumer": 3, "has time": True}},
        "of the topic": {"0": {"broker": 5, "consumer": 3, "has time": True}},
        "behind": 2,
    },
    "consume_stats_of_the_broker": {"of the group": [{"0": {"broker": 2, "consumer": 2, "has time": True}}]},
    "consume_time_span": {
        "queue": 0,
        "begins with the first": True,
        "ends with the last": True,
        "consumed to the last": True,
        "behind": 0,
    },
    "consume_status": {"members": 1, "offset": 3},
    "offsets_of_a_running_group_are_reset": {"to": 0, "came": ["m0", "m0", "m1", "m1", "m2", "m2"]},
    "offsets_are_reset_to_the_end": {"to": 2, "came again": ["m2"]},
    "offsets_of_a_group_that_is_away_are_reset": {
        "online only": 206,
        "reset": [{"queue": 0, "broker": 3, "consumer": 3, "by time": 0, "to": 0}],
        "offset": 0,
        "came": ["m0", "m1", "m2"],
    },
    "offset_is_set": {"offset": 1, "came": ["m1", "m2"]},
    "offsets_are_copied_to_another_group": {"offset": 3},
    "offsets_by_admin": {"bounds": [0, 2], "by time": [0, 1], "earliest is the first's": True},
    "new_group_begins_at_zero": {"empty queue": 0, "filled queue": 0},
}

# The cluster as a whole.
CLUSTERS: dict[str, Facts] = {
    "cluster_info": {
        "clusters": {"DefaultCluster": ["broker-a"]},
        "brokers": {"broker-a": {"cluster": "DefaultCluster", "addresses": {"0": "BROKER"}}},
        "topics of no cluster": [],
    },
    "runtime_stats": {"missing": [], "version": ["407", "V4_9_7"], "counts": True},
    "keys_and_values": {
        "one": "v",
        "all": {"k": "v", "l": "w"},
        "deleted": {"code": 22, "remark": "No config item, Namespace: space Key: k"},
        "left": {"l": "w"},
        "no space": 22,
    },
    "name_server_configuration": {"servers": 1, "port is its own": True, "order messages": "false"},
    "cleaning": {"queues": True, "queues of the cluster": True, "log": True, "topics": True, "kept": ["m"]},
}

CASES: dict[str, Facts] = {
    **SENDS,
    **BATCHES,
    **REFUSALS,
    **PUSHES,
    **RETRIES,
    **ORDERLY,
    **PULLS,
    **LITE_PULLS,
    **TRANSACTIONS,
    **REPLIES,
    **QUERIES,
    **FILTERS,
    **TOPICS,
    **GROUPS,
    **OFFSETS,
    **CLUSTERS,
}

SLICE = frozenset(
    [
        "sync_send",
        "async_send",
        "oneway_send",
        "selector_by_hash",
        "keys_tags_properties_and_flag_are_kept",
        "unknown_topic_is_made",
        "zlib_body",
        "binary_headers",
        "batch_send",
        "batch_with_tags_and_keys",
        "body_too_large",
        "topic_with_illegal_name",
        "unknown_topic_without_template",
        "push_in_a_cluster",
        "two_consumers_share_queues",
        "broadcast_to_two",
        "subscribe_to_two_tags",
        "restart_goes_on_where_it_stopped",
        "reconsume_later",
        "orderly_one_queue",
        "locks",
        "pull",
        "pull_at_the_end_and_beyond",
        "held_pull_wakes_on_arrival",
        "lite_pull_commits",
        "transaction_commits",
        "request_and_reply",
        "query_by_key",
        "sql_push",
        "create_topic",
        "delete_topic",
        "topic_stats",
        "create_group",
        "consumer_connection",
        "consume_stats",
        "offsets_of_a_running_group_are_reset",
        "cluster_info",
        "runtime_stats",
    ]
)
