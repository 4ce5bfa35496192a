# What other kernels call in `digest`, once for each record.

cdef int find_hashes(
    const unsigned char* p, Py_ssize_t start, Py_ssize_t size, unsigned int prefix, bint with_keys, long long* out, int room
) except -1
