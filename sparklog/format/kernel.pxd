# C types of kernel.py; only the compiled build reads this.
cimport cython

ctypedef unsigned char u8
ctypedef long long i64
ctypedef unsigned long long u64

cdef u64 MASK32, MURMUR_SEED
cdef i64 MS_MAX, MICROS_MAX
cdef Py_ssize_t HEADER
cdef int DONE, FULL, BAD_COUNT, BAD_LENGTH, BAD_FIELD, BAD_OFFSET, BAD_SIZE, BAD_HEADER, BAD_REST

cdef inline void copy(u8[::1] dst, Py_ssize_t at, const u8[::1] src, Py_ssize_t start, Py_ssize_t size) noexcept nogil
@cython.locals(high=i64)
cdef inline i64 load32(const u8[::1] buf, Py_ssize_t at) noexcept nogil
@cython.locals(low=i64)
cdef inline i64 load64(const u8[::1] buf, Py_ssize_t at) noexcept nogil
cdef inline void store(u8[::1] buf, Py_ssize_t at, i64 value, Py_ssize_t width) noexcept nogil
cdef inline i64 wrap(i64 value) noexcept nogil
cdef inline i64 to_micros(i64 ms) noexcept nogil
@cython.locals(rest=u64, size=Py_ssize_t)
cdef inline Py_ssize_t varint_size(i64 value) noexcept nogil
@cython.locals(rest=u64, low=cython.uint)
cdef inline Py_ssize_t put_varint(u8[::1] buf, Py_ssize_t at, i64 value) noexcept nogil
@cython.locals(size=Py_ssize_t)
cdef inline Py_ssize_t varint_bytes(const u8[::1] buf, Py_ssize_t at, Py_ssize_t stop, Py_ssize_t most) noexcept nogil
@cython.locals(bits=u64, half=i64)
cdef inline i64 varint_value(const u8[::1] buf, Py_ssize_t at, Py_ssize_t size) noexcept nogil
cdef inline int is_set(const u8[::1] bitmap, i64 bit) noexcept nogil
@cython.locals(left=Py_ssize_t, h=u64, k=u64)
cdef inline u64 murmur2(const u8[::1] data, Py_ssize_t at, Py_ssize_t stop) noexcept nogil

@cython.locals(rows=Py_ssize_t, stopped=int, left=i64, length=i64, size=Py_ssize_t)
cpdef tuple walk(const u8[::1] buf, Py_ssize_t at, i64[:, ::1] table, Py_ssize_t most)
@cython.locals(at=Py_ssize_t, last=i64, length=i64, size=Py_ssize_t)
cpdef i64 renumber(u8[::1] buf, i64 base_offset, i64 leader_epoch)
@cython.locals(count=Py_ssize_t, row=Py_ssize_t, rows=Py_ssize_t)
cpdef tuple pick_entries(const i64[::1] sizes, i64 interval, i64 since, i64[::1] picked)
@cython.locals(row=Py_ssize_t, rows=Py_ssize_t)
cpdef hash_keys(const int[::1] offsets, const u8[::1] data, const u8[::1] valid, i64 bit, i64 partitions, int[::1] out)

cdef class Framer:
    cdef const i64[::1] stamps
    cdef const int[::1] key_offsets, value_offsets, list_offsets, name_offsets, content_offsets
    cdef const u8[::1] key_data, value_data, name_data, content_data
    cdef const u8[::1] key_valid, value_valid, list_valid, content_valid
    cdef i64 key_bit, value_bit, list_bit, content_bit
    cdef readonly Py_ssize_t rows
    cdef public Py_ssize_t row, need, at_row
    cdef bint has_headers

    @cython.locals(
        key_bit=i64, value_bit=i64, rows=Py_ssize_t, row=Py_ssize_t,
        room=Py_ssize_t, count=Py_ssize_t, need=Py_ssize_t, first=Py_ssize_t, start=Py_ssize_t,
        end=Py_ssize_t, klen=Py_ssize_t, vlen=Py_ssize_t, headers=Py_ssize_t, body=Py_ssize_t,
        size=Py_ssize_t, base=i64, highest=i64, delta=i64)
    cpdef tuple frame(self, u8[::1] out, Py_ssize_t at, Py_ssize_t batch_bytes, Py_ssize_t record_max, i64[:, ::1] table, Py_ssize_t most)
    cdef Py_ssize_t count_headers(self, Py_ssize_t row) noexcept nogil
    @cython.locals(at=Py_ssize_t, stop=Py_ssize_t, size=Py_ssize_t, length=Py_ssize_t)
    cdef Py_ssize_t size_headers(self, Py_ssize_t row, Py_ssize_t headers) noexcept nogil
    cdef Py_ssize_t content_size(self, Py_ssize_t at) noexcept nogil
    @cython.locals(at=Py_ssize_t, stop=Py_ssize_t, length=Py_ssize_t)
    cdef Py_ssize_t put_headers(self, u8[::1] out, Py_ssize_t end, Py_ssize_t row, Py_ssize_t headers) noexcept nogil

cdef class Parser:
    cdef bint want_key, want_value, want_headers
    cdef i64[::1] offsets, stamps
    cdef int[::1] kinds, key_offsets, value_offsets, list_offsets, name_offsets, content_offsets
    cdef u8[::1] key_data, key_valid, value_data, value_valid, name_data, content_data, content_valid
    cdef readonly Py_ssize_t rows, key_bytes, value_bytes, headers, name_bytes, content_bytes
    cdef readonly Py_ssize_t fault_at
    cdef Py_ssize_t new_headers, new_name_bytes, new_content_bytes

    @cython.locals(status=int, rows=Py_ssize_t)
    cpdef tuple parse_many(self, const u8[::1] buf, const i64[:, ::1] table, Py_ssize_t row, i64 shift, i64 first, i64 end)
    @cython.locals(
        rows=Py_ssize_t, keys=Py_ssize_t, values=Py_ssize_t,
        key_room=Py_ssize_t, value_room=Py_ssize_t, status=int, done=Py_ssize_t, size=i64,
        stop_at=Py_ssize_t, n=Py_ssize_t, m=Py_ssize_t, klen=i64, vlen=i64, key_at=Py_ssize_t,
        value_at=Py_ssize_t, headers=i64, offset=i64, delta=i64, step=i64, record=Py_ssize_t)
    cpdef int parse(self, const u8[::1] src, Py_ssize_t at, Py_ssize_t stop, i64 count, i64 base, i64 last, i64 base_time, i64 max_time, int kind, i64 first, i64 end) except -1
    @cython.locals(n=Py_ssize_t, name=i64, content=i64, name_at=Py_ssize_t)
    cdef Py_ssize_t take_headers(self, const u8[::1] src, Py_ssize_t at, Py_ssize_t stop, Py_ssize_t headers, bint take) noexcept nogil
    @cython.locals(row=Py_ssize_t)
    cdef bint take_header(self, const u8[::1] src, Py_ssize_t name_at, Py_ssize_t name, Py_ssize_t at, Py_ssize_t content) noexcept nogil
