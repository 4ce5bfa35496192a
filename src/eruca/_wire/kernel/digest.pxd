# What other kernels call of `digest`, once for a record.

cdef int find_hashes(
    const unsigned char* p, Py_ssize_t start, Py_ssize_t size, unsigned int prefix, bint with_keys, long long* out, int room
) except -1
