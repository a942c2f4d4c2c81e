# C types of kernel.py; only the compiled build reads this.
cimport cython

ctypedef unsigned char u8
ctypedef long long i64
ctypedef unsigned long long u64

cdef u64 MASK32, MURMUR_SEED

@cython.locals(high=i64)
cdef inline i64 load32(const u8[::1] buf, Py_ssize_t at) noexcept nogil
@cython.locals(low=i64)
cdef inline i64 load64(const u8[::1] buf, Py_ssize_t at) noexcept nogil
cdef inline void store(u8[::1] buf, Py_ssize_t at, i64 value, Py_ssize_t width) noexcept nogil
cdef inline i64 wrap(i64 value) noexcept nogil
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
@cython.locals(row=Py_ssize_t, rows=Py_ssize_t, place=Py_ssize_t, last=Py_ssize_t)
cpdef group_rows(const int[::1] numbers, i64[::1] starts, int[::1] order)
