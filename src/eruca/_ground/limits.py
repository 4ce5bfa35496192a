"""Every bound Eruca enforces, each with its reason. Rooms import names from here and never repeat a number."""

from __future__ import annotations

# --- frames -------------------------------------------------------------------------------------------------------
# Java's LengthFieldBasedFrameDecoder closes the connection above this; counting the 4-byte length field itself.
# It is checked on the length word alone, so a peer cannot make us buffer gigabytes by announcing them.
FRAME_BYTES_MAX = 16 * 1024 * 1024
# The header length has 24 bits; a real header is under 40 KiB (properties 32 KiB plus names). A peer that announces
# more wants us to run a JSON parser over its bytes.
HEADER_BYTES_MAX = 1024 * 1024
# A binary header smaller than its fixed fields cannot be decoded.
BINARY_HEADER_BYTES_MIN = 21
# Entries in one header's extFields: the widest official header has 15. More is a hash-flooding attempt.
EXT_FIELDS_MAX = 256

# --- bodies -------------------------------------------------------------------------------------------------------
# Nesting of a JSON body: official bodies are five deep; without a bound a body of '[' recurses the parser to death.
JSON_DEPTH_MAX = 64
# What a compressed message or registration body may grow to: a zip bomb of 4 MiB would otherwise unpack to 4 GiB.
DECOMPRESSED_BYTES_MAX = 64 * 1024 * 1024

# The body of a request in JSON, other than a registration, and the objects in it: reading an object takes up to 5 us of
# the loop. A client in 3,000 groups sends 0.9 MB.
JSON_BODY_BYTES_MAX = 2 * 1024 * 1024
JSON_BODY_OBJECTS_MAX = 16_384
# A body above this is read in a thread, and the other requests of its connection wait for that.
BODY_BYTES_AT_ONCE = 64 * 1024
# Topics of one registration, and the bytes it may grow to when it was compressed.
REGISTRATION_TOPICS_MAX = 100_000
REGISTRATION_BYTES_MAX = 16 * 1024 * 1024
# What the registrations of all brokers take at a name server; the connection with most is closed when there is more.
REGISTRATIONS_BYTES_MAX = 128 * 1024 * 1024

# --- messages -----------------------------------------------------------------------------------------------------
# Java's maxMessageSize: body bytes of one message, or of one whole batch.
MESSAGE_BODY_BYTES_MAX = 4 * 1024 * 1024
# Messages of one batch that a broker stores. Its answer names each of them in one header, by 33 characters (57 with an
# IPv6 address), and has to fit a frame: a sender that cannot read the answer sends the batch again. A batch of Java's
# 4 MiB never reaches it: 190,650 messages of 22 bytes, the smallest there are.
BATCH_MESSAGES_MAX = 262_144
# The header of such an answer; 64 KiB of it are for the other fields.
BATCH_ANSWER_HEADER_BYTES_MAX = BATCH_MESSAGES_MAX * 57 + 64 * 1024
# Bytes of the records of one batch: each record has the topic and the properties of the request, so that 100 kB could
# become gigabytes of the log. The smallest messages of 4 MiB, with 250 bytes added to each, are below it.
BATCH_RECORDS_BYTES_MAX = 64 * 1024 * 1024
# A batch with more bytes is stored in pieces of at most this many messages and bytes, each in a turn of its own: that
# takes a millisecond. One with fewer is stored whole: 20,000 of the smallest messages take 6 ms.
BATCH_WHOLE_BYTES_MAX = 512 * 1024
BATCH_PIECE_MESSAGES = 1024
BATCH_PIECE_BYTES = 128 * 1024
# Messages that our clients put into one batch: the answer's header is below HEADER_BYTES_MAX, the most that they read.
SENT_BATCH_MESSAGES_MAX = 16_384
# The most that maxMessageSize may be: a record is its body, up to 64 KiB of properties and some names, and the answer
# to a pull of that one record is still a frame. A larger message could be stored and never be read.
MESSAGE_BODY_BYTES_CEILING = FRAME_BYTES_MAX - 128 * 1024
# The longest topic name taken unless an option says otherwise: Java 4.9 reads the length as a signed byte.
TOPIC_BYTES_MAX = 127
# What the byte itself can say; 3.x allowed as much.
RECORD_TOPIC_BYTES_MAX = 255
# Group names share the topic's rule because %RETRY%group is a topic; Java allows 255 for the group itself.
GROUP_BYTES_MAX = 255
# Other names that peers choose and servers keep: client ids, producer groups, brokers, clusters, namespaces, keys.
LABEL_CHARS_MAX = 512
# The most properties taken unless an option says otherwise: Java 4.9 reads the length as a signed 16-bit number.
PROPERTIES_BYTES_MAX = 32767
# What the two bytes themselves can say; 3.x allowed as much.
RECORD_PROPERTIES_BYTES_MAX = 65535

# --- store --------------------------------------------------------------------------------------------------------
COMMITLOG_SEGMENT_BYTES = 1024 * 1024 * 1024
CONSUMEQUEUE_SEGMENT_BYTES = 300_000 * 20
INDEX_SLOTS = 5_000_000
INDEX_ENTRIES = 20_000_000
# A JSON table larger than this is not one of ours; reading it would only eat memory. None is written that is larger.
TABLE_BYTES_MAX = 256 * 1024 * 1024
# What the tables of topics, groups and offsets may grow to: slaves copy each of them in one frame, and all topics go
# into one registration. It is room for some 70,000 topics, 40,000 groups, or the offsets of 60,000 pairs of them.
SHARED_TABLE_BYTES_MAX = FRAME_BYTES_MAX - 1024 * 1024

# --- replication --------------------------------------------------------------------------------------------------
# Data bytes of one chunk between master and slave. A master sends 32 KiB (haTransferBatchSize) and a Java slave reads
# into a buffer of 4 MiB, so a larger chunk never ends there; it is checked on the size word, before anything is kept.
HA_FRAME_BYTES_MAX = 4 * 1024 * 1024 - 12

# The same between two Erucas. Larger chunks do not go faster, and one is held in memory until its CRC is checked.
HA_FENCED_DATA_BYTES_MAX = 256 * 1024
# Text in such a frame: an address, or why a slave is refused.
HA_TEXT_BYTES_MAX = 512
# What is compared before a link goes on: so many bytes before the place where the slave's log ends.
HA_CHECK_BYTES_MAX = 4096
# The highest number of a mastership. A promotion counts a thousand up, so nobody comes near it by promoting; what is
# beyond was made up, and a broker that believed it could never be the master again. JSON keeps it as a number.
EPOCH_MAX = 2**53 - 1
# How far beyond all that a broker has heard of an operator's tool, or a name server, may be: a thousand promotions.
EPOCH_AHEAD_MAX = 1_000_000
# Masterships that the list of a log keeps. Every start of a master begins one and two logs are compared by their
# lists; the oldest are joined into one.
EPOCHS_LISTED_MAX = 1000
# Slaves of one master. The port knows no accounts, and each connection costs a place in the loop at every append.
HA_LINKS_MAX = 64

# An answer of etcd: a few keys for each member of one broker name. More is not our etcd.
ETCD_ANSWER_BYTES_MAX = 1024 * 1024

# --- pulls --------------------------------------------------------------------------------------------------------
# Messages and bytes of one answer to a pull that names its own bytes (maxMsgBytes, a field of RocketMQ 5). The broker's
# loop does nothing else meanwhile: 4,096 of 245 bytes took it 0.1 ms, and 1.6 ms one by one, as with a filter. It also
# has to fit into a frame with room to spare.
PULL_COUNT_MAX = 4096
PULL_BYTES_MAX = 4 * 1024 * 1024

# Bytes of one answer to any other pull (maxTransferBytesOnMessageInMemory): half a frame, so that it fits into one.
PULL_TRANSFER_BYTES_MAX = FRAME_BYTES_MAX // 2

# --- options ------------------------------------------------------------------------------------------------------
# The largest number an option takes that does not name another: Java's int. As milliseconds it is 24 days.
OPTION_MAX = 2**31 - 1
# Positions in the log and moments are Java's long.
POSITION_MAX = 2**63 - 1
# The latest moment an option may name, in milliseconds: the year 5138.
MOMENT_MS_MAX = 10**14 - 1
# The longest delay of a level: ten years. A due time is a store time plus this, and has to fit into 64 bits.
DELAY_LEVEL_MS_MAX = 3650 * 86_400_000

# --- administration -----------------------------------------------------------------------------------------------
# Queues one topic may be given. Every question about a topic looks at each of its queues on the broker's loop, so an
# absurd number (Java takes any) would stop it for seconds.
TOPIC_QUEUES_MAX = 16_384
# Queue locks of one group and of all, at some 300 bytes each: clients choose the queues they name. A lock that is not
# renewed ends in a minute.
LOCKS_OF_GROUP_MAX = 65_536
LOCKS_MAX = 262_144
# Changes of topics and groups that may wait for the disk at a time, at some 3 KiB each. An operator makes one, a script
# some hundreds.
OPERATORS_MAX = 10_000

# --- what servers tell clients --------------------------------------------------------------------------------------
# Of one route: its bytes, its brokers, and the queues of all of them. A client makes an object of each queue and a
# connection to each broker; a name server that is broken or hostile names billions in a few hundred kilobytes.
ROUTE_BYTES_MAX = 1024 * 1024
ROUTE_BROKERS_MAX = 2048
ROUTE_QUEUES_MAX = 65_536
# Members of one consumer group: each member sorts them all, and hashes each ten times, on its loop.
GROUP_MEMBERS_MAX = 20_000

# --- what brokers and operators tell name servers --------------------------------------------------------------------
# Broker names, addresses and clusters that a name server keeps, and entries of a topic on a broker, at some 300 bytes
# each. The largest clusters have some hundred brokers with some ten thousand topics each.
ROUTE_NAMES_MAX = 10_000
ROUTE_ENTRIES_MAX = 2_000_000
# One value of the key-value config, and all of it as JSON: a namespace of it is in the answer to every registration.
KV_VALUE_CHARS_MAX = 32_768
KV_BYTES_MAX = 8 * 1024 * 1024
# Broker names whose epoch a name server keeps when their last member is gone, so that a master that was replaced is not
# taken for the right one because it comes back first.
EPOCHS_KEPT_MAX = 10_000
# Members of one broker name that a member remembers: each of them is asked when one starts or is promoted.
MEMBERS_MAX = 64

# --- sockets ------------------------------------------------------------------------------------------------------
# Connections one server takes; above it new ones are closed at once, so that half-open ones cannot eat all files.
CONNECTIONS_MAX = 20_000
# What all connections to the servers of a process may hold together: unfinished frames, requests that wait, answers not
# sent. A crowd that announces 16 MiB frames and never finishes them, or asks and never reads, would otherwise fill the
# memory. The largest holder is closed first. It is a share of the machine's memory within these bounds.
HELD_BYTES_MIN = 64 * 1024 * 1024
HELD_BYTES_MAX = 256 * 1024 * 1024
HELD_MEMORY_SHARE = 16
# Bytes that may wait to be read by a slow peer before it is closed.
UNSENT_BYTES_MAX = 64 * 1024 * 1024
# A server takes no more requests of a peer that has this much to read, and wakes none of its held pulls. The system
# has megabytes more on their way, so a peer that reads never waits for it.
UNSENT_BYTES_PAUSE = 2 * 1024 * 1024
# Requests of one connection whose answers come later (weighed at 4 KiB and their body each) before no more are taken.
UNANSWERED_BYTES_MAX = 16 * 1024 * 1024
# How long one pull may look for messages that its SQL92 filter lets through; it goes on where it was at the next pull.
PULL_FILTER_SECONDS = 0.001
# How long one connection, or one long question, may keep the loop before others get their turn.
SLICE_SECONDS = 0.001
# Calls that may wait for an answer on one process, as in Java's clientAsyncSemaphoreValue (2,048 in older versions).
CALLS_IN_FLIGHT_MAX = 65_535
# Pulls that may be held for one connection, and in all, and the memory they may take. A client has one held for each
# queue and group; one above a bound is answered at once, which costs its client a little more work and us no memory.
HOLDS_OF_CONNECTION_MAX = 20_000
HOLDS_MAX = 500_000
HOLDS_OF_CONNECTION_BYTES_MAX = 32 * 1024 * 1024
HOLDS_BYTES_MAX = 512 * 1024 * 1024
# What a held pull takes besides the texts of its header.
HOLD_BYTES = 1024
# What is kept of the heartbeats of all clients: who is in which group and what it subscribes, at some 2 KiB a member.
# The connection with most is closed when there is more.
HEARTBEATS_BYTES_MAX = 128 * 1024 * 1024
# Idle connections are closed after this long without a byte in either direction (serverChannelMaxIdleTimeSeconds).
IDLE_SECONDS_MAX = 120

# How long the start of a consumer waits for its first queues and for where to begin in them. That is one round of
# questions when the cluster is well. When it is not, the start returns after this long and the consumer goes on trying.
START_SECONDS_MAX = 5.0

# --- expressions --------------------------------------------------------------------------------------------------
# Characters of one tag subscription: some 10,000 tags, which take the broker's loop 15 ms to read.
TAGS_CHARS_MAX = 64 * 1024
# What compiled subscriptions that are kept may take; the oldest are compiled again when they are wanted.
FILTERS_BYTES_MAX = 32 * 1024 * 1024
# Characters of one SQL92 subscription. The broker parses it on its loop, at some 3 us a character; clients send it
# with every heartbeat. Java has no bound of its own.
SQL_CHARS_MAX = 8192
# How deep operators of an SQL92 expression may nest: evaluation recurses as deep. `a AND b AND c` and parentheses
# alone do not nest. Java overflows its stack at some thousands.
SQL_DEPTH_MAX = 100

# --- the start of a store -----------------------------------------------------------------------------------------
# How much of the log is read to find the ends of queues where no list of them is left (a store that Java wrote): some
# ten seconds. Of a longer log the last segments are read.
START_WALK_BYTES_MAX = 8 * 1024**3

# Files of consume queues that are mapped at a time, and queues that have one in hand to write to. Linux allows a
# process 65,530 mappings by default; four queues each of 4,000 topics are in use at once, and the rest is on the disk.
MAPPED_QUEUES_MAX = 16_384

# --- class filters ------------------------------------------------------------------------------------------------
# Bytes of one uploaded module. Compiling cannot be interrupted; a third of a second was measured for this much code.
FILTER_MODULE_BYTES_MAX = 256 * 1024
# Instructions a module may spend on one message: some 10 ms of an empty loop.
FILTER_FUEL = 10_000_000
# Linear memory of one instance: room for the largest body a broker takes, and as much again to think.
FILTER_MEMORY_BYTES_MAX = 16 * 1024 * 1024
# Stack of one call; recursion beyond it traps. A thread has 8 MiB, of which the runtime needs some.
FILTER_STACK_BYTES_MAX = 256 * 1024
# Time one pull may spend in a module, because not every instruction takes as long as another.
FILTER_TIME_MS_MAX = 500
# Filter classes that groups have in use at one server, and the letters of a class's name.
FILTER_CLASSES_MAX = 1024
# Bytes of all their modules; compiled, each takes several times as much. The class not used for longest makes room.
FILTER_MODULES_BYTES_MAX = 32 * 1024 * 1024
# Uploads that may wait to be compiled, one after the other.
FILTER_UPLOADS_WAITING_MAX = 64
FILTER_NAME_CHARS_MAX = 255
# Filter servers one broker may be told to take: all of them go into every registration and route.
FILTER_SERVERS_MAX = 64

# --- messages stored once -------------------------------------------------------------------------------------------
# What a broker remembers for idempotent sinks: one number for each query, partition and queue, at some 200 bytes in
# memory and 30 in its table, which is written again every few seconds. A query of 2,000 partitions that all write to 64
# queues fits; above it the query not heard of for longest is forgotten.
ONCE_PLACES_MAX = 131_072
# Queries among them: a job that writes a hundred batches a day leaves one each.
ONCE_QUERIES_MAX = 4096
# Characters of a query's name in a mark; ours has 22.
ONCE_QUERY_CHARS_MAX = 64
