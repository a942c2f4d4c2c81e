# C types of parser.py; only the compiled build reads this.
cimport cython

ctypedef unsigned char u8
ctypedef long long i64
ctypedef unsigned long long u64

cdef Py_ssize_t HEADER
cdef i64 MS_MAX, MICROS_MAX
cdef int DONE, FULL, BAD_COUNT, BAD_LENGTH, BAD_FIELD, BAD_OFFSET, BAD_SIZE, BAD_HEADER, BAD_REST

cdef inline void copy(u8[::1] dst, Py_ssize_t at, const u8[::1] src, Py_ssize_t start, Py_ssize_t size) noexcept nogil
cdef inline i64 wrap(i64 value) noexcept nogil
cdef inline i64 to_micros(i64 ms) noexcept nogil
@cython.locals(size=Py_ssize_t)
cdef inline Py_ssize_t varint_bytes(const u8[::1] buf, Py_ssize_t at, Py_ssize_t stop, Py_ssize_t most) noexcept nogil
@cython.locals(bits=u64, half=i64)
cdef inline i64 varint_value(const u8[::1] buf, Py_ssize_t at, Py_ssize_t size) noexcept nogil

@cython.final
@cython.auto_pickle(False)
cdef class Parser:
    cdef bint want_key, want_value, want_headers
    cdef i64[::1] offsets, stamps
    cdef int[::1] kinds, key_offsets, value_offsets, list_offsets, name_offsets, content_offsets
    cdef u8[::1] key_data, key_valid, value_data, value_valid, name_data, content_data, content_valid
    cdef readonly Py_ssize_t rows, key_bytes, value_bytes, headers, name_bytes, content_bytes
    cdef readonly Py_ssize_t fault_at, refused
    cdef readonly i64 lowest, highest
    cdef i64 delta, step, header_count, key_size, value_size
    cdef Py_ssize_t headers_at, stop_at, key_at, value_at

    @cython.locals(status=int, rows=Py_ssize_t)
    cpdef tuple parse_many(self, const u8[::1] buf, const i64[:, ::1] table, Py_ssize_t row, i64 shift, i64 first, i64 end)
    @cython.locals(
        rows=Py_ssize_t, keys=Py_ssize_t, values=Py_ssize_t, headers=Py_ssize_t,
        names=Py_ssize_t, contents=Py_ssize_t, done=i64, take=int, previous=i64, status=int)
    cpdef int parse(self, const u8[::1] src, Py_ssize_t at, Py_ssize_t stop, i64 count, i64 base, i64 last, i64 base_time, i64 max_time, int kind, i64 first, i64 end) except -1
    @cython.locals(done=i64, time=i64, status=int)
    cpdef int survey(self, const u8[::1] src, Py_ssize_t at, Py_ssize_t stop, i64 count, i64 base_time, i64 low, i64 high, bint need_keys, i64[::1] bad) except -1
    @cython.locals(n=Py_ssize_t, m=Py_ssize_t, size=i64)
    cdef inline int read(self, const u8[::1] src, Py_ssize_t at, Py_ssize_t stop) noexcept nogil
    @cython.locals(row=Py_ssize_t, size=i64)
    cdef inline int keep(self, const u8[::1] src, i64 offset, i64 micros, int kind) noexcept nogil
    @cython.locals(at=Py_ssize_t, stop=Py_ssize_t, left=i64, n=Py_ssize_t, name=i64, content=i64, name_at=Py_ssize_t)
    cdef inline Py_ssize_t take_headers(self, const u8[::1] src, int take) noexcept nogil
    @cython.locals(row=Py_ssize_t)
    cdef bint take_header(self, const u8[::1] src, Py_ssize_t name_at, Py_ssize_t name, Py_ssize_t at, Py_ssize_t content) noexcept nogil
