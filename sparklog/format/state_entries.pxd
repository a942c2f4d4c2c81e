# C types of entries.py; only the compiled build reads this.
cimport cython

ctypedef unsigned char u8
ctypedef long long i64

cdef int DONE, CUT, BAD_SIZE, BAD_KIND
cdef int PUT, DELETE, MERGE, DELETE_RANGE

@cython.locals(value=int)
cdef inline int load_int(const u8[::1] buf, Py_ssize_t at) noexcept nogil
@cython.locals(count=Py_ssize_t, stop=Py_ssize_t, rows=Py_ssize_t, status=int, kind=int, key_size=Py_ssize_t, key_at=Py_ssize_t, value_size=Py_ssize_t)
cpdef tuple walk(const u8[::1] buf, Py_ssize_t at, int typed, i64[:, ::1] out)
