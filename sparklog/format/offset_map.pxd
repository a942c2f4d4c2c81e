# C types of offset_map.py; only the compiled build reads this.
cimport cython

ctypedef unsigned char u8
ctypedef long long i64
ctypedef unsigned long long u64

cdef u64 MASK64, SIP0, SIP1, SIP2, SIP3
cdef Py_ssize_t HEADER, BLOCK
cdef int DONE, FULL, BAD_COUNT, BAD_LENGTH, BAD_FIELD, BAD_OFFSET, BAD_SIZE, GROW, BAD_REST

@cython.locals(size=Py_ssize_t)
cdef inline Py_ssize_t varint_bytes(const u8[::1] buf, Py_ssize_t at, Py_ssize_t stop, Py_ssize_t most) noexcept nogil
@cython.locals(bits=u64, half=i64)
cdef inline i64 varint_value(const u8[::1] buf, Py_ssize_t at, Py_ssize_t size) noexcept nogil
cdef inline u64 plus(u64 a, u64 b) noexcept nogil
cdef inline u64 turn(u64 value, int bits) noexcept nogil
@cython.locals(word=u64)
cdef inline u64 load_word(const u8[::1] buf, Py_ssize_t at, Py_ssize_t size) noexcept nogil
@cython.locals(word=u64)
cdef inline u64 load_whole(const u8[::1] buf, Py_ssize_t at) noexcept nogil

@cython.final
@cython.auto_pickle(False)
cdef class OffsetMapKernel:
    cdef u64[:, ::1] table, pending
    cdef u64 key0, key1, h1, h2
    cdef u64 shards, region, used
    cdef readonly i64 limit, entries, room
    cdef public i64 latest
    cdef public Py_ssize_t fault_at
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
    @cython.locals(row=u64)
    cdef void note(self, const u8[::1] src, Py_ssize_t place, u64 mapped) noexcept nogil
    cdef u64 recall(self, Py_ssize_t place) noexcept nogil
    cpdef get(self, const u8[::1] key)
    @cython.locals(row=Py_ssize_t, newest=i64)
    cdef i64 newest(self) noexcept nogil
    @cython.locals(status=int, rows=Py_ssize_t)
    cpdef tuple fold_many(self, const u8[::1] buf, const i64[:, ::1] table, Py_ssize_t row, i64 shift, i64 first)
    @cython.locals(done=i64, noted=Py_ssize_t, place=Py_ssize_t, mapped=u64, previous=i64, status=int)
    cpdef int fold(self, const u8[::1] src, Py_ssize_t at, Py_ssize_t stop, i64 count, i64 base, i64 last, i64 first) except -1
    @cython.locals(n=Py_ssize_t, m=Py_ssize_t, size=i64)
    cdef int read(self, const u8[::1] src, Py_ssize_t at, Py_ssize_t stop) noexcept nogil
