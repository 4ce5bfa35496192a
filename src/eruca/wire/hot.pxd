# What `hotreplay` calls of `hot`, once or twice for a record.

cdef int find_hashes(
    const unsigned char* p, Py_ssize_t start, Py_ssize_t size, unsigned int prefix, bint with_keys, long long* out, int room
) except -1

cdef bint put_entries(
    unsigned char* p,
    Py_ssize_t room,
    long long slots,
    long long* hashes,
    Py_ssize_t count,
    long long position,
    long long store_time,
) noexcept
