# C types of framer.py; only the compiled build reads this.
cimport cython

ctypedef unsigned char u8
ctypedef long long i64
ctypedef unsigned long long u64

cdef Py_ssize_t HEADER

cdef inline void copy(u8[::1] dst, Py_ssize_t at, const u8[::1] src, Py_ssize_t start, Py_ssize_t size) noexcept nogil
cdef inline void store(u8[::1] buf, Py_ssize_t at, i64 value, Py_ssize_t width) noexcept nogil
cdef inline i64 wrap(i64 value) noexcept nogil
@cython.locals(rest=u64, size=Py_ssize_t)
cdef inline Py_ssize_t varint_size(i64 value) noexcept nogil
@cython.locals(rest=u64, low=cython.uint)
cdef inline Py_ssize_t put_varint(u8[::1] buf, Py_ssize_t at, i64 value) noexcept nogil
cdef inline Py_ssize_t field_size(const int[::1] offsets, const u8[::1] valid, i64 bit, Py_ssize_t row) noexcept nogil
cdef inline Py_ssize_t put_start(u8[::1] out, Py_ssize_t at, i64 body, i64 delta, i64 step) noexcept nogil
cdef inline int is_set(const u8[::1] bitmap, i64 bit) noexcept nogil

@cython.locals(rows=Py_ssize_t, row=Py_ssize_t, at=Py_ssize_t, sequence=i64)
cpdef write_headers(u8[::1] out, const i64[:, ::1] table, i64 base_offset, i64 attributes, i64 producer_id, i64 producer_epoch, i64 base_sequence)

@cython.final
@cython.auto_pickle(False)
cdef class Framer:
    cdef const i64[::1] stamps
    cdef const int[::1] order
    cdef const int[::1] key_offsets, value_offsets, list_offsets, name_offsets, content_offsets
    cdef const u8[::1] key_data, value_data, name_data, content_data
    cdef const u8[::1] key_valid, value_valid, list_valid, content_valid
    cdef i64 key_bit, value_bit, list_bit, content_bit
    cdef readonly Py_ssize_t rows
    cdef readonly Py_ssize_t row, need, opened, held
    cdef readonly i64 base, highest, lowest
    cdef public bint more
    cdef bint has_headers, has_order

    @cython.locals(
        key_bit=i64, value_bit=i64, rows=Py_ssize_t, row=Py_ssize_t,
        room=Py_ssize_t, count=Py_ssize_t, need=Py_ssize_t, first=Py_ssize_t, start=Py_ssize_t,
        end=Py_ssize_t, klen=Py_ssize_t, vlen=Py_ssize_t, headers=Py_ssize_t, body=Py_ssize_t,
        size=Py_ssize_t, full=int, opened=Py_ssize_t, one=Py_ssize_t, stamp=i64,
        base=i64, highest=i64, lowest=i64, delta=i64)
    cpdef tuple frame(self, u8[::1] out, Py_ssize_t at, Py_ssize_t batch_bytes, Py_ssize_t record_max, i64[:, ::1] table, Py_ssize_t most)
    cdef Py_ssize_t put_rest(self, u8[::1] out, Py_ssize_t end, Py_ssize_t row, Py_ssize_t klen, Py_ssize_t vlen, Py_ssize_t headers) noexcept nogil
    cdef Py_ssize_t count_headers(self, Py_ssize_t row) noexcept nogil
    @cython.locals(at=Py_ssize_t, stop=Py_ssize_t, size=Py_ssize_t, length=Py_ssize_t)
    cdef Py_ssize_t size_headers(self, Py_ssize_t row, Py_ssize_t headers) noexcept nogil
    cdef Py_ssize_t content_size(self, Py_ssize_t at) noexcept nogil
    @cython.locals(at=Py_ssize_t, stop=Py_ssize_t, length=Py_ssize_t)
    cdef Py_ssize_t put_headers(self, u8[::1] out, Py_ssize_t end, Py_ssize_t row, Py_ssize_t headers) noexcept nogil
