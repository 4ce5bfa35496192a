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
# The largest size of a compressed message or registration body when unpacked: a zip bomb of 4 MiB would otherwise
# unpack to 4 GiB.
DECOMPRESSED_BYTES_MAX = 64 * 1024 * 1024

# The JSON body of a request other than a registration, and the objects in it: parsing an object takes up to 5 us of
# the loop. A client in 3,000 groups sends 0.9 MB.
JSON_BODY_BYTES_MAX = 2 * 1024 * 1024
JSON_BODY_OBJECTS_MAX = 16_384
# A body above this is parsed in a thread, and the other requests of its connection wait for that.
BODY_BYTES_AT_ONCE = 64 * 1024
# Topics of one registration, and its bytes after decompression.
REGISTRATION_TOPICS_MAX = 100_000
REGISTRATION_BYTES_MAX = 16 * 1024 * 1024
# The memory for registrations of all brokers at a name server; above it, a connection of who has most is closed.
REGISTRATIONS_BYTES_MAX = 128 * 1024 * 1024

# --- messages -----------------------------------------------------------------------------------------------------
# Java's maxMessageSize: body bytes of one message, or of one whole batch.
MESSAGE_BODY_BYTES_MAX = 4 * 1024 * 1024
# Messages of one batch that a broker stores. Its answer lists each of them in one header, with 33 characters (57 with
# an IPv6 address), and has to fit a frame: a sender that cannot read the answer sends the batch again. A batch of
# Java's 4 MiB never reaches it: 190,650 messages of 22 bytes, the smallest possible.
BATCH_MESSAGES_MAX = 262_144
# The header of such an answer; 64 KiB of it are reserved for the other fields.
BATCH_ANSWER_HEADER_BYTES_MAX = BATCH_MESSAGES_MAX * 57 + 64 * 1024
# Bytes of the records of one batch: each record contains the topic and the properties of the request, so that 100 kB
# could become gigabytes of the log. The smallest messages of 4 MiB, with 250 bytes added to each, are below it.
BATCH_RECORDS_BYTES_MAX = 64 * 1024 * 1024
# A batch with more bytes is stored in pieces of at most this many messages and bytes, each in its own turn of the
# loop, which takes a millisecond. A smaller one is stored whole: 20,000 of the smallest messages take 6 ms.
BATCH_WHOLE_BYTES_MAX = 512 * 1024
BATCH_PIECE_MESSAGES = 1024
BATCH_PIECE_BYTES = 128 * 1024
# Messages that our clients put into one batch: the answer's header is below HEADER_BYTES_MAX, the most they accept.
SENT_BATCH_MESSAGES_MAX = 16_384
# The highest value of maxMessageSize: a record is its body, up to 64 KiB of properties and some names, and the answer
# to a pull of that one record is still a frame. A larger message could be stored but never read.
MESSAGE_BODY_BYTES_CEILING = FRAME_BYTES_MAX - 128 * 1024
# The longest topic name unless an option overrides it: Java 4.9 reads the length as a signed byte.
TOPIC_BYTES_MAX = 127
# The maximum of an unsigned byte, which 3.x allowed.
RECORD_TOPIC_BYTES_MAX = 255
# Group names share the topic's rule because %RETRY%group is a topic; Java allows 255 for the group itself.
GROUP_BYTES_MAX = 255
# Other names that peers choose and servers keep: client ids, producer groups, brokers, clusters, namespaces, keys.
LABEL_CHARS_MAX = 512
# The longest properties unless an option overrides it: Java 4.9 reads the length as a signed 16-bit number.
PROPERTIES_BYTES_MAX = 32767
# The maximum of two unsigned bytes, which 3.x allowed.
RECORD_PROPERTIES_BYTES_MAX = 65535

# --- store --------------------------------------------------------------------------------------------------------
COMMITLOG_SEGMENT_BYTES = 1024 * 1024 * 1024
CONSUMEQUEUE_SEGMENT_BYTES = 300_000 * 20
INDEX_SLOTS = 5_000_000
INDEX_ENTRIES = 20_000_000
# A JSON table larger than this is not one of ours; reading it would only waste memory. Larger ones are not written.
TABLE_BYTES_MAX = 256 * 1024 * 1024
# The largest size of the tables of topics, groups and offsets: slaves copy each of them in one frame, and all topics go
# into one registration. It is room for about 70,000 topics, 40,000 groups, or the offsets of 60,000 pairs of them.
SHARED_TABLE_BYTES_MAX = FRAME_BYTES_MAX - 1024 * 1024
# Entries of these tables unless an option overrides it: about what fits, so that the error names a number people know.
TOPICS_MAX = 65_536
GROUPS_MAX = 32_768
OFFSETS_MAX = 400_000
# The longest delay of a message that is delivered at any time: 40 days.
TIMER_DELAY_SECONDS_MAX = 3_456_000
# The text beside an offset that lists which messages behind it are done. It has room for several hundred gaps; a
# consumer works on far fewer messages of a queue at the same time.
DONE_CHARS_MAX = 4096
# The highest value of such an option.
TABLE_ENTRIES_CEILING = 10_000_000

# --- replication --------------------------------------------------------------------------------------------------
# Data bytes of one chunk between master and slave. A master sends 32 KiB (haTransferBatchSize), and a Java slave reads
# into a buffer of 4 MiB, where a larger chunk would never complete; checked on the size word, before anything is kept.
HA_FRAME_BYTES_MAX = 4 * 1024 * 1024 - 12

# The same between two Erucas. Larger chunks are not faster, and one is held in memory until its CRC is checked.
HA_FENCED_DATA_BYTES_MAX = 256 * 1024
# Text in such a frame: an address, or the reason a slave is refused.
HA_TEXT_BYTES_MAX = 512
# The name of the account with which a slave introduces itself, before anything about it is known.
HA_ACCOUNT_BYTES_MAX = 256
# How long a slave may take to authenticate: two round trips, on a connection that is already open.
HA_HANDSHAKE_SECONDS_MAX = 5.0
# How many bytes before the end of the slave's log are compared before a link continues.
HA_CHECK_BYTES_MAX = 4096
# The highest number of a mastership. A promotion adds a thousand, so promotions alone never come near it. A higher
# number was made up, and a broker that accepted it could never be the master again. JSON can represent it exactly.
EPOCH_MAX = 2**53 - 1
# How far an operator's tool or a name server may be ahead of every epoch a broker has seen: a thousand promotions.
EPOCH_AHEAD_MAX = 1_000_000
# Masterships kept in the list of a log. Every start of a master begins one, and two logs are compared by their
# lists; the oldest are joined into one.
EPOCHS_LISTED_MAX = 1000
# Slaves of one master. Without accounts anybody may connect, and each connection costs time at every append.
HA_LINKS_MAX = 64

# An answer of etcd: a few keys for each member of one broker name. A longer one is not from our etcd.
ETCD_ANSWER_BYTES_MAX = 1024 * 1024

# --- schema registries --------------------------------------------------------------------------------------------
# One schema: Confluent's registry accepts 1 MiB by default.
SCHEMA_BYTES_MAX = 4 * 1024 * 1024
# A local file with many of them.
SCHEMA_FILE_BYTES_MAX = 64 * 1024 * 1024
# Schemas that one process keeps. A topic has a few; ids of others are the work of a faulty or hostile producer.
SCHEMAS_MAX = 1000
# Schemas that one schema may refer to, directly or through others.
SCHEMA_REFERENCES_MAX = 100
# Nested Protobuf messages that a body can name; deeper ones do not exist.
MESSAGE_INDEXES_MAX = 100

# --- checkpoints --------------------------------------------------------------------------------------------------
# The offsets of one batch of a stream: 100,000 queues have about 3 MB.
CHECKPOINT_FILE_BYTES_MAX = 64 * 1024 * 1024

# --- pulls --------------------------------------------------------------------------------------------------------
# Messages and bytes of one answer to a pull that sets its own limit (maxMsgBytes, a field of RocketMQ 5). The broker's
# loop is busy for that time: 4,096 of 245 bytes took it 0.1 ms, and 1.6 ms one by one, as with a filter. The answer
# also has to fit into a frame with room to spare.
PULL_COUNT_MAX = 4096
PULL_BYTES_MAX = 4 * 1024 * 1024

# Bytes of one answer to any other pull (maxTransferBytesOnMessageInMemory): half a frame, so that it fits into one.
PULL_TRANSFER_BYTES_MAX = FRAME_BYTES_MAX // 2

# --- options ------------------------------------------------------------------------------------------------------
# The largest number of an option that declares no other bound: Java's int. As milliseconds it is 24 days.
OPTION_MAX = 2**31 - 1
# Positions in the log and points in time are Java's long.
POSITION_MAX = 2**63 - 1
# The latest time an option may name, in milliseconds: the year 5138.
MOMENT_MS_MAX = 10**14 - 1
# The longest delay of a level: ten years. A due time is a store time plus this, and has to fit into 64 bits.
DELAY_LEVEL_MS_MAX = 3650 * 86_400_000

# --- administration -----------------------------------------------------------------------------------------------
# Queues of one topic. Every request about a topic examines each of its queues on the broker's loop, so an
# absurd number (Java accepts any) would block it for seconds.
TOPIC_QUEUES_MAX = 16_384
# Queue locks of one group and of all, at about 300 bytes each: clients choose the queues they name. A lock that is not
# renewed expires in a minute.
LOCKS_OF_GROUP_MAX = 65_536
LOCKS_MAX = 262_144
# Changes of topics and groups that may wait for the disk at a time, at about 3 KiB each. An operator makes one, a
# script some hundreds.
OPERATORS_MAX = 10_000

# --- what servers tell clients --------------------------------------------------------------------------------------
# Limits of one route: its bytes, its brokers, and the queues of all of them. A client creates an object for each queue
# and a connection to each broker; a broken or hostile name server could list billions in a few hundred kilobytes.
ROUTE_BYTES_MAX = 1024 * 1024
ROUTE_BROKERS_MAX = 2048
ROUTE_QUEUES_MAX = 65_536
# Members of one consumer group: each member sorts them all, and hashes each ten times, on its loop.
GROUP_MEMBERS_MAX = 20_000

# --- what brokers and operators tell name servers --------------------------------------------------------------------
# Broker names, addresses and clusters that a name server keeps, and entries of a topic on a broker, at about 300 bytes
# each. The largest clusters have about a hundred brokers with about ten thousand topics each.
ROUTE_NAMES_MAX = 10_000
ROUTE_ENTRIES_MAX = 2_000_000
# One value of the key-value config, and all of it as JSON: every answer to a registration contains a namespace of it.
KV_VALUE_CHARS_MAX = 32_768
KV_BYTES_MAX = 8 * 1024 * 1024
# The highest value of an option for it: such an answer has to fit into a frame.
KV_BYTES_CEILING = 12 * 1024 * 1024
# Broker names whose epoch a name server keeps when their last member is gone, so that a replaced master that comes back
# first is not taken for the right one.
EPOCHS_KEPT_MAX = 10_000
# Members of one broker name that a member remembers: each is queried when a member starts or is promoted.
MEMBERS_MAX = 64

# --- sockets ------------------------------------------------------------------------------------------------------
# Connections one server accepts, unless an option says otherwise; above it new ones are closed at once, so that
# half-open ones cannot use up all files. One address cannot take them all; behind a proxy many clients share one.
CONNECTIONS_MAX = 20_000
CONNECTIONS_PER_ADDRESS_MAX = 10_000
# The highest value of both: Linux allows a process about a million open files by default (fs.nr_open).
CONNECTIONS_CEILING = 1_000_000
# Refused requests per second of one address on connections that never authenticated: a client needs one to learn that
# its keys are wrong, and a process with many clients some dozens.
REFUSALS_PER_SECOND_MAX = 100
# How long one frame may take to arrive. The largest, 16 MiB, arrives in this time at 280 kB/s. At one byte per second
# it would take months, and keep a connection open as long.
FRAME_SECONDS_MAX = 60
# Connections accepted in one iteration of the loop: each takes about 50 us.
ACCEPTS_AT_ONCE = 16
# How long a connection may take for its first byte, where that decides between plain and TLS. Clients send at once; a
# slave of Java sends its first report after five seconds.
FIRST_BYTE_SECONDS_MAX = 30.0
# How long a TLS handshake may take, and how many may be in progress; above that the oldest is dropped. Each holds a
# context of OpenSSL and its buffers, about 100 KiB.
HANDSHAKE_SECONDS_MAX = 10.0
HANDSHAKES_MAX = 256
# How long a TLS connection of a client that closes waits for the server to confirm it.
TLS_GOODBYE_SECONDS = 1.0
# How much is encrypted or decrypted at a time: one record. OpenSSL keeps buffers for the most it ever got at once.
TLS_PIECE_BYTES = 16 * 1024
# What all connections to the servers of a process may hold together: unfinished frames, waiting requests, unsent
# answers. A crowd that announces 16 MiB frames and never finishes them, or sends requests and never reads the answers,
# would otherwise fill the memory. The largest holder is closed first. It is a share of the machine's memory within
# these bounds.
HELD_BYTES_MIN = 64 * 1024 * 1024
HELD_BYTES_MAX = 256 * 1024 * 1024
HELD_MEMORY_SHARE = 16
# Bytes waiting for a slow peer to read before its connection is closed.
UNSENT_BYTES_MAX = 64 * 1024 * 1024
# A server accepts no more requests from a peer with this many unread bytes, and wakes none of its held pulls. The
# system buffers megabytes more, so a peer that reads never waits for it.
UNSENT_BYTES_PAUSE = 2 * 1024 * 1024
# Requests of one connection whose answers are pending (each weighed at 4 KiB plus its body) before reading is paused.
UNANSWERED_BYTES_MAX = 16 * 1024 * 1024
# How long one pull may search for messages that match its SQL92 filter; the next pull continues from there.
PULL_FILTER_SECONDS = 0.001
# How long one connection, or one long request, may keep the loop before others get their turn.
SLICE_SECONDS = 0.001
# Calls that may wait for an answer in one process, as in Java's clientAsyncSemaphoreValue (2,048 in older versions).
CALLS_IN_FLIGHT_MAX = 65_535
# Pulls that may be held for one connection, and in all, and the memory they may use. A client has one held for each
# queue and group; one above a limit is answered at once, which costs its client a little more work and us no memory.
HOLDS_OF_CONNECTION_MAX = 20_000
HOLDS_MAX = 150_000
# Messages that are popped and not acknowledged: a delivery has up to 32 and takes about 400 bytes, so these take 25 MB
# in full deliveries, and 800 MB one by one.
POP_IN_FLIGHT_MAX = 2_000_000
POP_IN_FLIGHT_CEILING = 50_000_000
# How long a pop waits; RocketMQ's clients ask for 15 to 20 seconds.
POP_WAIT_MS_MAX = 60_000
HOLDS_OF_CONNECTION_BYTES_MAX = 32 * 1024 * 1024
HOLDS_BYTES_MAX = 150 * 1024 * 1024
# Memory of a held pull apart from the texts of its header.
HOLD_BYTES = 1024
# Memory for the heartbeats of all clients: group members and their subscriptions, at about 2 KiB a member.
# Above it, a connection of who has most is closed.
HEARTBEATS_BYTES_MAX = 128 * 1024 * 1024
# How long a server that closes connections waits for peers to read their last responses.
GOODBYE_SECONDS = 1.0
# Idle connections are closed after this long without a byte in either direction (serverChannelMaxIdleTimeSeconds).
IDLE_SECONDS_MAX = 120

# How long the start of a consumer waits for its first queues and start offsets. That is one round of
# requests when the cluster is healthy. Otherwise the start returns after this long and the consumer keeps trying.
START_SECONDS_MAX = 5.0

# --- expressions --------------------------------------------------------------------------------------------------
# Characters of one tag subscription: about 10,000 tags, which take the broker's loop 15 ms to parse.
TAGS_CHARS_MAX = 64 * 1024
# Memory for cached compiled subscriptions; the oldest are compiled again when needed.
FILTERS_BYTES_MAX = 32 * 1024 * 1024
# Characters of one SQL92 subscription. The broker parses it on its loop, at about 3 us a character; clients send it
# with every heartbeat. Java has no bound of its own.
SQL_CHARS_MAX = 8192
# How deep operators of an SQL92 expression may nest: evaluation recurses as deep. `a AND b AND c` and parentheses
# alone do not nest. Java overflows its stack at some thousands.
SQL_DEPTH_MAX = 100

# --- the start of a store -----------------------------------------------------------------------------------------
# How much of the log is read to find the ends of queues where there is no list of them (a store that Java wrote): about
# ten seconds. Of a longer log only the last segments are read.
START_WALK_BYTES_MAX = 8 * 1024**3

# Files of consume queues that are mapped at a time, and queues that hold one for writing. Linux allows a
# process 65,530 mappings by default; four queues each of 4,000 topics can be in use at once, the rest stay on the disk.
MAPPED_QUEUES_MAX = 16_384

# --- class filters ------------------------------------------------------------------------------------------------
# Bytes of one uploaded module. Compiling cannot be interrupted; a third of a second was measured for this much code.
FILTER_MODULE_BYTES_MAX = 256 * 1024
# Instructions a module may use for one message: about 10 ms of an empty loop.
FILTER_FUEL = 10_000_000
# Linear memory of one instance: room for the largest body a broker accepts, and as much again to work with.
FILTER_MEMORY_BYTES_MAX = 16 * 1024 * 1024
# Stack of one call; deeper recursion traps. A thread has 8 MiB, of which the runtime needs some.
FILTER_STACK_BYTES_MAX = 256 * 1024
# Time one pull may spend in a module, because instructions differ in how long they take.
FILTER_TIME_MS_MAX = 500
# Filter classes in use at one server, and the characters of a class name.
FILTER_CLASSES_MAX = 1024
# Bytes of all their modules; compiled, each takes several times as much. The least recently used class is dropped.
FILTER_MODULES_BYTES_MAX = 32 * 1024 * 1024
# Uploads that may wait for compilation, one at a time.
FILTER_UPLOADS_WAITING_MAX = 64
FILTER_NAME_CHARS_MAX = 255
# Messages that wait for their turn in a class: a class filters one pull at a time, and a pull can have 4 MB.
FILTER_WAITING_BYTES_MAX = 64 * 1024 * 1024
# Filter servers one broker accepts: all of them go into every registration and route.
FILTER_SERVERS_MAX = 64

# --- delayed messages -----------------------------------------------------------------------------------------------
# Cancellations of delayed messages that a broker remembers, up to 40 days each: 40 MB of memory.
CANCELLATIONS_MAX = 200_000

# --- messages stored once -------------------------------------------------------------------------------------------
# What a broker remembers for idempotent sinks: one number for each query, partition and queue, at about 200 bytes in
# memory and 30 in its table, which is rewritten every few seconds. A query of 2,000 partitions that all write to 64
# queues fits; above it, the query idle for longest is forgotten.
ONCE_PLACES_MAX = 131_072
# Queries among them: a job that writes a hundred batches a day leaves one each.
ONCE_QUERIES_MAX = 4096
# Requests an idempotent producer has under way: a broker remembers one number for each of them and each queue.
ONCE_LANES_MAX = 64
# Characters of a query's name in a mark; ours have 22 or 24.
ONCE_QUERY_CHARS_MAX = 64

# --- accounts -----------------------------------------------------------------------------------------------------
# One file of accounts, or another YAML file: half a megabyte takes two seconds of a thread, whenever it changes.
YAML_FILE_BYTES_MAX = 512 * 1024
# Files of accounts (`plain_acl.yml` and `acl/*.yml`), accounts in all of them, permissions of one account.
ACL_FILES_MAX = 64
ACL_ACCOUNTS_MAX = 10_000
ACL_PERMISSIONS_MAX = 10_000
# Access keys and secrets have more than 6 characters, as in Java. The upper bound keeps log lines and answers short.
ACL_KEY_CHARS_MIN = 7
ACL_KEY_CHARS_MAX = 256
# One address pattern: a list of about a hundred IPv6 addresses.
ACL_PATTERN_CHARS_MAX = 4096

# --- the port for metrics and health ------------------------------------------------------------------------------
# The head of a request: Prometheus sends 300 bytes, a browser with cookies some KiB.
WEB_HEAD_BYTES_MAX = 8 * 1024
# How long a request may take to arrive, and its answer to be read.
WEB_HEAD_SECONDS_MAX = 5.0
WEB_ANSWER_SECONDS_MAX = 30.0
# Open connections: a few Prometheus servers and probes, each of which asks once in some seconds.
WEB_CONNECTIONS_MAX = 32

# --- gRPC ---------------------------------------------------------------------------------------------------------
# The port's default limit of one message: that of RocketMQ's proxy, 32 messages of 4 MiB and their properties.
GRPC_MESSAGE_BYTES_MAX = 130 * 1024 * 1024
# Calls that a connection may have open, each weighed at 4 KiB (16 MiB in all, as on the other ports). A client has one
# connection for all its topics, with a held receive for each of them, and calls as many sends as it likes.
HTTP2_STREAMS_MAX = 4096
# Headers of a request as HTTP/2 counts them, 32 bytes a field and its texts, and their bytes as they are sent, in this
# many frames at most. A client sends about 15 fields with 1 KiB.
HTTP2_HEADER_LIST_BYTES_MAX = 16 * 1024
HTTP2_HEADER_BLOCK_BYTES_MAX = 32 * 1024
HTTP2_CONTINUATIONS_MAX = 8
# What a peer may send before it is told that we read: of a stream, and of all. Enough for 10 MB/s at 100 ms.
HTTP2_STREAM_WINDOW = 1024 * 1024
HTTP2_WINDOW = 4 * 1024 * 1024
# Frames without use for a call (pings, settings, empty data; calls that are cancelled weigh eight) that a connection
# may send at once and in a second, besides some for each message. A client that cancels a thousand calls when it stops
# is below that; one that does nothing else takes a few milliseconds of each second.
HTTP2_IDLE_FRAMES_MAX = 16_384
HTTP2_IDLE_FRAMES_PER_SECOND = 1000
# How long calls may still take when a server stops, before they are ended.
GRPC_DRAIN_SECONDS = 3.0
# How long a silent connection with open calls may take to answer a ping.
HTTP2_PING_SECONDS_MAX = 20.0
# Bytes of data written to one connection before others get their turn, and to one call before the next one.
HTTP2_TURN_BYTES = 256 * 1024
HTTP2_QUANTUM_BYTES = 64 * 1024
# A stream's sender waits while this much of what it sent before has not left.
HTTP2_UNSENT_BYTES_PAUSE = 128 * 1024
# A compressed message is inflated in a thread when it is, or becomes, larger than this.
GRPC_INFLATED_AT_ONCE_BYTES = 64 * 1024

# --- who may do what in the console -------------------------------------------------------------------------------
# Users, and prefixes with a role of their own for each: a page lists them all.
CONSOLE_USERS_MAX = 10_000
CONSOLE_USER_CHARS_MAX = 128
CONSOLE_GRANTS_MAX = 100
# Passwords: the shortest that a throttled log-in protects, and the longest that is hashed.
CONSOLE_PASSWORD_CHARS_MIN = 12
CONSOLE_PASSWORD_CHARS_MAX = 1024
# Passwords hashed at the same moment, 32 MiB and 60 ms of a core each, and log-ins that wait for it.
CONSOLE_HASHES_MAX = 2
CONSOLE_LOGINS_WAITING_MAX = 32
# Sessions of one user; the oldest ends when there is one more.
CONSOLE_SESSIONS_MAX = 20
# Addresses and users whose failed log-ins are remembered, 200 bytes each; the one idle for longest is forgotten.
CONSOLE_FAILURES_MAX = 20_000
# Log-ins through OpenID Connect under way: each lasts as long as the user needs at the provider.
CONSOLE_OIDC_LOGINS_MAX = 1000
# Bytes of one answer of a provider of OpenID Connect: its keys are the longest, some KiB.
CONSOLE_OIDC_BYTES_MAX = 512 * 1024
# Rows of the audit log, and characters of what was before and after a change. Older rows make room.
CONSOLE_AUDIT_ROWS_MAX = 1_000_000
CONSOLE_AUDIT_TEXT_MAX = 16_384
# Rules for fields to mask.
CONSOLE_MASKS_MAX = 200
# Open connections of browsers, which have six each, and how long a form may take to arrive.
CONSOLE_CONNECTIONS_MAX = 500
CONSOLE_FORM_SECONDS_MAX = 60.0

# --- messages in the console --------------------------------------------------------------------------------------
# Characters of a filter expression, how deep its conditions nest (each level is a call), and of a pattern of LIKE: a
# search in the longest text takes some milliseconds.
CONSOLE_FILTER_CHARS_MAX = 2000
CONSOLE_FILTER_DEPTH_MAX = 50
CONSOLE_PATTERN_CHARS_MAX = 200
# Values that a filter compares in one message, some 0.2 s: the longest list of a body has 130,000, and a comparison of
# two such lists would take hours.
CONSOLE_FILTER_VALUES_MAX = 300_000
# One step of a search: messages and bytes that are read, and the time. A page shows the progress after each step and
# asks for the next one, up to this many.
CONSOLE_SCAN_MESSAGES_MAX = 5000
CONSOLE_SCAN_BYTES_MAX = 32 * 1024 * 1024
CONSOLE_SCAN_SECONDS_MAX = 2.0
CONSOLE_SCAN_STEPS_MAX = 20
# Messages that one page of a search shows.
CONSOLE_FOUND_MAX = 100
# Searches that run at the same time for all users.
CONSOLE_SCANS_MAX = 8
# Messages a second that a live tail sends to a page; further ones are counted, not shown.
CONSOLE_TAIL_RATE_MAX = 50
# Bytes of a body that a page shows and that a filter looks into. The whole body can be downloaded.
CONSOLE_BODY_BYTES_MAX = 256 * 1024
# How deep a body is nested that is decoded, and in which fields are hidden: each level is some calls.
CONSOLE_BODY_DEPTH_MAX = 100
# An imported file, its lines, and the dead letters that one action sends again. Files wait in memory to be confirmed.
CONSOLE_IMPORT_BYTES_MAX = 1024 * 1024
CONSOLE_IMPORT_LINES_MAX = 1000
CONSOLE_LETTERS_MAX = 1000
# Saved filters of one user, and the characters of a name.
CONSOLE_SAVED_FILTERS_MAX = 100
CONSOLE_FILTER_NAME_CHARS_MAX = 60

# --- importing messages from a file -------------------------------------------------------------------------------
# Bytes and messages of one file for `eruca message import`: both are in memory at once.
IMPORT_BYTES_MAX = 256 * 1024 * 1024
IMPORT_LINES_MAX = 100_000
