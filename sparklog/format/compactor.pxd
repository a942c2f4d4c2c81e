# C types of compactor.py; only the compiled build reads this.
cimport cython

ctypedef unsigned char u8
ctypedef long long i64
ctypedef unsigned long long u64

cdef u64 MASK32, MASK64, SIP0, SIP1, SIP2, SIP3
cdef Py_ssize_t HEADER
cdef int DONE, FULL, BAD_COUNT, BAD_LENGTH, BAD_FIELD, BAD_OFFSET, BAD_SIZE, GROW, BAD_REST
cdef int DISCARD, RETAIN, EMPTY, MARK, TOMBSTONES, DELETE_HORIZON, HEADER_ONLY

cdef inline void copy(u8[::1] dst, Py_ssize_t at, const u8[::1] src, Py_ssize_t start, Py_ssize_t size) noexcept nogil
cdef inline void store(u8[::1] buf, Py_ssize_t at, i64 value, Py_ssize_t width) noexcept nogil
cdef inline i64 wrap(i64 value) noexcept nogil
@cython.locals(size=Py_ssize_t)
cdef inline Py_ssize_t varint_bytes(const u8[::1] buf, Py_ssize_t at, Py_ssize_t stop, Py_ssize_t most) noexcept nogil
@cython.locals(bits=u64, half=i64)
cdef inline i64 varint_value(const u8[::1] buf, Py_ssize_t at, Py_ssize_t size) noexcept nogil
@cython.locals(rest=u64, size=Py_ssize_t)
cdef inline Py_ssize_t varint_size(i64 value) noexcept nogil
@cython.locals(rest=u64, low=cython.uint)
cdef inline Py_ssize_t put_varint(u8[::1] buf, Py_ssize_t at, i64 value) noexcept nogil
cdef inline u64 plus(u64 a, u64 b) noexcept nogil
cdef inline u64 turn(u64 value, int bits) noexcept nogil
@cython.locals(word=u64)
cdef inline u64 load_word(const u8[::1] buf, Py_ssize_t at, Py_ssize_t size) noexcept nogil
@cython.locals(word=u64)
cdef inline u64 load_whole(const u8[::1] buf, Py_ssize_t at) noexcept nogil

@cython.final
@cython.auto_pickle(False)
cdef class Compactor:
    cdef u64[:, ::1] table
    cdef i64[:, ::1] places
    cdef u64 key0, key1, h1, h2
    cdef u64 shards, region, used
    cdef readonly i64 limit, entries, room
    cdef public i64 latest
    cdef readonly Py_ssize_t kept, tombstones, fault_at, seals
    cdef public i64 records_read, records_kept
    cdef readonly i64 base_time, largest
    cdef i64 delta, step, key_size, value_size
    cdef Py_ssize_t tail_at, key_at, stop_at

    @cython.locals(v0=u64, v1=u64, v2=u64, v3=u64, step=Py_ssize_t, whole=Py_ssize_t, rounds=int, word=u64)
    cdef inline void digest(self, const u8[::1] src, Py_ssize_t at, Py_ssize_t size) noexcept nogil
    @cython.locals(first=u64, at=u64, left=u64)
    cdef inline Py_ssize_t slot(self) noexcept nogil
    @cython.locals(row=Py_ssize_t)
    cdef inline bint put(self, u64 mapped) noexcept nogil
    @cython.locals(row=Py_ssize_t, count=Py_ssize_t)
    cpdef refill(self, const u64[:, ::1] rows)
    @cython.locals(row=Py_ssize_t, newest=i64)
    cpdef get(self, const u8[::1] key)
    @cython.locals(status=int, rows=Py_ssize_t)
    cpdef tuple fold_many(self, const u8[::1] buf, const i64[:, ::1] table, Py_ssize_t row, i64 shift, i64 first)
    @cython.locals(done=i64, previous=i64, status=int)
    cpdef int fold(self, const u8[::1] src, Py_ssize_t at, Py_ssize_t stop, i64 count, i64 base, i64 last, i64 first) except -1
    @cython.locals(n=Py_ssize_t, m=Py_ssize_t, size=i64)
    cdef inline int read(self, const u8[::1] src, Py_ssize_t at, Py_ssize_t stop) noexcept nogil
    @cython.locals(done=i64, kept=Py_ssize_t, tombstones=Py_ssize_t, keep=int, mapped=Py_ssize_t, newest=i64, previous=i64, status=int)
    cpdef int sift(self, const u8[::1] src, Py_ssize_t at, Py_ssize_t stop, i64 count, i64 base, i64 last, int verdict) noexcept nogil
    @cython.locals(row=Py_ssize_t, stamp=i64, delta=i64, tail=Py_ssize_t)
    cpdef Py_ssize_t write(self, const u8[::1] src, u8[::1] out, Py_ssize_t at, i64 base_time, int kind, i64 max_time, i64 new_base, int keep_base) noexcept nogil
    @cython.locals(status=int, rows=Py_ssize_t)
    cpdef tuple filter_many(self, const u8[::1] buf, const i64[:, ::1] table, const u8[::1] verdicts, Py_ssize_t row, i64 shift, u8[::1] out, Py_ssize_t at, i64 horizon, i64[::1] sealed)
    @cython.locals(attributes=i64, start=Py_ssize_t, end=Py_ssize_t, marks=int)
    cdef inline Py_ssize_t take(self, const u8[::1] buf, const i64[:, ::1] table, int verdict, Py_ssize_t row, i64 shift, u8[::1] out, Py_ssize_t at, i64 horizon, i64[::1] sealed) noexcept nogil
