# The bytes of a typed view, compiled into each kernel; `views.py` states the same for plain Python. Not part of
# `memory`, because it would make kernels without typed views three times as large.


cdef inline const unsigned char* open_to_read(const unsigned char[::1] view) noexcept:
    return &view[0]


cdef inline unsigned char* open_to_write(unsigned char[::1] view) noexcept:
    return &view[0]
