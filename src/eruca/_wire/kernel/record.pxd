# What a valid record is, compiled into each kernel; its layout is drawn in `wire/record.py`. `record.py` beside this
# file states the same for plain Python.

from eruca._wire.kernel.memory cimport copy, read_i32, read_i64, read_u32, write_i64, write_u32

cdef extern from *:
    """
    #define ERUCA_RECORD_MAGIC 0xDAA320A7u
    """
    const unsigned int MAGIC "ERUCA_RECORD_MAGIC"

cdef enum:
    # Bytes of a record apart from body, topic and properties, and those before the body, with two IPv4 hosts.
    FIXED_BYTES = 91
    HEAD_BYTES = 88
    V4_HOST_BYTES = 8
    V6_HOST_BYTES = 20
    TOPIC_BYTES_MAX = 255
    PROPERTIES_BYTES_MAX = 65535
    # Offsets of fields.
    CRC_AT = 8
    QUEUE_ID_AT = 12
    FLAG_AT = 16
    QUEUE_OFFSET_AT = 20
    POSITION_AT = 28
    SYS_FLAG_AT = 36
    BORN_TIME_AT = 40
    BORN_HOST_AT = 48
    # The same, with an IPv4 host of the sender.
    STORE_TIME_AT = 56
    STORE_HOST_AT = 64
    # Counted back from the body.
    RECONSUME_BEFORE = 16
    PREPARED_BEFORE = 12
    BODY_BYTES_BEFORE = 4
    # Bits of sysFlag. Both kinds of transaction records that have no entry in a queue have the hidden bit.
    HIDDEN = 0x4
    TRANSACTION_MASK = 0xC
    BORN_HOST_V6 = 0x10
    STORE_HOST_V6 = 0x20
    CRC_MASK = 0x7FFFFFFF
    # Indexes of the parts of a record that `find_parts` fills in.
    BEGIN = 0
    BODY = 1
    BODY_END = 2
    PROPERTIES = 3
    END = 4
    PARTS = 5
    # How many key hashes of one record fit the memory at hand; more are the exception.
    HASHES_MAX = 32
    # Results of `find_parts`.
    VALID = 0
    NOT_A_RECORD = 1
    HEAD_TOO_LARGE = 2
    BODY_TOO_LARGE = 3
    TOPIC_TOO_LARGE = 4
    WRONG_SUM = 5
    # Further results of readers.
    WRONG_POSITION = 6
    WRONG_CRC = 7
    WRONG_TOPIC = 8


cdef inline Py_ssize_t find_shift(unsigned int sys_flag) noexcept:
    return (
        (V6_HOST_BYTES - V4_HOST_BYTES if sys_flag & BORN_HOST_V6 else 0)
        + (V6_HOST_BYTES - V4_HOST_BYTES if sys_flag & STORE_HOST_V6 else 0)
    )


cdef inline int find_parts(const unsigned char* p, Py_ssize_t at, Py_ssize_t end, long long* parts) noexcept:
    cdef Py_ssize_t size, body_at, body_size, properties_at
    if at < 0 or end - at < FIXED_BYTES:
        return NOT_A_RECORD
    size = read_i32(p, at)
    if read_u32(p, at + 4) != MAGIC or size > end - at or size < FIXED_BYTES:
        return NOT_A_RECORD
    end = at + size
    body_at = at + HEAD_BYTES + find_shift(read_u32(p, at + SYS_FLAG_AT))
    if body_at + 3 > end:
        return HEAD_TOO_LARGE
    body_size = read_i32(p, body_at - BODY_BYTES_BEFORE)
    if body_size < 0 or body_at + body_size + 3 > end:
        return BODY_TOO_LARGE
    properties_at = body_at + body_size + 3 + p[body_at + body_size]
    if properties_at > end:
        return TOPIC_TOO_LARGE
    if properties_at + ((<Py_ssize_t>p[properties_at - 2] << 8) | p[properties_at - 1]) != end:
        return WRONG_SUM
    parts[BEGIN] = at
    parts[BODY] = body_at
    parts[BODY_END] = body_at + body_size
    parts[PROPERTIES] = properties_at
    parts[END] = end
    return VALID


cdef inline bint may_be_cut(const unsigned char* p, const long long* parts) noexcept:
    cdef Py_ssize_t end = parts[END]
    cdef Py_ssize_t sector = (parts[BODY_END] + 512) & ~511
    if p[end - 1 if end > parts[PROPERTIES] else end - 3] == 0:
        return True
    while sector + 512 <= end:
        if p[sector] == 0:
            return True
        sector += 512
    return False


cdef inline long long read_store_time(const unsigned char* p, Py_ssize_t at) noexcept:
    return read_i64(p, at + STORE_TIME_AT + find_shift(read_u32(p, at + SYS_FLAG_AT) & BORN_HOST_V6))


cdef inline Py_ssize_t write_head(
    unsigned char* q,
    Py_ssize_t at,
    Py_ssize_t size,
    unsigned long long crc,
    int queue_id,
    int flag,
    long long queue_offset,
    long long position,
    int sys_flag,
    long long born_time,
    const unsigned char* born_host,
    long long store_time,
    const unsigned char* store_host,
    int reconsume_times,
    long long prepared,
    Py_ssize_t body_size,
) noexcept:
    write_u32(q, at, <unsigned int>size)
    write_u32(q, at + 4, MAGIC)
    write_u32(q, at + CRC_AT, <unsigned int>(crc & CRC_MASK))
    write_u32(q, at + QUEUE_ID_AT, <unsigned int>queue_id)
    write_u32(q, at + FLAG_AT, <unsigned int>flag)
    write_i64(q, at + QUEUE_OFFSET_AT, queue_offset)
    write_i64(q, at + POSITION_AT, position)
    write_u32(q, at + SYS_FLAG_AT, <unsigned int>sys_flag)
    write_i64(q, at + BORN_TIME_AT, born_time)
    at = copy(q, at + BORN_HOST_AT, born_host, 0, V6_HOST_BYTES if sys_flag & BORN_HOST_V6 else V4_HOST_BYTES)
    write_i64(q, at, store_time)
    at = copy(q, at + 8, store_host, 0, V6_HOST_BYTES if sys_flag & STORE_HOST_V6 else V4_HOST_BYTES)
    write_u32(q, at, <unsigned int>reconsume_times)
    write_i64(q, at + 4, prepared)
    write_u32(q, at + 12, <unsigned int>body_size)
    return at + 16
