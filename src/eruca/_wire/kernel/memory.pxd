# Numbers, bytes and words in memory, compiled into each kernel: a call into another module would cost more than reading
# four bytes. `memory.py` states the same for kernels that run as plain Python. Nothing here checks bounds; the caller
# has done that.

from libc.string cimport memchr, memcmp, memcpy


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


# --- looking for bytes ------------------------------------------------------------------------------------------------


cdef inline Py_ssize_t find_byte(const unsigned char* p, Py_ssize_t at, Py_ssize_t end, int byte) noexcept:
    cdef const void* found = memchr(p + at, byte, end - at)
    return end if found == NULL else <const unsigned char*>found - p


cdef inline Py_ssize_t find_near(const unsigned char* p, Py_ssize_t at, Py_ssize_t end, int byte) noexcept:
    # A byte that is near is found faster by a loop than by a call.
    while at < end and p[at] != byte:
        at += 1
    return at


cdef inline Py_ssize_t count_byte(const unsigned char* p, Py_ssize_t at, Py_ssize_t end, int byte) noexcept:
    cdef Py_ssize_t count = 0
    while at < end:
        count += p[at] == byte
        at += 1
    return count


cdef inline bint has_word(
    const unsigned char* p, Py_ssize_t at, Py_ssize_t end, const unsigned char* word, Py_ssize_t size
) noexcept:
    while end - at >= size:
        at = find_byte(p, at, end, word[0])
        if end - at >= size and memcmp(p + at, word, size) == 0:
            return True
        at += 1
    return False


# --- text -------------------------------------------------------------------------------------------------------------


cdef inline long long hash_text(const unsigned char* p, Py_ssize_t at, Py_ssize_t end, unsigned int begun) except -1:
    cdef unsigned int h = begun
    cdef unsigned int seen = 0
    cdef Py_ssize_t n
    cdef bytes units
    for n in range(at, end):
        seen |= p[n]
        h = h * 31 + p[n]
    if seen < 0x80:
        return h
    units = p[at:end].decode("utf-8", "replace").encode("utf-16-be")
    h = begun
    for n in range(0, len(units), 2):
        h = h * 31 + ((<unsigned int><unsigned char>units[n] << 8) | <unsigned char>units[n + 1])
    return h


cdef inline Py_ssize_t write_hex(
    unsigned char* q, Py_ssize_t to, const unsigned char* p, Py_ssize_t at, Py_ssize_t size
) noexcept:
    cdef const char* digits = b"0123456789ABCDEF"
    cdef Py_ssize_t n
    for n in range(at, at + size):
        q[to] = digits[p[n] >> 4]
        q[to + 1] = digits[p[n] & 15]
        to += 2
    return to


cdef inline Py_ssize_t write_number(unsigned char* q, Py_ssize_t to, long long number) noexcept:
    cdef long long divisor = 1
    if number < 0:
        q[to] = 45
        to += 1
        number = -number
    while number // divisor >= 10:
        divisor *= 10
    while divisor > 0:
        q[to] = 48 + number // divisor % 10
        to += 1
        divisor //= 10
    return to


cdef inline bytes format_number(long long number):
    cdef unsigned char digits[20]
    return digits[: write_number(digits, 0, number)]


cdef inline str format_hex(bytes raw, long long number):
    cdef unsigned char eight[8]
    cdef unsigned char text[80]
    cdef Py_ssize_t end
    if len(raw) > 32:
        raise ValueError("too many bytes to be written in hexadecimal")
    write_i64(eight, 0, number)
    end = write_hex(text, 0, raw, 0, len(raw))
    return text[: write_hex(text, end, eight, 0, 8)].decode("ascii")


cdef inline bytes format_two(bytes before, long long first, bytes between, long long second, bytes after):
    cdef unsigned char text[256]
    cdef Py_ssize_t end
    if len(before) + len(between) + len(after) > 216:
        raise ValueError("the text around two numbers is too long")
    end = copy(text, 0, before, 0, len(before))
    end = write_number(text, end, first)
    end = copy(text, end, between, 0, len(between))
    end = write_number(text, end, second)
    end = copy(text, end, after, 0, len(after))
    return text[:end]


cdef inline bytes format_two_u32(unsigned int first, unsigned int second):
    cdef unsigned char eight[8]
    write_u32(eight, 0, first)
    write_u32(eight, 4, second)
    return eight[:8]
