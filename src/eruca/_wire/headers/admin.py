"""Headers of administration: topics, groups, statistics, access control."""

from __future__ import annotations

import msgspec

from eruca._wire.ext import Header, Int32, Int64


class CreateTopicHeader(Header, kw_only=True):
    """Create or change a topic (17)."""

    topic: str
    default_topic: str | None = None  # not used
    read_queue_nums: Int32
    write_queue_nums: Int32
    perm: Int32
    topic_filter_type: str = "SINGLE_TAG"
    topic_sys_flag: Int32 | None = None
    order: bool | None = None  # not used


class BrokerConfigAnswerHeader(Header):
    """The version of the options (answer to 26), DataVersion as JSON text."""

    version: str


class ReplicationStateHeader(Header):
    """Request a broker's place among the members of its name (90101), and the CRC of these bytes of its log."""

    check_begin: Int64 = 0
    check_end: Int64 = 0  # not after the beginning: no bytes are requested


class ChangeRoleHeader(Header):
    """Make a broker the master of its name, or a slave (90102)."""

    role: str  # MASTER, SLAVE, or FENCED: no messages until it gets another role
    epoch: Int64 = 0  # of the new mastership; 0: the broker chooses
    force: bool = False  # even if acknowledged messages are lost
    master_address: str = ""  # the master of a new slave; empty: found through name servers
    wait_position: Int64 = -1  # a new master must have the log up to here; -1: no condition


class ForgetMemberHeader(Header):
    """Forget a member of a broker's name that is gone for good (90105)."""

    address: str


class DeleteGroupHeader(Header):
    """Delete a subscription group (207)."""

    group_name: str
    remove_offset: bool | None = None


class ConsumeStatsHeader(Header):
    """Request the progress of a group (208)."""

    consumer_group: str
    topic: str | None = None


class BrokerConsumeStatsHeader(Header):
    """Request the progress of all groups of this broker (317)."""

    is_order: bool


class CorrectionOffsetHeader(Header, kw_only=True):
    """Compare offsets of groups (308)."""

    filter_groups: str | None = None  # comma-joined: leave these out
    compare_group: str
    topic: str


class CloneGroupOffsetHeader(Header):
    """Copy the offsets of one group to another (314)."""

    src_group: str
    dest_group: str
    topic: str | None = None
    offline: bool | None = None


class StatsDataHeader(Header):
    """Look up one counter (315)."""

    stats_name: str
    stats_key: str


class QueryConsumeQueueHeader(Header):
    """Read entries of a consume queue (321)."""

    topic: str
    queue_id: Int32
    index: Int64 = 0
    count: Int32 = 0
    consumer_group: str | None = None


class MessageIdHeader(Header):
    """Check a half message again from the start (323)."""

    message_id: str | None = msgspec.field(default=None, name="msgId")


class UpdateAccountHeader(Header):
    """Create or change an account (50)."""

    access_key: str
    secret_key: str | None = None
    white_remote_address: str | None = None
    admin: bool | None = None
    default_topic_perm: str | None = None
    default_group_perm: str | None = None
    # Comma-joined "name=PERM".
    topic_perms: str | None = None
    group_perms: str | None = None

    def __repr__(self) -> str:
        return f"UpdateAccountHeader(access_key={self.access_key!r})"


class AccessKeyHeader(Header):
    """Delete an account (51)."""

    access_key: str


class WhiteAddressesHeader(Header):
    """Set the addresses that need no account (53)."""

    global_white_addrs: str
    # Declared not-null by Java, but Java's own tools omit it.
    acl_file_full_path: str | None = None


class AclVersionAnswerHeader(Header):
    """The versions of the access control files (answer to 52)."""

    version: str
    all_acl_file_version: str | None = None  # JSON text: path to DataVersion
    broker_name: str | None = None
    broker_addr: str | None = None
    cluster_name: str | None = None


class RegisterFilterServerHeader(Header):
    """A filter server reports that it is alive (301)."""

    filter_server_addr: str


class RegisterFilterServerAnswerHeader(Header):
    """The broker it serves (answer to 301)."""

    broker_name: str
    broker_id: Int64


class RegisterFilterClassHeader(Header):
    """A consumer uploads a filter class to a filter server (302); the body is a module in base64 (3.x: Java source)."""

    consumer_group: str
    topic: str
    class_name: str
    class_crc: Int32 = msgspec.field(name="classCRC")
