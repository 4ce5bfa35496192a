# What other kernels call in `index`, once for each record.

cdef bint put_entries(
    unsigned char* p,
    Py_ssize_t room,
    long long slots,
    long long* hashes,
    Py_ssize_t count,
    long long position,
    long long store_time,
) noexcept
