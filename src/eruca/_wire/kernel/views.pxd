# Where the bytes of a typed view lie, compiled into each kernel; `views.py` states the same for plain Python. Not part of
# `memory`, because a kernel without typed views would be three times as large with them.


cdef inline const unsigned char* open_to_read(const unsigned char[::1] view) noexcept:
    return &view[0]


cdef inline unsigned char* open_to_write(unsigned char[::1] view) noexcept:
    return &view[0]
