# Sizes of entries in consume queues and index files, and how entries are written, compiled into each kernel; `sizes.py`
# states the same for Python.

from eruca._wire.kernel.memory cimport write_i64, write_u32

cdef enum:
    # An entry of a consume queue, and the size field of an entry without a message.
    ENTRY_BYTES = 20
    FILLER_SIZE = 0x7FFFFFFF
    INDEX_HEADER_BYTES = 40
    INDEX_SLOT_BYTES = 4
    INDEX_ENTRY_BYTES = 20


cdef inline void write_entry(
    unsigned char* p, Py_ssize_t at, long long position, unsigned int size, long long tags_code
) noexcept:
    write_i64(p, at, position)
    write_u32(p, at + 8, size)
    write_i64(p, at + 12, tags_code)


cdef inline void write_index_entry(
    unsigned char* p, Py_ssize_t at, unsigned int key_hash, long long position, unsigned int seconds, unsigned int previous
) noexcept:
    write_u32(p, at, key_hash)
    write_i64(p, at + 4, position)
    write_u32(p, at + 12, seconds)
    write_u32(p, at + 16, previous)
