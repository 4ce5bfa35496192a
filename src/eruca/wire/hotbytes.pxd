# What the hot modules do with single numbers and words in memory, compiled into each of them: a call of another module
# for four bytes would cost more than the bytes. `hotbytes.py` states the same for modules that run as plain Python.
# Nothing here looks whether a place is inside; who calls knows.

from libc.string cimport memcmp, memcpy


cdef inline unsigned int read_u32(const unsigned char* p, Py_ssize_t at) noexcept:
    return (
        (<unsigned int>p[at] << 24)
        | (<unsigned int>p[at + 1] << 16)
        | (<unsigned int>p[at + 2] << 8)
        | <unsigned int>p[at + 3]
    )


cdef inline long long read_i32(const unsigned char* p, Py_ssize_t at) noexcept:
    return <int>read_u32(p, at)


cdef inline long long read_i64(const unsigned char* p, Py_ssize_t at) noexcept:
    return <long long>((<unsigned long long>read_u32(p, at) << 32) | read_u32(p, at + 4))


cdef inline void write_u32(unsigned char* p, Py_ssize_t at, unsigned int value) noexcept:
    p[at] = (value >> 24) & 0xFF
    p[at + 1] = (value >> 16) & 0xFF
    p[at + 2] = (value >> 8) & 0xFF
    p[at + 3] = value & 0xFF


cdef inline void write_i64(unsigned char* p, Py_ssize_t at, long long value) noexcept:
    write_u32(p, at, <unsigned int>(<unsigned long long>value >> 32))
    write_u32(p, at + 4, <unsigned int>value)


cdef inline Py_ssize_t copy(
    unsigned char* q, Py_ssize_t to, const unsigned char* p, Py_ssize_t at, Py_ssize_t size
) noexcept:
    memcpy(q + to, p + at, size)
    return to + size


cdef inline bint equals(
    const unsigned char* p, Py_ssize_t at, const unsigned char* q, Py_ssize_t to, Py_ssize_t size
) noexcept:
    return memcmp(p + at, q + to, size) == 0


cdef inline bytes take(const unsigned char* p, Py_ssize_t at, Py_ssize_t end):
    return p[at:end]
