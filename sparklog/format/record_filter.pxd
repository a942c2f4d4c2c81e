# C types of record_filter.py; only the compiled build reads this.
cimport cython

from sparklog.format.offset_map cimport OffsetMapKernel

ctypedef unsigned char u8
ctypedef long long i64
ctypedef unsigned long long u64

cdef Py_ssize_t HEADER, BLOCK
cdef int DONE, FULL, BAD_COUNT, BAD_LENGTH, BAD_FIELD, BAD_OFFSET, BAD_SIZE, GROW, BAD_REST
cdef int DISCARD, RETAIN, EMPTY, MARK, TOMBSTONES, STAYS, IS_NULL, DELETE_HORIZON, HEADER_ONLY

cdef inline void copy(u8[::1] dst, Py_ssize_t at, const u8[::1] src, Py_ssize_t start, Py_ssize_t size) noexcept nogil
cdef inline void store(u8[::1] buf, Py_ssize_t at, i64 value, Py_ssize_t width) noexcept nogil
cdef inline i64 wrap(i64 value) noexcept nogil
@cython.locals(rest=u64, size=Py_ssize_t)
cdef inline Py_ssize_t varint_size(i64 value) noexcept nogil
@cython.locals(rest=u64, low=cython.uint)
cdef inline Py_ssize_t put_varint(u8[::1] buf, Py_ssize_t at, i64 value) noexcept nogil

@cython.final
@cython.auto_pickle(False)
cdef class RecordFilterKernel:
    cdef OffsetMapKernel keys
    cdef i64[:, ::1] places
    cdef public Py_ssize_t kept
    cdef readonly Py_ssize_t tombstones, seals
    cdef public i64 records_read, records_kept
    cdef readonly i64 base_time, largest

    @cython.locals(done=i64, kept=Py_ssize_t, tombstones=Py_ssize_t, read=Py_ssize_t, place=Py_ssize_t, first=Py_ssize_t, known=i64, previous=i64, status=int)
    cpdef int select(self, const u8[::1] src, Py_ssize_t at, Py_ssize_t stop, i64 count, i64 base, i64 last, int verdict) noexcept nogil
    @cython.locals(row=Py_ssize_t, stamp=i64, delta=i64, tail=Py_ssize_t)
    cpdef Py_ssize_t write(self, const u8[::1] src, u8[::1] out, Py_ssize_t at, i64 base_time, int kind, i64 max_time, i64 new_base, int keep_base) noexcept nogil
    @cython.locals(status=int, rows=Py_ssize_t)
    cpdef tuple filter_many(self, const u8[::1] buf, const i64[:, ::1] table, const u8[::1] verdicts, Py_ssize_t row, i64 shift, u8[::1] out, Py_ssize_t at, i64 horizon, i64[::1] sealed)
    @cython.locals(attributes=i64, start=Py_ssize_t, end=Py_ssize_t, marks=int)
    cdef inline Py_ssize_t take(self, const u8[::1] buf, const i64[:, ::1] table, int verdict, Py_ssize_t row, i64 shift, u8[::1] out, Py_ssize_t at, i64 horizon, i64[::1] sealed) noexcept nogil
