"""The numbers of the remoting protocol: request codes, response codes, languages, versions, flag bits.

Values are those of Apache RocketMQ 4.9, except for the last three requests: they are Eruca's own, and a Java broker
answers that it does not support them. Being above 32767 they need a JSON header. Unused constants are
listed as well: they must stay known, so that a peer's number can be shown by name and is never reused.
"""

from __future__ import annotations

from enum import IntEnum, StrEnum
from typing import Final

# --- flag bits of a command -----------------------------------------------------------------------------------------
FLAG_RESPONSE: Final = 1
FLAG_ONEWAY: Final = 2

# --- version ordinals (the official enum is a plain counter over every release and snapshot) -------------------------
VERSION_3_0_0_SNAPSHOT: Final = 0
VERSION_3_0_7_SNAPSHOT: Final = 28
VERSION_3_0_11: Final = 37
VERSION_3_1_8_SNAPSHOT: Final = 62
VERSION_3_4_9: Final = 121
VERSION_3_5_8: Final = 137
VERSION_4_0_0: Final = 213
VERSION_4_1_0_SNAPSHOT: Final = 232
VERSION_4_6_0: Final = 333
VERSION_4_8_0: Final = 373
VERSION_4_9_0: Final = 393
VERSION_4_9_1: Final = 395
VERSION_4_9_2: Final = 397
VERSION_4_9_3: Final = 399
VERSION_4_9_4: Final = 401
VERSION_4_9_5: Final = 403
VERSION_4_9_6: Final = 405
VERSION_4_9_7: Final = 407
VERSION_4_9_8: Final = 409
VERSION_5_0_0: Final = 413
VERSION_5_3_3: Final = 479
VERSION_HIGHER: Final = 612

#: What Eruca announces in every command it sends.
VERSION_ANNOUNCED: Final = VERSION_4_9_7

# The version a peer must have for certain features.
VERSION_ROUTE_STRICT_JSON: Final = VERSION_4_9_4
VERSION_REGISTER_WITH_FILTER_SERVERS: Final = VERSION_3_0_11
VERSION_HONOURS_MAX_RECONSUME_TIMES: Final = VERSION_3_4_9
VERSION_RESETS_OFFSETS: Final = VERSION_3_0_7_SNAPSHOT
VERSION_RUNNING_INFO: Final = VERSION_3_1_8_SNAPSHOT
VERSION_SQL_FILTER: Final = VERSION_4_1_0_SNAPSHOT


class SerializeType(IntEnum):
    """The encoding of a frame's header; the top byte of its header word."""

    JSON = 0
    ROCKETMQ = 1


class Language(StrEnum):
    """The language a peer reports: by name in a JSON header, by number in a binary one."""

    JAVA = "JAVA"
    CPP = "CPP"
    DOTNET = "DOTNET"
    PYTHON = "PYTHON"
    DELPHI = "DELPHI"
    ERLANG = "ERLANG"
    RUBY = "RUBY"
    OTHER = "OTHER"
    HTTP = "HTTP"
    GO = "GO"
    PHP = "PHP"
    OMS = "OMS"
    RUST = "RUST"

    @property
    def number(self) -> int:
        """The language's number on the binary wire."""
        return _LANGUAGE_NUMBER[self]

    @classmethod
    def from_number(cls, number: int) -> Language:
        """Look up a number of the binary wire; an unknown one is OTHER, because newer peers add more."""
        return _LANGUAGES[number] if 0 <= number < len(_LANGUAGES) else cls.OTHER

    @classmethod
    def _missing_(cls, value: object) -> Language:
        # An unknown name must not cost the peer its connection: Java reads it as null and continues.
        return cls.OTHER


_LANGUAGES: Final = tuple(Language)
_LANGUAGE_NUMBER: Final = {language: number for number, language in enumerate(_LANGUAGES)}


class RequestCode(IntEnum):
    """The kind of a request. `eruca._wire.catalog` lists what each carries and who may send it."""

    SEND_MESSAGE = 10
    PULL_MESSAGE = 11
    QUERY_MESSAGE = 12
    QUERY_BROKER_OFFSET = 13
    QUERY_CONSUMER_OFFSET = 14
    UPDATE_CONSUMER_OFFSET = 15
    UPDATE_AND_CREATE_TOPIC = 17
    GET_ALL_TOPIC_CONFIG = 21
    GET_TOPIC_CONFIG_LIST = 22
    GET_TOPIC_NAME_LIST = 23
    UPDATE_BROKER_CONFIG = 25
    GET_BROKER_CONFIG = 26
    TRIGGER_DELETE_FILES = 27
    GET_BROKER_RUNTIME_INFO = 28
    SEARCH_OFFSET_BY_TIMESTAMP = 29
    GET_MAX_OFFSET = 30
    GET_MIN_OFFSET = 31
    GET_EARLIEST_MSG_STORETIME = 32
    VIEW_MESSAGE_BY_ID = 33
    HEART_BEAT = 34
    UNREGISTER_CLIENT = 35
    CONSUMER_SEND_MSG_BACK = 36
    END_TRANSACTION = 37
    GET_CONSUMER_LIST_BY_GROUP = 38
    CHECK_TRANSACTION_STATE = 39
    NOTIFY_CONSUMER_IDS_CHANGED = 40
    LOCK_BATCH_MQ = 41
    UNLOCK_BATCH_MQ = 42
    GET_ALL_CONSUMER_OFFSET = 43
    GET_ALL_DELAY_OFFSET = 45
    CHECK_CLIENT_CONFIG = 46
    UPDATE_AND_CREATE_ACL_CONFIG = 50
    DELETE_ACL_CONFIG = 51
    GET_BROKER_CLUSTER_ACL_INFO = 52
    UPDATE_GLOBAL_WHITE_ADDRS_CONFIG = 53
    GET_BROKER_CLUSTER_ACL_CONFIG = 54
    PUT_KV_CONFIG = 100
    GET_KV_CONFIG = 101
    DELETE_KV_CONFIG = 102
    REGISTER_BROKER = 103
    UNREGISTER_BROKER = 104
    GET_ROUTEINFO_BY_TOPIC = 105
    GET_BROKER_CLUSTER_INFO = 106
    UPDATE_AND_CREATE_SUBSCRIPTIONGROUP = 200
    GET_ALL_SUBSCRIPTIONGROUP_CONFIG = 201
    GET_TOPIC_STATS_INFO = 202
    GET_CONSUMER_CONNECTION_LIST = 203
    GET_PRODUCER_CONNECTION_LIST = 204
    WIPE_WRITE_PERM_OF_BROKER = 205
    GET_ALL_TOPIC_LIST_FROM_NAMESERVER = 206
    DELETE_SUBSCRIPTIONGROUP = 207
    GET_CONSUME_STATS = 208
    SUSPEND_CONSUMER = 209
    RESUME_CONSUMER = 210
    RESET_CONSUMER_OFFSET_IN_CONSUMER = 211
    RESET_CONSUMER_OFFSET_IN_BROKER = 212
    ADJUST_CONSUMER_THREAD_POOL = 213
    WHO_CONSUME_THE_MESSAGE = 214
    DELETE_TOPIC_IN_BROKER = 215
    DELETE_TOPIC_IN_NAMESRV = 216
    GET_KVLIST_BY_NAMESPACE = 219
    RESET_CONSUMER_CLIENT_OFFSET = 220
    GET_CONSUMER_STATUS_FROM_CLIENT = 221
    INVOKE_BROKER_TO_RESET_OFFSET = 222
    INVOKE_BROKER_TO_GET_CONSUMER_STATUS = 223
    GET_TOPICS_BY_CLUSTER = 224
    QUERY_TOPIC_CONSUME_BY_WHO = 300
    REGISTER_FILTER_SERVER = 301
    REGISTER_MESSAGE_FILTER_CLASS = 302
    QUERY_CONSUME_TIME_SPAN = 303
    GET_SYSTEM_TOPIC_LIST_FROM_NS = 304
    GET_SYSTEM_TOPIC_LIST_FROM_BROKER = 305
    CLEAN_EXPIRED_CONSUMEQUEUE = 306
    GET_CONSUMER_RUNNING_INFO = 307
    QUERY_CORRECTION_OFFSET = 308
    CONSUME_MESSAGE_DIRECTLY = 309
    SEND_MESSAGE_V2 = 310
    GET_UNIT_TOPIC_LIST = 311
    GET_HAS_UNIT_SUB_TOPIC_LIST = 312
    GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST = 313
    CLONE_GROUP_OFFSET = 314
    VIEW_BROKER_STATS_DATA = 315
    CLEAN_UNUSED_TOPIC = 316
    GET_BROKER_CONSUME_STATS = 317
    UPDATE_NAMESRV_CONFIG = 318
    GET_NAMESRV_CONFIG = 319
    SEND_BATCH_MESSAGE = 320
    QUERY_CONSUME_QUEUE = 321
    QUERY_DATA_VERSION = 322
    RESUME_CHECK_HALF_MESSAGE = 323
    SEND_REPLY_MESSAGE = 324
    SEND_REPLY_MESSAGE_V2 = 325
    PUSH_REPLY_MESSAGE_TO_CLIENT = 326
    ADD_WRITE_PERM_OF_BROKER = 327
    GET_ALL_PRODUCER_INFO = 328
    DELETE_EXPIRED_COMMITLOG = 329
    # RocketMQ 5: messages that are popped.
    POP_MESSAGE = 200050
    ACK_MESSAGE = 200051
    CHANGE_MESSAGE_INVISIBLETIME = 200053
    BATCH_ACK_MESSAGE = 200151
    # Eruca's own.
    REPLICATION_STATE = 90101
    CHANGE_ROLE = 90102
    LIST_ACCOUNTS = 90103
    TOPICS_CREATED = 90104
    FORGET_MEMBER = 90105


class ResponseCode(IntEnum):
    """The result of a request. A remark with SUCCESS is not a failure: some answers carry left-over text."""

    SUCCESS = 0
    SYSTEM_ERROR = 1
    SYSTEM_BUSY = 2
    REQUEST_CODE_NOT_SUPPORTED = 3
    TRANSACTION_FAILED = 4
    # The next three mean "stored, but": the message is in the log.
    FLUSH_DISK_TIMEOUT = 10
    SLAVE_NOT_AVAILABLE = 11
    FLUSH_SLAVE_TIMEOUT = 12
    MESSAGE_ILLEGAL = 13
    SERVICE_NOT_AVAILABLE = 14
    VERSION_NOT_SUPPORTED = 15
    NO_PERMISSION = 16
    TOPIC_NOT_EXIST = 17
    TOPIC_EXIST_ALREADY = 18
    PULL_NOT_FOUND = 19
    PULL_RETRY_IMMEDIATELY = 20
    PULL_OFFSET_MOVED = 21
    QUERY_NOT_FOUND = 22
    SUBSCRIPTION_PARSE_FAILED = 23
    SUBSCRIPTION_NOT_EXIST = 24
    SUBSCRIPTION_NOT_LATEST = 25
    SUBSCRIPTION_GROUP_NOT_EXIST = 26
    FILTER_DATA_NOT_EXIST = 27
    FILTER_DATA_NOT_LATEST = 28
    TRANSACTION_SHOULD_COMMIT = 200
    TRANSACTION_SHOULD_ROLLBACK = 201
    TRANSACTION_STATE_UNKNOW = 202
    TRANSACTION_STATE_GROUP_WRONG = 203
    NO_BUYER_ID = 204
    NOT_IN_CURRENT_UNIT = 205
    CONSUMER_NOT_ONLINE = 206
    CONSUME_MSG_TIMEOUT = 207
    NO_MESSAGE = 208
    UPDATE_AND_CREATE_ACL_CONFIG_FAILED = 209
    DELETE_ACL_CONFIG_FAILED = 210
    UPDATE_GLOBAL_WHITE_ADDRS_CONFIG_FAILED = 211
    # RocketMQ 5 uses two codes of 4.x again, in answers to pops.
    POLLING_FULL = 209
    POLLING_TIMEOUT = 210
    FLOW_CONTROL = 215
    # Never on the wire: results that a client reports to its caller.
    CONNECT_BROKER_EXCEPTION = 10001
    ACCESS_BROKER_TIMEOUT = 10002
    BROKER_NOT_EXIST_EXCEPTION = 10003
    NO_NAME_SERVER_EXCEPTION = 10004
    NOT_FOUND_TOPIC_EXCEPTION = 10005
    REQUEST_TIMEOUT_EXCEPTION = 10006
    CREATE_REPLY_MESSAGE_EXCEPTION = 10007
