# What other kernels call of `index`, once for a record.

cdef bint put_entries(
    unsigned char* p,
    Py_ssize_t room,
    long long slots,
    long long* hashes,
    Py_ssize_t count,
    long long position,
    long long store_time,
) noexcept
